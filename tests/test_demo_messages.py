"""What the demo page says when something is wrong, and who can read and reach it."""

import re
from collections.abc import Iterator

import pytest
from demo_browser import HOSTILE, Opener, opener
from demo_server import Stub


@pytest.fixture(scope="module")
def shared() -> Iterator[Opener]:
    with opener() as shared:
        yield shared


@pytest.fixture
def opened(shared) -> Iterator[Opener]:
    yield shared
    shared.close()


@pytest.fixture
def stub(shared) -> Stub:
    return shared.stub


def test_models_that_cannot_be_used_are_told(opened):
    page = opened()
    page.choose("numbers")
    message = "Model numbers has no signature that takes one list of strings and gives vectors."
    page.told("compare", message)
    assert not page.tab.locator("table.heat").is_visible()
    page.choose("broken")
    message = "Model broken cannot be used: Servable not found for request: Latest(broken)"
    page.told("compare", message)
    page.choose("plane")
    page.tab.locator("table.heat").wait_for()


def test_a_server_without_models_is_told(opened):
    page = opened()
    page.tab.route("**/demo/models", lambda route: route.fulfill(json={"models": []}))
    page.tab.reload()
    page.tab.get_by_text("The server has no models.").wait_for()
    assert not page.tab.get_by_label("Model").is_visible()


def test_a_busy_server_is_asked_again(opened, stub):
    page = opened()
    stub.refusals = [(429, "queue is full", {}), (503, "loading", {"Retry-After": "0"})]
    # Messages may pass faster than a browser under load is looked at.
    page.tab.evaluate("""() => {
        const status = document.getElementById("compare-status");
        window.heard = [];
        const listen = () => window.heard.push(status.textContent);
        new MutationObserver(listen).observe(status, { childList: true });
    }""")
    page.compare(["0 a"], ["0 b"])
    page.told("compare", "1 × 1 sentences compared.")
    heard = "\n".join(page.tab.evaluate("window.heard"))
    assert re.search(r"The server is busy \(429\)\. Trying again in 0\.[3-7] s, 1 of 5\.", heard)
    assert "The server is busy (503). Trying again in 0.0 s, 2 of 5." in heard
    # Three times the first list, once the second.
    assert len(stub.requests) == 4


@pytest.mark.parametrize(
    ("refusal", "times", "message"),
    [
        (
            (429, "queue is full", {"Retry-After": "0"}),
            6,
            "The server is too busy (429); wait a little and try again: queue is full",
        ),
        ((500, HOSTILE, {}), 1, f"Model plane failed (500): {HOSTILE}"),
        ((400, "no", {}), 1, "Model plane refused the request (400): no"),
    ],
    ids=["busy", "failed", "refused"],
)
def test_refusals_are_told(opened, stub, refusal, times, message):
    page = opened()
    stub.refusals = [refusal] * times
    page.search("0 query")
    page.told("search", message)
    error = page.tab.locator("#search-status.error")
    assert error.inner_text() == message
    page.search("0 query")
    page.told("search", "The 10 nearest")
    assert error.count() == 0


def test_a_server_that_is_gone_is_told(opened):
    page = opened()
    page.tab.context.set_offline(True)
    page.compare(["0 a"], ["0 b"])
    page.told("compare", "The server cannot be reached. Is it still running?")
    page.search("0 query")
    page.told("search", "Is the server still running?")


def test_answers_without_vectors_are_told(opened):
    page = opened()
    page.tab.route("**/v1/models/**", lambda route: route.fulfill(body="<html>proxy</html>"))
    page.compare(["0 a"], ["0 b"])
    page.told("compare", "The server's answer broke off or is not JSON.")
    page.tab.route("**/v1/models/**", lambda route: route.fulfill(json={"predictions": [1.0]}))
    page.compare(["0 a"], ["0 b"])
    page.told("compare", "Signature serving_default of model plane does not give vectors")


def test_empty_inputs_are_told(opened):
    page = opened()
    page.compare([" "], ["0 b"])
    page.told("compare", "Type at least one sentence into each of the two lists.")
    page.search(" ")
    page.told("search", "Type a sentence to search with.")
    page.tab.get_by_role("radio", name="a text file").check()
    page.search("0 query")
    page.told("search", "Choose a text file to search in.")


def test_files_that_cannot_be_searched_are_told(opened, stub):
    page = opened()
    no_text = "mine.txt is not a text file in UTF-8"
    for data, message in [
        (b"\x89PNG\r\n\x1a\n\xff", no_text),
        (b" \n\r\n", "mine.txt has no sentences"),
        ("0 a".encode("utf-16"), no_text),
        (b"0 a\n" * 10_001, "mine.txt has 10,001 sentences; at most 10,000 lines and 5 MB"),
        (b"a\0b", no_text),
        (b"0 a " * 1_300_000, "mine.txt has 5.2 MB; at most 10,000 lines and 5 MB"),
    ]:
        page.upload(data)
        page.told("search", message)
    assert stub.requests == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_window(opened, scheme):
    page = opened(color_scheme=scheme)
    page.search("90 query")
    page.told("search", "The 10 nearest")
    for width in (400, 700, 1400):
        page.tab.set_viewport_size({"width": width, "height": 800})
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_label_and_is_reached_with_the_tab_key(opened):
    page = opened()
    page.choose("a/b")
    page.told("compare", "8 × 8")
    controls = "[...document.querySelectorAll('input, textarea, select, progress')]"
    assert page.tab.evaluate(f"{controls}.filter((e) => !e.labels.length).map((e) => e.id)") == []
    page.tab.get_by_label("Model").focus()
    reached = []
    for _ in range(10):
        reached.append(
            page.tab.evaluate("document.activeElement.id || document.activeElement.type")
        )
        page.tab.keyboard.press("Tab")
    expected = ["model", "answering", "row-texts", "column-texts", "submit", "built-in", "file"]
    assert [name for name in reached if name in expected] == [*expected, "submit"]
    page.tab.get_by_label("One language").fill("0 a")
    page.tab.keyboard.press("Control+Enter")
    page.told("compare", "1 × 8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_values_can_be_read_on_every_colour(opened, scheme):
    page = opened(color_scheme=scheme)
    page.compare(["0 a"], [f"{degrees} b" for degrees in range(0, 181, 2)])
    page.told("compare", "1 × 91")
    contrasts = page.tab.evaluate("""() => {
        const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        const luminance = (colour) => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
            const parts = [r, g, b].map((part) => linear(part / 255));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05;
        };
        return [...document.querySelectorAll("tbody td")].map((cell) => {
            const { color, backgroundColor } = getComputedStyle(cell);
            const [a, b] = [luminance(color), luminance(backgroundColor)];
            return Math.max(a, b) / Math.min(a, b);
        });
    }""")
    # WCAG 2.2, success criterion 1.4.3: 4.5 to 1 for text.
    assert len(contrasts) == 91
    assert min(contrasts) >= 4.5
