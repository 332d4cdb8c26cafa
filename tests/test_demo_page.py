"""The demo page as a browser runs it, before a server whose vectors are angles in a plane."""

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


def test_the_heat_map_shows_cosines(opened, stub):
    page = opened()
    page.compare(["0 a", "", " 90 b "], ["60 c", "90 d", "180 e"])
    page.told("compare", "2 × 3 sentences compared.")
    # cos 60, 90 and 180 degrees; cos 30, 0 and 90.
    assert page.cells() == [["0.50", "0.00", "−1.00"], ["0.87", "1.00", "0.00"]]
    assert page.tab.locator("td.best").all_inner_texts() == ["0.50", "1.00"]
    assert page.tab.locator("thead th").all_inner_texts() == ["60 c", "90 d", "180 e"]
    assert page.tab.locator("tbody th").all_inner_texts() == ["0 a", "90 b"]
    asked = {"model": "plane", "signature_name": "serving_default"}
    assert stub.requests == [
        asked | {"instances": ["0 a", "90 b"]},
        asked | {"instances": ["60 c", "90 d", "180 e"]},
    ]


def test_lists_of_one_length_are_summed_up(opened):
    page = opened()
    # The second row is nearer to the first and the third column.
    page.compare(["0 a", "50 b", "90 c"], ["20 d", "10 e", "80 f"])
    page.told("compare", "1 of 3 rows are nearest to the sentence on the same line.")


def test_cells_are_read_by_pointing_and_by_arrow_keys(opened):
    page = opened()
    page.compare(["0 a", "90 b"], ["60 c", "90 d"])
    page.told("compare", "2 × 2")
    page.tab.locator("tbody td").nth(1).hover()
    assert page.readout() == ["0.00", "0 a", "90 d"]
    page.tab.locator("tbody td").first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Home"):
        page.tab.keyboard.press(key)
    assert page.readout() == ["0.87", "90 b", "60 c"]
    assert page.tab.locator("tbody td[tabindex='0']").all_inner_texts() == ["0.87"]


def test_large_maps_scroll_and_keep_their_values_for_the_readout(opened):
    page = opened()
    angles = range(0, 180, 4)
    page.compare([f"{i} a" for i in angles], [f"{i} b" for i in angles])
    page.told("compare", "45 of 45 rows")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 1000
    page.tab.locator("tbody td").nth(15).hover()
    assert page.readout() == ["0.50", "0 a", "60 b"]
    page.compare(["0 a"] * 101, ["0 b"])
    page.told("compare", "At most 100 sentences a list can be drawn; there are 101 and 1.")


def test_the_built_in_list_is_searched(opened, stub):
    page = opened()
    page.search("90 query")
    page.told("search", "The 10 nearest of 180 sentences.")
    scores = [float(score) for score, _, _ in page.found()]
    assert scores == sorted(scores, reverse=True)
    assert {note for _, _, note in page.found()} <= {"en", "es", "fr", "de", "zh"}
    assert [len(request["instances"]) for request in stub.requests] == [64, 64, 52, 1]
    other = page.tab.locator("#neighbours li:has(.text:not([lang=en]))").first
    assert other.locator(".translation").inner_text()


def test_neighbours_of_a_file_are_in_order(opened, stub):
    page = opened()
    page.tab.locator("#query").fill("0 query")
    page.upload(b"\xef\xbb\xbf10 near\r\n\r\n-50 far\r\n20 between\n")
    page.told("search", "The 3 nearest of 3 sentences.")
    # cos 10, 20 and 50 degrees; the byte order mark and the empty line are no text.
    assert page.found() == [
        ["0.98", "10 near", "line 1"],
        ["0.94", "20 between", "line 4"],
        ["0.64", "-50 far", "line 3"],
    ]
    stub.requests.clear()
    page.search("-50 query")
    page.tab.locator("#neighbours li:first-child .text", has_text="-50 far").wait_for()
    assert page.found()[0] == ["1.00", "-50 far", "line 3"]
    # The vectors were kept: one is asked again to see that the model is still the same.
    assert [request["instances"] for request in stub.requests] == [["10 near"], ["-50 query"]]


def test_another_version_of_the_model_makes_the_vectors_anew(opened, stub):
    page = opened()
    page.upload(b"0 one\n80 two")
    page.told("search", "The 2 nearest")
    stub.turned = 30
    stub.requests.clear()
    page.search("80 query")
    page.tab.locator("#neighbours li:first-child .text", has_text="80 two").wait_for()
    assert page.found()[0][0] == "1.00"
    assert [len(request["instances"]) for request in stub.requests] == [1, 2, 1]


def test_embedding_a_file_is_cancelled_and_goes_on(opened, stub):
    page = opened()
    held = []
    page.tab.route(
        "**/v1/models/**", lambda route: held.append(route) if stub.requests else route.continue_()
    )
    page.upload("\n".join(f"{i} sentence" for i in range(150)).encode())
    bar = page.tab.get_by_label("Embedding: 64 of 150")
    assert bar.evaluate("bar => bar.value / bar.max") == 64 / 150
    page.tab.get_by_role("button", name="Cancel").click()
    page.told("search", "Cancelled.")
    assert not page.tab.locator("progress").is_visible()
    page.tab.unroute("**/v1/models/**")
    stub.requests.clear()
    page.search("100 query")
    page.told("search", "The 10 nearest of 150")
    assert [len(request["instances"]) for request in stub.requests] == [1, 64, 22, 1]
    assert page.found()[0] == ["1.00", "100 sentence", "line 101"]


def test_questions_and_answers_have_their_own_signatures(opened, stub):
    page = opened()
    switch = page.tab.get_by_role("switch", name="Questions → answers")
    assert not switch.is_visible()
    page.choose("a/b")
    page.told("compare", "8 × 8")
    stub.requests.clear()
    switch.check()
    page.told("compare", "5 × 5")
    questions, answers = stub.requests
    assert questions["model"] == "a/b"
    assert questions["signature_name"] == "question_encoder"
    assert questions["instances"][0] == "When does the swimming pool open?"
    assert answers["signature_name"] == "response_encoder"
    assert answers["instances"][1]["input"] == answers["instances"][1]["context"]
    # What was typed stays when the examples change.
    page.tab.get_by_label("Questions", exact=True).fill("0 mine")
    switch.uncheck()
    page.told("compare", "1 × 8")
    page.choose("plane")
    assert not switch.is_visible()


def test_texts_are_shown_literally(opened):
    page = opened()
    page.compare([HOSTILE], [HOSTILE])
    page.told("compare", "1 × 1")
    page.tab.locator("tbody td").hover()
    assert page.readout() == ["1.00", HOSTILE, HOSTILE]
    page.tab.locator("#query").fill(HOSTILE)
    page.upload(HOSTILE.encode())
    page.told("search", "The 1 nearest")
    assert page.found() == [["1.00", HOSTILE, "line 1"]]
    page.upload(b"", name="<img src=x onerror=alert(1)>.txt")
    page.told("search", "<img src=x onerror=alert(1)>.txt has no sentences")
    assert page.tab.locator("img").count() == 0
    assert page.tab.title() == "Sentences across languages"


def test_no_inline_script_would_run(opened):
    page = opened()
    violated = page.tab.evaluate("""() => new Promise((resolve) => {
        document.addEventListener("securitypolicyviolation", (e) => resolve(e.effectiveDirective));
        const script = document.createElement("script");
        script.textContent = "document.title = 'broken'";
        document.body.append(script);
    })""")
    assert violated == "script-src-elem"
    assert "Content Security Policy" in page.complaints.pop()
    assert page.tab.title() == "Sentences across languages"
