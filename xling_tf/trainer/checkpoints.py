"""Checkpoints, written completely or not at all; if one is damaged, the one before it is used."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from xling_tf.errors import UserError, one_line
from xling_tf.files import file_digest, newest_first, read_json, replacing_folder
from xling_tf.model import WEIGHTS
from xling_tf.weights import arrays, assign_weights, read_weights, write_weights

MAX_CHECKPOINTS = 2
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"
_DIGITS = 32  # of a digest

# Errors of reading a damaged checkpoint. Other errors, such as missing rights, say nothing about
# its content.
_DAMAGE = (
    AttributeError,
    FileNotFoundError,
    NotADirectoryError,
    LookupError,
    TypeError,
    ValueError,
)


class CheckpointError(UserError):
    """A checkpoint cannot be written; the earlier ones are unchanged."""


class Checkpoints:
    """The checkpoints of a run: a folder for each, named after the step.

    A folder is renamed into place once it is complete, so that a killed process leaves no partial
    checkpoint. Weights and the optimizers' state are saved by name.
    """

    def __init__(
        self, folder: Path, weights: Mapping[str, tf.Variable], optimizer: Mapping[str, tf.Variable]
    ) -> None:
        self._folder = folder
        self._parts = {WEIGHTS: weights, _OPTIMIZER: optimizer}
        self.variables = [*weights.values(), *optimizer.values()]

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Writes a checkpoint with further JSON values, and removes all but the newest two."""
        path = self._folder / f"step-{step:09d}"
        try:
            with replacing_folder(path) as temporary:
                for name, variables in self._parts.items():
                    write_weights(temporary / name, arrays(variables))
                digests = {name: file_digest(temporary / name)[:_DIGITS] for name in self._parts}
                content = json.dumps({**state, "digests": digests})
                (temporary / _STATE).write_text(content, encoding="utf-8")
        except (OSError, tf.errors.OpError) as error:
            newest = next(iter(newest_first(self._folder)), None)
            raise CheckpointError(
                f"checkpoint {path} cannot be written ({one_line(error)}); "
                f"the newest is {newest.name if newest else 'still none'}; free space on that disk"
            ) from error
        for old in newest_first(self._folder)[MAX_CHECKPOINTS:]:
            shutil.rmtree(old, ignore_errors=True)  # the next call tries again

    def restore(self) -> dict[str, Any] | None:
        """Restores the newest whole checkpoint, and returns its state; renames damaged ones."""
        for leftover in self._folder.glob(".step-*.tmp"):
            shutil.rmtree(leftover)
        for path in newest_first(self._folder):
            try:
                state = _read_state(path)
            except _DAMAGE as error:
                damaged = path.with_name(path.name + ".damaged")
                shutil.rmtree(damaged, ignore_errors=True)
                path.rename(damaged)
                logging.warning(
                    "checkpoint %s cannot be read (%s); it is renamed to %s, and the one before it "
                    "is used",
                    path,
                    one_line(error),
                    damaged.name,
                )
                continue
            except OSError as error:
                raise UserError(
                    f"{path} cannot be opened ({error.strerror}); make it readable"
                ) from error
            values = {name: read_weights(path / name) for name in state.pop("digests")}
            # All files at once: nothing is assigned unless everything fits.
            assign_weights(_joined(self._parts), _joined(values), str(path))
            return state
        return None


def _read_state(path: Path) -> dict[str, Any]:
    """Returns a checkpoint's `state.json`, after comparing the digests of the other files."""
    state, step = read_json(path / _STATE), int(path.name.removeprefix("step-"))
    if not isinstance(state, dict) or state.get("step", step) != step:
        raise ValueError(f"{_STATE} is not from step {step}")
    for name, digest in state["digests"].items():
        if file_digest(path / name)[:_DIGITS] != digest:
            raise ValueError(f"{name} has changed since it was written")
    return state


def _joined(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        f"{file}: {name}": value for file, part in parts.items() for name, value in part.items()
    }
