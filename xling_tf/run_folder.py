"""The folder of a run: what it was asked to do and what it has decided, kept for the restart."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
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

_WORDS = "vocabulary.txt"
_PIECES = "sentencepiece.model"
_REQUEST = "request.json"
_TASKS = "tasks.json"


class RunFolder:
    """Keeps a run's request, resolved config, vocabulary and the data it was started with.

    The vocabulary is a list of words, or SentencePiece's serialized model.

    Args:
        path: `runs/en-es`, say.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_started(self) -> bool:
        """Whether a run was started there."""
        return (self.path / _REQUEST).exists()

    def require_same(self, config: ExperimentConfig, data: Mapping[str, Any]) -> None:
        """Makes sure that a started run is continued with what it was started with.

        Args:
            config: The config asked for.
            data: What tells the corpora from others.

        Raises:
            UserError: The folder holds a run of another config or other data.
        """
        if not self.is_started:
            return
        saved = json.loads((self.path / _REQUEST).read_text(encoding="utf-8"))
        asked = {"config": dataclasses.asdict(config), "data": data}
        changed = [change for change in differences(saved, asked) if change[0] not in _FREE]
        if changed:
            name, old, new = changed[0]
            raise UserError(
                f"{self.path} holds a run with {name}={old}, not {new}: continue it with what it "
                "was started with, or start another with --run_dir or by deleting this folder"
            )

    def resolved(
        self, request: ExperimentConfig
    ) -> tuple[ExperimentConfig, Sequence[str] | bytes] | None:
        """Returns the resolved config, with the budget of `request`, and the vocabulary.

        None where no run was started.
        """
        if not self.is_started:
            return None
        config = from_json(
            ExperimentConfig, (self.path / "config.json").read_text(encoding="utf-8")
        )
        training = dataclasses.replace(request.training, precision=config.training.precision)
        vocabulary = read_vocabulary(self.path, config.text.tokenizer)
        return dataclasses.replace(config, training=training), vocabulary

    def start(
        self,
        request: ExperimentConfig,
        resolved: ExperimentConfig,
        vocabulary: Sequence[str] | bytes,
        data: Mapping[str, Any],
    ) -> None:
        """Writes everything down; the request comes last and marks the run as started."""
        asked = {"config": dataclasses.asdict(request), "data": data}
        self.write("config.json", to_json(resolved))
        name, content = vocabulary_file(vocabulary)
        with replacing(self.path / name) as temporary:
            temporary.write_bytes(content)
        self.write(_REQUEST, json.dumps(asked, indent=2) + "\n")

    def write_tasks(self, names: Sequence[str]) -> None:
        """Writes down which tasks have examples; the checkpoints have their heads, in this order."""
        self.write(_TASKS, json.dumps(names, indent=1) + "\n")

    def tasks(self) -> list[str]:
        """Reads what `write_tasks` has written; no names where an older version has started the run."""
        path = self.path / _TASKS
        return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []

    def write(self, name: str, text: str) -> None:
        """Writes a file of the run whole or not at all."""
        with replacing(self.path / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def vocabulary_file(vocabulary: Sequence[str] | bytes) -> tuple[str, bytes]:
    r"""The name and content of the file that a vocabulary is kept in.

    Example:
        >>> vocabulary_file(["hola", "mundo"])
        ('vocabulary.txt', b'hola\nmundo\n')
    """
    if isinstance(vocabulary, bytes):
        return _PIECES, vocabulary
    return _WORDS, "".join(f"{word}\n" for word in vocabulary).encode()


def read_vocabulary(folder: Path, tokenizer: str) -> Sequence[str] | bytes:
    """Reads what `vocabulary_file` says, of a run or of an exported model's `training`.

    Args:
        folder: Where the file is.
        tokenizer: `text.tokenizer` of its config.
    """
    if tokenizer == "sentencepiece":
        return (folder / _PIECES).read_bytes()
    return (folder / _WORDS).read_text(encoding="utf-8").split("\n")[:-1]


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Lists what differs between two requests: dotted name, old value, new value.

    Example:
        >>> list(differences({"config": {"a": (1, 2), "b": 1}}, {"config": {"a": [1, 2], "b": 2}}))
        [('b', 1, 2)]
    """
    for key in [*old, *(key for key in new if key not in old)]:
        name, before, after = f"{prefix}{key}", old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{name}.")
        elif json.loads(json.dumps(before)) != json.loads(json.dumps(after)):
            yield name.removeprefix("config."), before, after
