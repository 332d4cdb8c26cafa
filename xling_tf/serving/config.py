"""What a server is told: its models, where they lie, and its limits."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xling_tf.errors import UserError


@dataclass(frozen=True)
class ModelConfig:
    """A model that is served.

    Attributes:
        name: In the paths of requests.
        path: An exported model, or a folder of such named by their versions.
        labels: Names of versions, which stay loaded beside the largest one.
    """

    name: str
    path: Path
    labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a client may take of a server.

    Attributes:
        body_bytes: Of a request.
        request_seconds: From a request's last byte to its answer.
        client_seconds: For a client to send its headers, to send its body, to read its answer, and
            to send another request.
        connections: At the same time.
    """

    body_bytes: int = 32 * 2**20
    request_seconds: float = 30.0
    client_seconds: float = 30.0
    connections: int = 1000


def parse_models(models: Sequence[str], labels: Sequence[str]) -> list[ModelConfig]:
    """Reads the models from a command line.

    Args:
        models: "name=path" each.
        labels: "name/label=version" each.

    Raises:
        UserError: One of them is not understood, or its path does not exist.

    Example:
        >>> parse_models(["en-es=."], ["en-es/stable=3"])
        [ModelConfig(name='en-es', path=PosixPath('.'), labels={'stable': 3})]
    """
    paths: dict[str, Path] = {}
    for told in models:
        name, _, path = told.partition("=")
        if not re.fullmatch(r"[^/:\s]+", name) or not path:
            raise UserError(
                f"--model is expected as name=path, with no '/', ':' or space in the name, got {told!r}"
            )
        if name in paths:
            raise UserError(f"--model is expected once a name, got {name!r} twice; rename one")
        if not Path(path).exists():
            raise UserError(
                f"--model {told} is expected to name an exported model or a folder of its versions, "
                "but there is no such path; give the --output of a training"
            )
        paths[name] = Path(path)
    if not paths:
        raise UserError("--model name=path is expected at least once, got none")
    by_model = _parse_labels(labels, paths)
    return [ModelConfig(name, path, by_model[name]) for name, path in paths.items()]


def _parse_labels(labels: Sequence[str], paths: Mapping[str, Path]) -> dict[str, dict[str, int]]:
    by_model: dict[str, dict[str, int]] = {name: {} for name in paths}
    for told in labels:
        match = re.fullmatch(r"([^/:\s]+)/(.+)=([0-9]{1,18})", told)
        if match is None or match[1] not in by_model:
            raise UserError(
                "--label is expected as model/label=version, where --model names the model "
                f"({', '.join(by_model)}), got {told!r}"
            )
        by_model[match[1]][match[2]] = int(match[3])
    return by_model
