"""The server around the protocol: limits, metrics, health, the program, faults, the page."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from programs import ROOT, run_python, the_error
from serving_models import put_export
from serving_servers import Server, server_in_thread, server_process, wait_until

from xling_tf.serving import protocol
from xling_tf.serving.batching import BatchingParameters

PREDICT = "/v1/models/m:predict"
PROGRAM = str(ROOT / "export" / "serve.py")
ONE_PLACE = BatchingParameters(num_batch_threads=1, max_enqueued_batches=1, max_batch_size=1)


# Nothing that the client sent, but the id of its request.
FIELDS = {"request_id", "path", "model", "texts", "status", "seconds", "body_seconds"}


def count(steps: int) -> str:
    """A request whose duration grows with the number of steps."""
    return json.dumps({"signature_name": "count", "inputs": steps})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return put_export(tmp_path_factory.mktemp("models") / "m", 1)


@pytest.fixture(scope="module")
def server(folder):
    with server_in_thread({"m": folder}) as server:
        yield server


def test_requests_at_the_same_time_get_their_own_answers(server):
    # The length of each text, and 1 for the version; a text that the model refuses fails alone.
    texts = [["x" * number, ""] for number in range(8)] + [["bad"]]
    with ThreadPoolExecutor(9) as pool:
        *good, bad = pool.map(server.predict, texts)
    assert [reply.json["predictions"] for reply in good] == [[n + 1, 1] for n in range(8)]
    assert bad.status == 400
    assert "the text is bad" in bad.json["error"]
    assert "node" not in bad.json["error"]
    texts = ["a" * 100] * 900  # too large for the event loop
    assert server.predict(texts).json["predictions"] == [101] * 900


def test_every_path_has_its_answer(server):
    kinds = {"/healthz": "json", "/readyz": "json", "/health": "json", "/metrics": "plain"}
    for path, kind in (kinds | {"/": "html", "/docs": "html", "/page/page.js": "script"}).items():
        reply = server.ask(path)
        assert (reply.status, kind in reply.kind) == (200, True)
    # The page lists the models of OpenAI's path, which asks for the key.
    assert b'"v1/models"' in server.ask("/page/page.js").body
    for path in ("/page/none", "/page/models", "/page/..%2fapp.py", "/nowhere?x=1"):
        reply = server.ask(path)
        assert (reply.status, list(reply.json)) == (404, ["error"])


def test_requests_are_counted_by_their_code(server):
    name = ':tensorflow:serving:request_count_total{model_name="m",status="%s"}'
    before = [server.metric(name % code) for code in (200, 400)]
    server.predict(["a"])
    server.predict(["bad"])
    server.predict(["a"], model="stranger")
    after = [server.metric(name % code) for code in (200, 400)]
    assert after == [number + 1 for number in before]
    page = server.ask("/monitoring/prometheus/metrics").body.decode()
    assert "stranger" not in page  # Metrics do not hold a client's words.
    assert server.metric('xling_tf_serving_available_version{model_name="m"}') == 1
    assert server.metric('xling_tf_serving_queued_rows{model_name="m"}') == 0
    assert ":tensorflow:serving:request_latency_bucket{" in page


@pytest.mark.parametrize("name", ["parse_request", "to_inputs", "format_outputs"])
def test_a_large_request_is_converted_beside_the_others(server, monkeypatch, name):
    real, begun, let = getattr(protocol, name), Event(), Event()

    def waits(*arguments):
        begun.set()
        assert let.wait(60)
        return real(*arguments)

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(protocol, name, waits)
        large = pool.submit(server.predict, ["x" * 1000] * 500)
        try:
            assert begun.wait(60)
            monkeypatch.setattr(protocol, name, real)
            assert server.predict(["abc"]).json == {"predictions": [4]}
        finally:
            let.set()
        assert large.result().json == {"predictions": [1001] * 500}


def test_one_of_several_models_is_named(folder):
    with server_in_thread({"a": folder, "b": folder}) as server:
        for path, body in (("/embed", '{"inputs": "x"}'), ("/info", None)):
            reply = server.ask(path, body)
            assert (reply.status, "['a', 'b']" in reply.json["error"]) == (400, True)
        assert server.ask("/info?model=b").json["model_id"] == "b"
        assert b'"example":"b"' in server.ask("/openapi.json?model=b").body


def test_an_answer_that_takes_too_long_is_given_up(folder):
    with server_in_thread({"m": folder}, request_seconds=0.05) as server:
        reply = server.ask(PREDICT, count(200_000))
        assert (reply.status, list(reply.json)) == (504, ["error"])
        wait_until(lambda: server.predict(["a"]).status == 200)


def test_a_client_that_leaves_keeps_no_place_in_the_queue(folder):
    queued = 'xling_tf_serving_queued_rows{model_name="m"}'
    with (
        server_in_thread({"m": folder}, batching=ONE_PLACE) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        busy = pool.submit(server.ask, PREDICT, count(400_000))
        wait_until(busy.running)
        time.sleep(0.3)
        with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as client:
            client.request("POST", PREDICT, b'{"instances": ["a"]}')
            wait_until(lambda: server.metric(queued) == 1)
            refused = server.predict(["b"])
            assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        wait_until(lambda: server.metric(queued) == 0)
        assert not busy.done()
        assert server.predict(["b"]).status == 200
        assert busy.result().status == 200


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program with a folder of versions; the last test ends it."""
    models = tmp_path_factory.mktemp("models") / "m"
    models.mkdir()
    put_export(models / "1", 1)
    flags = [
        f"--model={models}",
        "--log_level=DEBUG",
        "--slow_seconds=0.05",
        "--file_system_poll_wait_seconds=0.1",
    ]
    with server_process(*flags) as server:
        yield server, models


