"""Checkpoints that are whole or absent, and that fall back when one is damaged."""

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from xling_tf.errors import UserError
from xling_tf.files import read_json, replacing_folder

_KEPT = 2
_VALUES = "values"
_STATE = "state.json"

# What reading one that is damaged raises.
_UNREADABLE = (OSError, ValueError, AssertionError, LookupError, tf.errors.OpError)


class CheckpointError(UserError):
    """A checkpoint cannot be written; those before are as they were."""


class Checkpoints:
    """The checkpoints of one run: a folder for each, named by the step.

    A folder appears by a rename once everything in it is written, so a kill leaves no half checkpoint.
    Variables are saved and restored by their order.
    """

    def __init__(self, folder: Path, variables: Sequence[tf.Variable]) -> None:
        self._folder = folder
        self.variables = list(variables)
        self._checkpoint = tf.train.Checkpoint(values=self.variables)

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Writes the variables and `state`, and removes all but the newest two checkpoints."""
        path = self._folder / f"step-{step:09d}"
        try:
            with replacing_folder(path) as temporary:
                self._checkpoint.write(str(temporary / _VALUES))
                (temporary / _STATE).write_text(json.dumps(state), encoding="utf-8")
        except (OSError, tf.errors.OpError) as error:
            newest = next(iter(self._newest_first()), None)
            raise CheckpointError(
                f"checkpoint {path} cannot be written ({_reason(error)}); "
                f"the newest is {newest.name if newest else 'still none'}; make room on that disk"
            ) from error
        for old in self._newest_first()[_KEPT:]:
            shutil.rmtree(old)
        return path

    def restore(self) -> dict[str, Any] | None:
        """Restores the newest checkpoint that can be read; returns its state, None without any.

        A damaged one is set aside under a name that ends in ".damaged", with a warning.
        """
        for leftover in self._folder.glob(".step-*.tmp"):
            shutil.rmtree(leftover)
        for path in self._newest_first():
            try:
                return self._read(path)
            except _UNREADABLE as error:
                damaged = path.with_name(path.name + ".damaged")
                shutil.rmtree(damaged, ignore_errors=True)
                path.rename(damaged)
                logging.warning(
                    "checkpoint %s cannot be read (%s); it is now %s, and the one before is used",
                    *(path, _reason(error), damaged.name),
                )
        return None

    def read_newest(self) -> dict[str, Any] | None:
        """As `restore`, of a folder that is another run's: nothing in it is removed or renamed."""
        for path in self._newest_first():
            with suppress(*_UNREADABLE):
                return self._read(path)
        return None

    def forget_after(self, step: int) -> dict[str, Any] | None:
        """Removes the checkpoints after `step`; returns the state of the newest one left, if any."""
        for path in self._newest_first():
            if _step(path) > step:
                shutil.rmtree(path)
                continue
            with suppress(*_UNREADABLE):
                return self._state(path)
        return None

    def _read(self, path: Path) -> dict[str, Any]:
        state = self._state(path)
        status = self._checkpoint.read(str(path / _VALUES))
        status.assert_existing_objects_matched()
        status.expect_partial()  # no warning of what else is there, as an optimizer's state
        return state

    def _state(self, path: Path) -> dict[str, Any]:
        state = read_json(path / _STATE)
        if not isinstance(state, dict) or state.get("step", _step(path)) != _step(path):
            raise ValueError(f"{_STATE} is not that of step {_step(path)}")
        return state

    def _newest_first(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        names = [p for p in self._folder.iterdir() if p.name.removeprefix("step-").isdigit()]
        return sorted(names, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
