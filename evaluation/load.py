"""Measures how the model server bears load and faults, beside the same model called in process.

    pip install -e '.[serving,evaluation]'; apt-get install wrk
    python evaluation/load.py --model exported/en-es                       # the load table
    python evaluation/load.py --model exported/en-es --soak_minutes 10     # memory under steady load
    python evaluation/load.py --model exported/en-es --faults              # kill -9, wrecks, slow clients ...

Server and clients share the machine, so the server's figures hold the clients' work too; compare those
of one file, which were measured in turn. The exit status is 1 where a request failed, memory grew or a
scenario saw what it did not expect.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags, logging

from xling_tf.errors import UserError, one_line_errors, parse_flags, quiet_start, set_up_logging
from xling_tf.files import SAVED_MODEL, provenance, replacing, require_writable_folder
from xling_tf.load_testing import in_process
from xling_tf.load_testing.arriving_versions import put_version
from xling_tf.load_testing.faults.running import run_faults
from xling_tf.load_testing.faults.scenario import Stage
from xling_tf.load_testing.sentences import batches, bodies
from xling_tf.load_testing.server_process import ServerProcess
from xling_tf.load_testing.soak import soak
from xling_tf.load_testing.table import Way, markdown, measure
from xling_tf.load_testing.wrk import drive, find_wrk

_MODEL = flags.DEFINE_string("model", None, "Folder of the exported model.", required=True)
_SOAK = flags.DEFINE_float("soak_minutes", 0, "If above 0: soaks for so long instead.", 0)
_FAULTS = flags.DEFINE_bool("faults", False, "Does harm instead.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Times that each row is measured.", 1)
_SECONDS = flags.DEFINE_float(
    "seconds", 4, "That each measurement and each fault's load lasts.", 0.1
)
_CLIENTS = flags.DEFINE_multi_integer("clients", [1, 8, 64], "That ask at the same time.", 1)
_SENTENCES = flags.DEFINE_multi_integer("sentences", [1, 32], "Of a request.", 1)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Results; evaluation/results/load.json, soak.json or faults.json by default."
)
_SERVER = str(Path(__file__).resolve().parents[1] / "export" / "serve.py")


def main(argv: list[str]) -> None:
    """Measures what the flags name, prints it and writes it."""
    del argv
    set_up_logging()
    with one_line_errors("the same command starts anew"):
        if _FAULTS.value and _SOAK.value:
            raise UserError(
                "--faults and --soak_minutes are expected one at a time, got both; drop one"
            )
        model = Path(_MODEL.value)
        if not (model / SAVED_MODEL).is_file():
            raise UserError(
                f"--model is expected to be an exported model, but {model} has no {SAVED_MODEL}; give "
                "the --output of a training"
            )
        find_wrk()
        kind = "faults" if _FAULTS.value else "soak" if _SOAK.value else "load"
        output = Path(_OUTPUT.value or f"evaluation/results/{kind}.json")
        require_writable_folder(output.parent, "give another --output")
        figures = {"faults": _faults, "soak": _soak, "load": _load}[kind](model)
        _write(output, figures)
    if not figures["passed"]:
        sys.exit(1)


def _load(model: Path) -> dict[str, Any]:
    name = model.name
    ways = _in_process(model)
    with ExitStack() as stack:
        servers = {
            how: stack.enter_context(ServerProcess([*_command(name, model), batching]))
            for how, batching in (
                ("server", "--enable_batching"),
                ("server without batching", "--noenable_batching"),
            )
        }
        for how, server in servers.items():
            server.wait_until_ready()
            url = f"{server.url}/v1/models/{name}:predict"
            ways += [
                Way(how, clients, sentences, partial(drive, url, bodies(sentences), clients))
                for sentences in _SENTENCES.value
                for clients in _CLIENTS.value
            ]
        ways.sort(key=lambda way: way.sentences)
        rows = measure(ways, _ROUNDS.value, _SECONDS.value, partial(logging.info, "%s"))
    print(markdown(rows))
    passed = not any(row["errors"] for row in rows)
    return {"passed": passed, "rounds": _ROUNDS.value, "seconds": _SECONDS.value, "rows": rows}


def _in_process(model: Path) -> list[Way]:
    with quiet_start():
        from xling_tf.sentence_encoder import SentenceEncoder

    encode = SentenceEncoder.load(model).encode
    for sentences in _SENTENCES.value:  # The first calls take longer.
        in_process.call(encode, batches(sentences), 1, 0.5)
    return [
        Way(
            "in process",
            threads,
            sentences,
            partial(in_process.call, encode, batches(sentences), threads),
        )
        for sentences in _SENTENCES.value
        for threads in (1, 8)
    ]


def _soak(model: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder)
        put_version(model, versions, 1)
        with ServerProcess(_command(model.name, versions)) as server:
            server.wait_until_ready()
            figures = soak(
                server, model.name, model, versions, _SOAK.value * 60, partial(logging.info, "%s")
            )
    print(json.dumps(figures, indent=2))
    return figures


def _faults(model: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder)
        put_version(model, versions, 1)
        stage = Stage(tuple(_command(model.name, versions)), model.name, model, versions)
        findings = []
        for finding in run_faults(stage, _SECONDS.value):
            findings.append({"passed": finding.passed, **asdict(finding)})
            print(f"{'passed' if finding.passed else 'FAILED'}  {finding.name}: {finding.seen}")
    return {"passed": all(finding["passed"] for finding in findings), "findings": findings}


def _command(name: str, path: Path) -> Sequence[str]:
    return (sys.executable, _SERVER, f"--model={name}={path}", "--port=0")


def _write(path: Path, figures: dict[str, Any]) -> None:
    """Writes figures; where folders lie is nobody's business."""
    about = provenance()
    about["command"] = about["command"].replace(_MODEL.value, Path(_MODEL.value).name)
    figures = {
        "model": Path(_MODEL.value).name,
        "load_average": os.getloadavg(),
        **figures,
        **about,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