def test_a_new_version_takes_over(program):
    server, models = program
    assert server.predict([""]).json == {"predictions": [1]}
    assert server.predict(["bad"]).status == 400  # Its error must not keep the version loaded.
    put_export(models / "2", 2)
    server.event("version", version=1, state="END")
    assert server.predict([""]).json == {"predictions": [2]}
    event = server.event("request", status=200)
    assert event.keys() == {"time", "level", "event"} | FIELDS


def test_a_slow_request_is_logged_with_its_id(program):
    server, _ = program
    reply = server.ask(PREDICT, count(150_000), **{"X-Request-Id": "gateway/7.a"})
    assert (reply.status, reply.headers["X-Request-Id"]) == (200, "gateway/7.a")
    line = server.event("slow_request", request_id="gateway/7.a")
    assert line.keys() == {"time", "level", "event"} | FIELDS
    fields = {"path": "/v1/models/{model}:predict", "model": "m", "texts": 1, "status": 200}
    assert (line["level"], fields.items() <= line.items()) == ("warning", True)
    assert line["seconds"] > 0.05 > line["body_seconds"] >= 0
    # Ids that could forge a line of a log, and none.
    for given in ({}, {"X-Request-Id": 'a"b'}, {"X-Request-Id": "a" * 129}, {"X-Request-Id": "ñ"}):
        made = server.ask("/v1/models/m", **given).headers["X-Request-Id"]
        assert re.fullmatch("[0-9a-f]{32}", made)
        assert server.event("request", request_id=made)["model"] == "m"
    given = {"X-Request-Id": "a-1"}
    for path, body, status in (
        (PREDICT, "{", 400),
        (PREDICT, None, 405),
        ("/v1/models/x", None, 404),
        ("/x", None, 404),
    ):
        refused = server.ask(path, body, **given)
        assert (refused.status, refused.headers["X-Request-Id"]) == (status, "a-1")


def test_an_error_of_the_server_names_the_request(folder):
    with server_in_thread({"m": folder}, request_seconds=0.05) as server:
        reply = server.ask(PREDICT, count(200_000), **{"X-Request-Id": "a-1"})
        assert (reply.status, "a-1" in reply.json["error"]) == (504, True)


def test_a_mistake_is_one_line(program, tmp_path):
    server, models = program
    for flags, message in (
        (
            [f"--model=m={models}", f"--port={server.port}"],
            "cannot listen on --host 127.0.0.1 --port",
        ),
        (["--model=a/b=."], "--model must be name=model"),
    ):
        assert message in the_error(run_python(tmp_path, PROGRAM, *flags))


