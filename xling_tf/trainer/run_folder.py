"""The folder of a run: what it was asked to do and what it has decided, kept for the restart."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_tf.config import ExperimentConfig, from_json, to_json
from xling_tf.errors import UserError
from xling_tf.files import read_json, replacing
from xling_tf.text.preprocessor import Vocabulary, read_vocabulary, vocabulary_file

# What a restart may change: the budget and the housekeeping, not what the checkpoints depend on.
_FREE = (
    "description",
    "training.minutes",
    "training.steps",
    "training.checkpoint_minutes",
    "training.dev_batches",
)

_CONFIG = "config.json"
_REQUEST = "request.json"
_TASKS = "tasks.json"


class RunFolder:
    """Keeps a run's request, resolved config, vocabulary and what tells its data from other data."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_started(self) -> bool:
        """True if a run was started there."""
        return (self.path / _REQUEST).exists()

    def require_same(self, config: ExperimentConfig, data: Mapping[str, Any]) -> None:
        """Refuses to continue a started run with another config or other data."""
        if not self.is_started:
            return
        saved = self._request()
        asked = {"config": dataclasses.asdict(config), "data": data}
        for name, old, new in differences({part: saved[part] for part in asked}, asked):
            if name not in _FREE:
                raise UserError(
                    f"{self.path} holds a run with {name}={old}, not {new}: continue it with what it "
                    "was started with, or start another with --run_dir or by deleting this folder"
                )

    def resolved(self, request: ExperimentConfig) -> tuple[ExperimentConfig, Vocabulary] | None:
        """Reads the resolved config, with the budget of `request`, and the vocabulary, if there are any."""
        if not self.is_started:
            return None
        for name, digest in self._request()["files"].items():
            try:
                is_same = _digest((self.path / name).read_bytes()) == digest
            except OSError as error:
                raise self.damaged(name, error.strerror) from error
            if not is_same:
                raise self.damaged(name, "its digest is another one")
        config = from_json(ExperimentConfig, (self.path / _CONFIG).read_text(encoding="utf-8"))
        training = dataclasses.replace(request.training, precision=config.training.precision)
        vocabulary = read_vocabulary(self.path, config.text.tokenizer)
        return dataclasses.replace(config, training=training), vocabulary

    def start(
        self,
        request: ExperimentConfig,
        resolved: ExperimentConfig,
        vocabulary: Vocabulary,
        data: Mapping[str, Any],
    ) -> None:
        """Writes everything down; the request comes last and marks the run as started."""
        name, content = vocabulary_file(vocabulary)
        files = {_CONFIG: to_json(resolved).encode(), name: content}
        for name, content in files.items():
            self.write(name, content)
        asked = {
            "config": dataclasses.asdict(request),
            "data": data,
            "files": {name: _digest(content) for name, content in files.items()},
        }
        self.write(_REQUEST, json.dumps(asked, indent=2) + "\n")

    def write_tasks(self, names: Sequence[str]) -> None:
        """Writes down which tasks have examples; the checkpoints have their heads, in this order."""
        self.write(_TASKS, json.dumps(names, indent=1) + "\n")

    def tasks(self) -> list[str]:
        """Reads what `write_tasks` has written."""
        names = self._read(_TASKS)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.damaged(_TASKS, "it is no list of names")
        return names

    def write(self, name: str, content: str | bytes) -> None:
        """Writes a file of the run whole or not at all."""
        with replacing(self.path / name) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)

    def _request(self) -> dict[str, Any]:
        request = self._read(_REQUEST)
        parts = request if isinstance(request, dict) else {}
        if not all(isinstance(parts.get(part), dict) for part in ("config", "data", "files")):
            raise self.damaged(_REQUEST, "it has no config, data and files")
        return parts

    def _read(self, name: str) -> Any:
        try:
            return read_json(self.path / name)
        except (OSError, ValueError) as error:
            raise self.damaged(name, error) from error

    def damaged(self, name: str, came: object) -> UserError:
        """What is said of a file that cannot be read back."""
        return UserError(
            f"{self.path / name} must be as the run has written it, but is damaged ({came}); bring it back "
            "from a copy, or start another run with --run_dir"
        )


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Lists what differs between two requests: dotted name, old value, new value.

    Example:
        >>> list(differences({"config": {"a": (1, 2), "b": 1}}, {"config": {"a": [1, 2], "b": 2}}))
        [('b', 1, 2)]
    """
    for key in dict.fromkeys([*old, *new]):
        name, before, after = f"{prefix}{key}", old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{name}.")
        elif json.loads(json.dumps(before)) != json.loads(json.dumps(after)):
            yield name.removeprefix("config."), before, after


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
