"""The demo page in headless Chromium, as its tests drive it."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from demo_server import Stub, serving

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
HOSTILE = """0 <img src=x onerror="document.title='broken'"><script>document.title=1</script>"""


class Page:
    """One tab with the page, open and with its first heat map.

    Attributes:
        tab: Playwright's.
        complaints: What the console and uncaught errors said.
        urls: Everything that was requested.
    """

    def __init__(self, browser: Any, origin: str, width: int = 1000, **settings: Any) -> None:
        self.tab = browser.new_page(viewport={"width": width, "height": 800}, **settings)
        self.tab.set_default_timeout(20_000)
        self.complaints: list[str] = []
        self.urls: list[str] = []
        # The browser itself tells of every answer that is an error.
        self.tab.on(
            "console", lambda m: "Failed to load" in m.text or self.complaints.append(m.text)
        )
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", lambda request: self.urls.append(request.url))
        self.tab.goto(origin)
        self.tab.locator("table.heat").wait_for()

    def compare(self, rows: list[str], columns: list[str]) -> None:
        self.tab.locator("#row-texts").fill("\n".join(rows))
        self.tab.locator("#column-texts").fill("\n".join(columns))
        self.tab.get_by_role("button", name="Compare").click()

    def choose(self, model: str) -> None:
        self.tab.get_by_label("Model").select_option(model)

    def upload(self, data: bytes, name: str = "mine.txt") -> None:
        file = {"name": name, "mimeType": "text/plain", "buffer": data}
        self.tab.get_by_label("File to search in").set_input_files(file)

    def search(self, query: str) -> None:
        self.tab.locator("#query").fill(query)
        self.tab.get_by_role("button", name="Search", exact=True).click()

    def told(self, part: str, text: str) -> None:
        """Waits until "compare" or "search" says something with this text."""
        self.tab.locator(f"#{part}-status", has_text=text).wait_for()

    def readout(self) -> list[str]:
        return self.tab.locator("#readout span").all_inner_texts()

    def cells(self) -> list[list[str]]:
        rows = self.tab.locator("table.heat tbody tr").all()
        return [row.locator("td").all_inner_texts() for row in rows]

    def found(self) -> list[list[str]]:
        """Score, text and note of each neighbour."""
        items = self.tab.locator("#neighbours li").all()
        parts = (".number", ".text", ".note")
        return [[item.locator(part).inner_text() for part in parts] for item in items]


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Headless Chromium; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)


class Opener:
    """Opens pages on one browser before one stub, and closes what a test left open."""

    def __init__(self, browser: Any, stub: Stub, origin: str) -> None:
        self.browser, self.stub, self.origin = browser, stub, origin
        self.pages: list[Page] = []

    def __call__(self, width: int = 1000, **settings: Any) -> Page:
        self.pages.append(Page(self.browser, self.origin, width, **settings))
        self.stub.requests.clear()
        return self.pages[-1]

    def close(self) -> None:
        """Closes them; whatever they asked of others or complained of fails the test."""
        pages, self.pages = self.pages, []
        self.stub.reset()
        for page in pages:
            page.tab.close()
        assert [line for page in pages for line in page.complaints] == []
        urls = [url for page in pages for url in page.urls]
        assert [url for url in urls if not url.startswith(self.origin + "/")] == []


@contextlib.contextmanager
def opener() -> Iterator[Opener]:
    """A stub, its server and a browser for the tests of one module."""
    stub = Stub()
    with chromium() as browser, serving(stub) as origin:
        yield Opener(browser, stub, origin)
