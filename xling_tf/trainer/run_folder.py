"""The run folder: the request and the decisions of a run, saved for restarts."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError, as_user_error
from xling_tf.files import read_json, replacing
from xling_tf.settings import differences, to_dict
from xling_tf.trainer.resolution import Resolved

# Settings that a restart may change, because the checkpoints do not depend on them.
_CHANGEABLE = ("description", "training.minutes", "training.steps", "training.checkpoint_minutes")

_REQUEST = "request.json"
_FORMAT = 2  # of the request and the checkpoints; raised when older ones cannot be continued


class RunFolder:
    """Saves the request of a run, its decisions, and facts that identify its data."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def require_same(self, config: ExperimentConfig, data: Mapping[str, Any]) -> None:
        """Raises a `UserError` if the folder holds a run with another config or other data."""
        saved, request = self._request(), {"config": to_dict(config), "data": data}
        if saved is None:
            return
        for name, old, new in differences({part: saved[part] for part in request}, request):
            if name not in _CHANGEABLE:
                raise UserError(
                    f"{self.path} holds a run with {name}={old}, not {new}; continue it with the "
                    "settings and data that it began with, or start another run in another "
                    "`run_dir`, or after deleting this folder"
                )

    def resolved(self) -> Resolved | None:
        """Returns the run's decisions, None if not started; damaged files raise a `UserError`."""
        request = self._request()
        if request is None:
            return None
        files = {}
        for name, digest in request["files"].items():
            with self._damage_of(name):
                files[name] = (self.path / name).read_bytes()
                if _digest(files[name]) != digest:
                    raise ValueError("its digest differs")
        with self._damage_of(_REQUEST):
            return Resolved(**request["resolved"], files=files)

    def begin(self, config: ExperimentConfig, data: Mapping[str, Any], resolved: Resolved) -> None:
        """Saves everything. The request is written last, and marks the run as started."""
        for name, content in resolved.files.items():
            self.write(name, content)
        request = {
            "format": _FORMAT,
            "config": to_dict(config),
            "data": data,
            "resolved": {"precision": resolved.precision, "model": resolved.model},
            "files": {name: _digest(content) for name, content in resolved.files.items()},
        }
        self.write(_REQUEST, json.dumps(request, indent=2) + "\n")

    def write(self, name: str, content: str | bytes) -> None:
        """Writes a file of the run, completely or not at all."""
        with replacing(self.path / name) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)

    def _request(self) -> dict[str, Any] | None:
        """Returns the content of the request file; None if no run was started in the folder."""
        if not (self.path / _REQUEST).exists():
            return None
        with self._damage_of(_REQUEST):
            request: dict[str, Any] = read_json(self.path / _REQUEST)
            if not all(
                isinstance(request[part], dict) for part in ("config", "data", "files", "resolved")
            ):
                raise ValueError("a part has another type")
        if request.get("format") != _FORMAT:
            raise UserError(
                f"{self.path} holds a run of another version of xling_tf, which this version "
                "cannot continue; start another run in another `run_dir`, or after deleting this "
                "folder"
            )
        return request

    def _damage_of(self, name: str) -> AbstractContextManager[None]:
        message = (
            f"{self.path / name} must be as the run wrote it, but is damaged ({{error}}); restore "
            "it from a backup, or start another run in another `run_dir`"
        )
        return as_user_error(message, OSError, LookupError, TypeError, ValueError)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
