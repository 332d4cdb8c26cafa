"""The parts of the load test that need no server of ours."""

import http.server
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from xling_tf.errors import UserError
from xling_tf.load_testing import in_process
from xling_tf.load_testing.arriving_versions import put_version, put_wreck
from xling_tf.load_testing.crowd import Crowd, Request
from xling_tf.load_testing.sentences import SENTENCES, batches, bodies
from xling_tf.load_testing.server_process import ServerProcess
from xling_tf.load_testing.soak import Sample, memory_course
from xling_tf.load_testing.table import Way, markdown, measure
from xling_tf.load_testing.wrk import Measured, drive, find_wrk, parse

with_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers 200 to a body with 'ok' in it, 400 to others, and drops those with 'drop'."""

    protocol_version = "HTTP/1.1"
    bodies: set[bytes] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.add(body)
        if b"drop" in body:
            self.close_connection = True
            return
        self.send_response(200 if b"ok" in body else 400)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def measured(requests: int, seconds: float, max_ms: float = 1, **errors: int) -> Measured:
    return Measured(requests, seconds, 1, 1, max_ms, errors)


def test_the_figures_of_wrk_are_read():
    figures = {"requests": 30, "seconds": 2.0, "p50_ms": 1.5, "p99_ms": 9.0, "max_ms": 12.0}
    figures |= {"errors": {"read": 2, "status": 3}, "statuses": {"200": 27, "400": 3}}
    read = parse(f"Running 2s test\n  Latency 1ms\nmeasured {json.dumps(figures)}\n")
    assert (read.rate, read.failures, read.p99_ms) == (15.0, 5, 9.0)
    assert read.statuses == {"200": 27, "400": 3}


def test_output_without_figures_is_refused():
    with pytest.raises(ValueError, match="no figures"):
        parse("Running 2s test\n")


def test_without_wrk_it_is_told_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"wrk is expected on the PATH.*apt-get install wrk"):
        find_wrk()


@with_wrk
def test_wrk_rotates_bodies_and_counts_statuses(port):
    sent = [b'"ok 1"', '"ok ä"'.encode(), b'"other"']
    seen = drive(f"http://127.0.0.1:{port}/", sent, clients=2, seconds=0.5, statuses=True)
    assert set(sent) <= _Handler.bodies
    assert seen.statuses.keys() == {"200", "400"}
    # Two bodies of three are fine; a connection's last answer may be missing.
    assert abs(seen.statuses["200"] - 2 * seen.statuses["400"]) <= 4
    assert seen.errors["status"] == seen.statuses["400"]
    assert sum(seen.statuses.values()) == seen.requests
    assert 0 < seen.p50_ms <= seen.p99_ms <= seen.max_ms


@with_wrk
def test_where_nobody_listens_wrk_says_so():
    with pytest.raises(UserError, match=r"wrk is expected to measure .* but says: "):
        drive("http://127.0.0.1:1/", [b"{}"], clients=1, seconds=0.5)


def test_a_crowd_remembers_what_it_saw(port):
    requests = [
        Request("POST", "/", b"ok"),
        Request("POST", "/", b"bad", 400),
        Request("POST", "/", b"bad"),
        Request("POST", "/", b"drop"),
    ]
    with Crowd(port, requests, clients=2) as crowd:
        while len(crowd.answers) < 40:
            time.sleep(0.01)
    outcomes = crowd.outcomes()
    assert outcomes.keys() == {"200", "400", "RemoteDisconnected"}
    # Of four in turn one is 200 as it should be, one 400 as it should not, one no answer.
    assert crowd.unexpected().keys() == {"400", "RemoteDisconnected"}
    assert abs(outcomes["400"] - 2 * crowd.unexpected()["400"]) <= 2
    assert crowd.outcomes(since=time.monotonic()) == {}
    assert 0 < crowd.percentile_ms(50) <= crowd.percentile_ms(99)


def test_bodies_hold_the_sentences_in_turn():
    first, second = (json.loads(body)["instances"] for body in bodies(3)[:2])
    assert first == list(SENTENCES[:3])
    assert second == list(SENTENCES[1:4])
    # As long as is asked for, however few the sentences.
    assert {len(batch) for batch in batches(100)} == {100}
    assert not any(b"\n" in body for body in bodies(1))


def test_calls_in_process_are_counted_and_timed():
    seen = set()
    figures = in_process.call(
        lambda batch: seen.add(batch[0]) or time.sleep(0.002), [["a"], ["b"]], 2, 0.1
    )
    assert seen == {"a", "b"}
    assert figures.requests >= 2
    assert 2 <= figures.p50_ms <= figures.max_ms


def test_the_table_compares_within_rounds():
    # In round one the first way makes 100 a second and the second 50; then 10 and 20; then 40 and 40:
    # ratios 0.5, 2 and 1, whose median is 1, and rates 50, 20 and 40, whose median is 40.
    runs = {
        "a": iter([measured(100, 1), measured(10, 1), measured(40, 1)]),
        "b": iter([measured(100, 2, 7, read=1), measured(20, 1, 9), measured(40, 1, 8, status=2)]),
    }
    ways = [Way(name, 1, 32, lambda seconds, own=own: next(own)) for name, own in runs.items()]
    told = []
    first, second = measure(ways, rounds=3, seconds=1, report=told.append)
    assert (first["to_first"], second["to_first"]) == (1, 1)
    assert (second["requests_per_second"], second["sentences_per_second"]) == (40, 40 * 32)
    assert (second["max_ms"], second["errors"]) == (9, 3)
    assert len(told) == 6
    assert "| 32 | b | 1 | 40 | 1280 | 1.00 | 1.0 | 1.0 | 9 | 3 |" in markdown([first, second])


def test_ways_are_compared_with_the_first_of_their_size():
    ways = [
        Way("a", 1, 1, lambda seconds: measured(10, 1)),
        Way("a", 1, 32, lambda seconds: measured(4, 1)),
        Way("b", 1, 32, lambda seconds: measured(2, 1)),
    ]
    assert [row["to_first"] for row in measure(ways, 1, 1, str)] == [1, 1, 0.5]


def test_memory_that_falls_or_swings_is_flat():
    # Two versions in memory for a moment, again and again, are no growth: medians do not see it.
    swinging = [Sample(s, 100 + 50 * (s % 10 == 0), s // 10) for s in range(100)]
    assert memory_course(swinging, 20)["flat"]
    falling = memory_course([Sample(s, 300 - s, 1) for s in range(100)], 10)
    assert falling["flat"]
    assert falling["steady_mib_a_minute"] == -60


def test_memory_that_grows_with_versions_or_between_them_is_not_flat():
    # 1 MiB a second: 60 a minute; the medians of the first and the last of three times 30 seconds are
    # 60 seconds apart, and the median of the 90 is 1000 + 54.5.
    growing = memory_course([Sample(s, 1000 + s, 1) for s in range(100)], 10)
    assert (growing["steady_mib_a_minute"], growing["growth"]) == (60, round(60 / 1054.5, 4))
    assert not growing["flat"]
    # A tenth of a version stays each time, and nothing grows between.
    stepping = memory_course([Sample(s, 100 + 10 * (s // 10), s // 10) for s in range(100)], 10)
    assert stepping["steady_mib_a_minute"] == 0
    assert not stepping["flat"]


def test_a_version_arrives_whole_and_a_wreck_without_half_its_weights(tmp_path):
    export = tmp_path / "export"
    (export / "variables").mkdir(parents=True)
    (export / "saved_model.pb").write_bytes(b"graph")
    (export / "variables" / "variables.data-00000-of-00001").write_bytes(b"weights!")
    versions = tmp_path / "versions"
    put_version(export, versions, 1)
    put_wreck(export, versions, 2)
    assert {path.name for path in versions.iterdir()} == {"1", "2"}
    weights = Path("variables", "variables.data-00000-of-00001")
    assert (versions / "1" / weights).read_bytes() == b"weights!"
    assert (versions / "2" / weights).read_bytes() == b"weig"
    assert (versions / "2" / "saved_model.pb").read_bytes() == b"graph"
    assert (export / weights).read_bytes() == b"weights!"


def test_a_server_that_ends_is_told_with_its_last_words():
    command = ["python3", "-c", "print('first'); raise SystemExit('no such model')"]
    with (
        ServerProcess(command) as server,
        pytest.raises(UserError, match="has ended: no such model"),
    ):
        server.wait_until_ready()
    assert not server.log.exists()
