"""Harm done to the program while clients ask: kills, corrupt versions, bad clients, a full disk, its end."""

import http.client
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import venv
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from served_models import put_export
from serving_servers import Server, server_process, wait_until

pytestmark = pytest.mark.slow
FLAGS = ("--client_seconds=2", "--file_system_poll_wait_seconds=0.2")
AVAILABLE = 'xling_tf_serving_available_version{model_name="m"}'
FAILURES = 'xling_tf_serving_load_failures_total{model_name="m"}'
# What a client sees of a server that is not there, or dies before it has answered.
GONE = {"ConnectionRefusedError", "ConnectionResetError", "RemoteDisconnected", "BrokenPipeError"}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    put_export(tmp_path / "m" / "1", 1)
    return tmp_path / "m"


@contextmanager
def crowd(server: Server, clients: int = 4) -> Iterator[Counter[str]]:
    """Clients that never stop asking, whatever becomes of the server; counts what they saw."""
    seen: Counter[str] = Counter()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                seen[str(server.predict(["a", "bc"]).status)] += 1
            except (OSError, http.client.HTTPException) as error:
                seen[type(error).__name__] += 1
                over.wait(0.01)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_killed_server_starts_again_with_the_same_command(models: Path) -> None:
    with server_process(f"--model=m={models}", *FLAGS) as server, crowd(server) as seen:
        wait_until(lambda: seen["200"] > 50)
        assert server.process
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        with server_process(f"--model=m={models}", *FLAGS, f"--port={server.port}"):
            answered = seen["200"]
            wait_until(lambda: seen["200"] > answered + 50)
    # Whole answers or broken connections, and nothing between.
    assert seen.keys() <= {"200", *GONE}


def test_clients_that_leave_or_are_slow_harm_nobody(models: Path) -> None:
    body = b'{"instances": ["a"]}'
    head = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole = head + body
    with server_process(f"--model=m={models}", *FLAGS) as server:
        assert server.process
        process, address = psutil.Process(server.process.pid), ("127.0.0.1", server.port)
        files = process.num_fds()
        with crowd(server) as seen:
            for number in range(300):  # within the headers, within the body, before the answer
                end = (len(head) // 2, len(head) + 5, len(whole))[number % 3]
                with suppress(OSError), socket.create_connection(address, timeout=10) as client:
                    client.sendall(whole[:end])
                    if number % 2:  # a reset
                        linger = struct.pack("ii", 1, 0)
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            slow = [socket.create_connection(address, timeout=30) for _ in range(100)]
            for client in slow:
                client.sendall(whole[: len(head) + 3])  # the rest never comes
            for client in slow:
                assert client.recv(2**16).startswith(b"HTTP/1.1 408 ")
                client.close()
        assert seen.keys() == {"200"}
        wait_until(lambda: process.num_fds() <= files + 5)
        assert server.metric('xling_tf_serving_queued_rows{model_name="m"}') == 0


def test_connections_beyond_the_limit_are_refused(models: Path) -> None:
    with server_process(f"--model=m={models}", *FLAGS, "--max_connections=20") as server:
        address = ("127.0.0.1", server.port)
        idle = [socket.create_connection(address) for _ in range(20)]
        wait_until(lambda: server.predict(["a"]).status == 503)
        for client in idle:
            client.close()
        wait_until(lambda: server.predict(["a"]).status == 200)


def test_a_disk_that_takes_no_byte_stops_no_request(models: Path, tmp_path: Path) -> None:
    with server_process(f"--model=m={models}", *FLAGS, "--log_level=DEBUG") as server:
        assert server.process
        # From here on no file may grow, and what is written to the log is refused.
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        assert server.process.stdout
        server.process.stdout.close()
        with crowd(server) as seen:
            put_export(models / "2", 2, wrecked=True)  # a copy that ended halfway
            wait_until(lambda: server.metric(FAILURES) == 1)
            answered = seen["200"]
            wait_until(lambda: seen["200"] > answered + 50)
        assert seen.keys() == {"200"}
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_an_independent_client_of_the_protocol_is_answered(
    models: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """ovmsclient, in an environment of its own."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "ovmsclient==2023.1"]
    if subprocess.run(install, check=False, capture_output=True).returncode:
        pytest.skip("pip cannot fetch ovmsclient")
    code = """
import sys, ovmsclient
client = ovmsclient.make_http_client(sys.argv[1])
print(client.get_model_status("m", 1))
print(client.get_model_metadata("m", 1))
print(client.predict({"inputs": ["Hola", ""]}, "m", 1))
"""
    with server_process(f"--model=m={models}", *FLAGS) as server:
        command = [python, "-c", code, f"127.0.0.1:{server.port}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr
    status, metadata, outputs = done.stdout.splitlines()
    assert status == "{1: {'state': 'AVAILABLE', 'error_code': 0, 'error_message': ''}}"
    assert "'dtype': 'DT_STRING'" in metadata
    assert outputs == "[5. 1.]"
