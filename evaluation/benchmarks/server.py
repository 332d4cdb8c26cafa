"""Measures the model server under load.

    pip install -e '.[serving,evaluation]'; apt-get install wrk
    python evaluation/benchmarks/server.py --model exported/en-es
    python evaluation/benchmarks/server.py --model exported/en-es --memory_minutes 10 \
        --output evaluation/results/server-memory.json
    # and another server of the same weights, which speaks OpenAI's protocol:
    python evaluation/benchmarks/server.py --model exported/minilm --peer \
        'infinity_emb v2 --model-id DIR --served-model-name minilm --url-prefix /v1 --port {port}'

Server and clients share the machine, and take turns: compare only figures of one file. The exit
status is 1 if a request failed, or if memory grew after the first fifth of the time.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from absl import flags, logging

from evaluation.benchmarks.mixed_load import memory_under_load
from evaluation.benchmarks.workloads import with_speed
from xling_tf.errors import UserError
from xling_tf.files import require_writable_file, write_json
from xling_tf.program import provenance, run
from xling_tf.savedmodel.saved_models import find_model, require_saved_model

if TYPE_CHECKING:
    import pandas as pd
    import psutil

_MODEL = flags.DEFINE_string("model", None, "Folder of the exported model.", required=True)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Number of measurements of each row.", 1)
_SECONDS = flags.DEFINE_integer("seconds", 4, "Duration of each measurement.", 1)
_CLIENTS = flags.DEFINE_multi_integer(
    "clients", [1, 8, 64], "Number of simultaneous clients. Repeatable.", 1
)
_SENTENCES = flags.DEFINE_multi_integer(
    "sentences", [1, 32], "Sentences of a request. Repeatable.", 1
)
_PEER = flags.DEFINE_string("peer", None, "Command of another server, with {port}.")
_MINUTES = flags.DEFINE_float(
    "memory_minutes", 0, "If above 0: measure memory under mixed load for this long instead.", 0
)
_OUTPUT = flags.DEFINE_string("output", "evaluation/results/load.json", "Results file.")

_SERVER = str(Path(__file__).resolve().parents[2] / "export" / "serve.py")
_TEXTS = (
    "Where is the nearest train station?",
    "The shop on the corner opens at nine.",
    "ok",
    "¿Dónde está la parada del autobús?",
    "La tienda cierra temprano los domingos.",
    "Das Fenster in der Küche steht offen.",
    "Il neige depuis trois jours.",
    "Thanks a lot for everything that you and your family did for us while we were staying in "
    "town!",
)
_START_SECONDS = 180  # that a server may take to start

Figures = dict[str, Any]


def main() -> None:
    """Measures the servers, and writes the figures."""
    model = find_model(_MODEL.value)
    require_saved_model(model)
    if not _MINUTES.value and shutil.which("wrk") is None:
        raise UserError("wrk must be on the PATH, but is not; apt-get install wrk")
    output = Path(_OUTPUT.value)
    require_writable_file(output, "give another --output")
    figures: Figures = {
        "model": model.name,
        "load_average": os.getloadavg(),
        **(_memory(model) if _MINUTES.value else _load(model)),
        **provenance(),
    }
    write_json(output, with_speed(figures))
    if not figures["passed"]:
        sys.exit(1)


class Server(NamedTuple):
    """A running server."""

    url: str
    process: "psutil.Process"
    start_seconds: float  # until the first answer

    def mib(self) -> float:
        """The resident memory of the server and its child processes, in MiB."""
        processes = (self.process, *self.process.children(recursive=True))
        return sum(process.memory_info().rss for process in processes) / 2**20


def _server_command(model: Path) -> list[str]:
    return [sys.executable, _SERVER, f"--model={model.name}={model}", "--port={port}"]


def _memory(model: Path) -> Figures:
    """Measures the memory of our server under mixed load."""
    with serving(model.name, _server_command(model)) as server:
        port = int(server.url.rpartition(":")[2])
        figures = memory_under_load(port, model.name, _TEXTS, server.mib, _MINUTES.value * 60)
    print(json.dumps(figures))
    return figures


def _load(model: Path) -> Figures:
    """Measures servers of the same model in turn, round after round."""
    commands = {"server": _server_command(model)}
    if _PEER.value:
        commands["peer"] = shlex.split(_PEER.value)
    with ExitStack() as stack:
        servers = {
            how: stack.enter_context(serving(model.name, command))
            for how, command in commands.items()
        }
        rounds = []
        numbers = range(1, _ROUNDS.value + 1)
        for number, size, how, clients in product(
            numbers, _SENTENCES.value, servers, _CLIENTS.value
        ):
            requests = _embeddings(servers[how].url, model.name, size)
            row = {"how": how, "clients": clients, "sentences_per_request": size}
            rounds.append({"round": number, **row, **drive(*requests, clients, _SECONDS.value)})
            logging.info("round %d: %s, %d clients, %d sentences each", number, *row.values())
        processes = {
            how: {
                "start_seconds": round(server.start_seconds, 1),
                "mib_after_load": round(server.mib()),
            }
            for how, server in servers.items()
        }
    import pandas as pd

    table = summary(pd.DataFrame(rounds))
    print(table.to_string(index=False, float_format="%.2f"))
    print(pd.DataFrame(processes).T.to_string())
    passed = not bool(table["errors"].any())
    return {
        "passed": passed,
        "servers": processes,
        "rows": table.to_dict("records"),
        "rounds": rounds,
    }


def _embeddings(url: str, name: str, size: int) -> tuple[str, list[Figures]]:
    """The address and the bodies of requests of `size` sentences, in OpenAI's protocol."""
    batches = ([_TEXTS[(s + n) % len(_TEXTS)] for n in range(size)] for s in range(len(_TEXTS)))
    bodies = [{"model": name, "input": batch} for batch in batches]
    return f"{url}/v1/embeddings", bodies