def test_a_server_that_is_stopped_answers_requests_in_flight(program):
    server, _ = program
    assert server.process
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.ask, PREDICT, count(150_000))
        time.sleep(0.3)
        for _ in range(20):  # as when a process group and its leader both get the signal
            server.process.send_signal(signal.SIGTERM)
        server.event("stopping")
        assert answer.result().json == {"outputs": 150_000}
    server.event("stopped")
    assert server.process.wait(60) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_a_log_that_nobody_reads_stops_no_request(folder):
    command = [sys.executable, PROGRAM, "--port=0", f"--model={folder}", "--log_level=DEBUG"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        server = Server(0, process)
        server = server._replace(port=server.event("serving")["port"])
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as client:
            for _ in range(1000):  # 100 bytes each, where a pipe holds 65,536
                client.request("GET", "/v1/models/m")
                assert client.getresponse().read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_signal_ends_the_program_while_models_are_loaded(folder):
    # A handler of Python's own says that a signal reaches the program, which process 1 needs.
    command = [sys.executable, PROGRAM, "--port=0", f"--model={folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        time.sleep(1)
        wait_until(lambda: catches(process.pid, signal.SIGTERM))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.findall("SigCgt:\\s*(\\w+)", status)[0], 16) >> number - 1 & 1)


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_the_page_underlines_what_means_the_same(hub_folder, tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    folder = shutil.copytree(hub_folder, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["info"]["match"] = {"same_meaning": [100.0, -99.9]}  # from a cosine of 0.999 on
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with server_in_thread({"m": folder}) as server, api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(server.url)
        tab.get_by_text("5 × 5 sentences compared").wait_for()
        tab.locator("#left").fill("hola gato\nthe cat")
        tab.locator("#right").fill("the cat\nhola gato")
        tab.get_by_role("button", name="Compare").click()
        tab.get_by_text("2 × 2 sentences compared").wait_for()
        assert tab.locator("#map td.match").all_inner_texts() == ["1.00", "1.00"]
        assert tab.locator("#map tr:nth-of-type(2) td.match").count() == 1
        assert "with a probability of one half or more" in tab.locator("#map caption").inner_text()
        # 1 / (1 + exp(-0.1)) at a cosine of 1.
        assert tab.locator("#map td.match").first.get_attribute("title") == "probability 0.52"
        tab.locator("#query").fill("the cat")
        tab.get_by_role("button", name="Search").click()
        tab.get_by_text("1 of them matches with a probability").wait_for()
        assert tab.locator("#neighbours li.match small").all_inner_texts() == ["probability 0.52"]
        browser.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_the_page_compares_and_searches_in_a_browser(hub_folder):
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with (
        server_in_thread({"m": hub_folder}, api_key="secret") as server,
        api.sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        complaints: list[str] = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(server.url)
        for key, answer in (
            ("wrong", "did not accept this key"),
            ("secret", "5 × 5 sentences compared"),
        ):
            tab.locator("#key").fill(key)
            tab.get_by_role("button", name="Continue").click()
            tab.get_by_text(answer).wait_for()
        complaints.clear()  # that the key was asked for
        hostile = "<img src=x onerror=alert(1)>"
        tab.locator("#left").fill(f"hola gato\n\n {hostile} ")
        tab.locator("#right").fill(f"{hostile}\nthe cat is sleeping\nhola gato")
        tab.get_by_role("button", name="Compare").click()
        tab.get_by_text("2 × 3 sentences compared; 0 are nearest").wait_for()
        # The same text is the nearest with any model, and is shown unchanged.
        assert tab.locator("td.best").all_inner_texts() == ["1.00", "1.00"]
        assert tab.locator("#map tr:nth-of-type(3) th").inner_text() == hostile
        tab.locator("#query").fill("the cat is sleeping")
        tab.get_by_role("button", name="Search").click()
        tab.get_by_text("The 3 nearest of 3 sentences.").wait_for()
        assert tab.locator("#neighbours li").first.inner_text() == "1.00the cat is sleeping"
        assert "Bearer $XLING_TF_API_KEY" in tab.locator("#curl").text_content()
        tab.set_viewport_size({"width": 360, "height": 800})
        tab.goto(server.url)
        tab.get_by_text("5 × 5 sentences compared").wait_for()
        assert tab.evaluate("document.documentElement.scrollWidth") == 360
        # The row's sentence stays in sight, and the language of the examples is known.
        row = tab.locator("#map th[scope=row]").first
        left = row.bounding_box()["x"]
        tab.evaluate("document.querySelector('.scroll').scrollLeft = 9999")
        assert tab.evaluate("document.querySelector('.scroll').scrollLeft") > 100
        assert row.bounding_box()["x"] == pytest.approx(left, abs=3)
        assert row.bounding_box()["width"] < 180
        assert [row.get_attribute("lang"), tab.locator("#left").input_value()[:3]] == ["en", "The"]
        assert "does not say how probable" in tab.locator("#map caption").inner_text()
        tab.goto(f"{server.url}/docs")
        tab.get_by_text("GET /v1/models/{model}/metadata").wait_for()
        assert tab.evaluate("document.documentElement.scrollWidth") == 360
        assert complaints == []
        browser.close()
