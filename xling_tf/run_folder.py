"""The folder of a run: what it was asked to do and what it has decided, kept for the restart."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.overrides import from_json, to_json

# What a restart may change: the budget and the housekeeping, not what the checkpoints depend on.
_FREE = (
    "description",
    "training.minutes",
    "training.steps",
    "training.checkpoint_minutes",
    "training.dev_batches",
)


class RunFolder:
    """Keeps a run's request, resolved config, vocabulary and the data it was started with.

    Args:
        path: `runs/en-es`, say.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def require_same(self, config: ExperimentConfig, data: Mapping[str, Any]) -> None:
        """Makes sure that a started run is continued with what it was started with.

        Args:
            config: The config asked for.
            data: Counts of the corpora.

        Raises:
            UserError: The folder holds a run of another config or other data.
        """
        if not (self.path / "request.json").exists():
            return
        saved = json.loads((self.path / "request.json").read_text(encoding="utf-8"))
        changed = list(_differences(saved, {"config": dataclasses.asdict(config), "data": data}))
        if changed:
            name, old, new = changed[0]
            raise UserError(
                f"{self.path} holds a run with {name}={old}, not {new}: continue it with what it "
                "was started with, or start another with --run_dir or by deleting this folder"
            )

    def resolved(self, request: ExperimentConfig) -> tuple[ExperimentConfig, list[str]] | None:
        """Returns the resolved config, with the budget of `request`, and the vocabulary.

        None where no run was started.
        """
        if not (self.path / "request.json").exists():
            return None
        config = from_json(
            ExperimentConfig, (self.path / "config.json").read_text(encoding="utf-8")
        )
        vocabulary = (self.path / "vocabulary.txt").read_text(encoding="utf-8")
        training = dataclasses.replace(request.training, precision=config.training.precision)
        return dataclasses.replace(config, training=training), vocabulary.split("\n")[:-1]

    def start(
        self,
        request: ExperimentConfig,
        resolved: ExperimentConfig,
        vocabulary: list[str],
        data: Mapping[str, Any],
    ) -> None:
        """Writes everything down; the request comes last and marks the run as started."""
        asked = {"config": dataclasses.asdict(request), "data": data}
        self.write("config.json", to_json(resolved))
        self.write("vocabulary.txt", "".join(f"{word}\n" for word in vocabulary))
        self.write("request.json", json.dumps(asked, indent=2) + "\n")

    def write(self, name: str, text: str) -> None:
        """Writes a file of the run whole or not at all."""
        with replacing(self.path / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _differences(
    saved: Mapping[str, Any], asked: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for key in [*saved, *(key for key in asked if key not in saved)]:
        name, old, new = f"{prefix}{key}", saved.get(key), asked.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{name}.")
        elif name.removeprefix("config.") not in _FREE and old != json.loads(json.dumps(new)):
            yield name.removeprefix("config."), old, new