def summary(rounds: "pd.DataFrame") -> "pd.DataFrame":
    """Summarises rounds: medians, the largest latency and the number of errors.

    `to_first` is the ratio to the first row with the same number of sentences, within each round:
    speeds of one round can be compared even on a busy machine.
    """
    rounds = rounds.copy()
    rounds["requests_per_second"] = rounds["requests"] / rounds["seconds"]
    rounds["sentences_per_second"] = rounds["requests_per_second"] * rounds["sentences_per_request"]
    first = rounds.groupby(["round", "sentences_per_request"], sort=False)["requests_per_second"]
    rounds["to_first"] = rounds["requests_per_second"] / first.transform("first")
    medians = ("requests_per_second", "sentences_per_second", "to_first", "p50_ms", "p99_ms")
    statistics = dict.fromkeys(medians, "median") | {"max_ms": "max", "errors": "sum"}
    by_way = rounds.groupby(["sentences_per_request", "how", "clients"], sort=False)
    return by_way.agg(statistics).reset_index()


def drive(url: str, bodies: Sequence[Figures], clients: int, seconds: int) -> Figures:
    """Measures requests with these bodies with wrk."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(body) + "\n" for body in bodies)
        file.flush()
        command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout=60s"]
        script = str(Path(__file__).with_suffix(".lua"))
        command += ["-s", script, url, "--", file.name]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r"^measured (\{.*\})$", process.stdout, re.MULTILINE)
    if match is None:
        raise UserError(f"wrk cannot measure {url}: {process.stderr or process.stdout}")
    return dict(json.loads(match[1]))


@contextmanager
def serving(name: str, command: Sequence[str]) -> Iterator[Server]:
    """Runs a server on a free port, and yields it when it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    begin = time.monotonic()
    arguments = [argument.replace("{port}", str(port)) for argument in command]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        try:
            address, (body, *_) = _embeddings(url, name, 1)
            while not _answers(address, body):
                if process.poll() is not None or time.monotonic() > begin + _START_SECONDS:
                    raise UserError(
                        f"the server does not answer at {address}: {shlex.join(arguments)}"
                    )
                time.sleep(0.1)
            import psutil

            yield Server(url, psutil.Process(process.pid), time.monotonic() - begin)
        finally:
            process.send_signal(signal.SIGTERM)


def _answers(address: str, body: Figures) -> bool:
    import urllib3

    try:
        return (
            urllib3.request("POST", address, json=body, retries=False, timeout=30.0).status == 200
        )
    except urllib3.exceptions.HTTPError:
        return False


if __name__ == "__main__":
    run(main, "the same command starts again", extra="evaluation")
