"""What starts TensorFlow Serving on a serving folder: its configuration files, compose.yaml, a command.

They are of the person who runs the server: each is written where it is missing and never replaced.
Only a model that `models.config` does not name yet is added to it, with everything else kept.

Sources: TensorFlow Serving's g3doc/serving_config.md and config/model_server_config.proto (models),
config/monitoring_config.proto, and for batching servables/tensorflow/session_bundle_config.proto and
batching/README.md. The messages of the last two are not in tensorflow-serving-api.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.serving_layout.protos import serving_proto
from xling_tf.serving_layout.versions import find_models

# Of the TensorFlow that exports: an older server need not know all operations. Its model server is
# linked with those of tensorflow-text, SentencePiece's among them (SUPPORTED_TENSORFLOW_OPS in
# tensorflow_serving/model_servers/BUILD).
IMAGE = "tensorflow/serving:2.21.0"

_MODELS = "models.config"
# Where the serving folder is in the container.
_ROOT = "/models"
_FLAGS = (
    f"--model_config_file={_ROOT}/{_MODELS}",
    # A model that is added is served without a restart.
    "--model_config_file_poll_wait_seconds=10",
    f"--monitoring_config_file={_ROOT}/monitoring.config",
    "--enable_batching",
    f"--batching_parameters_file={_ROOT}/batching.config",
)
_MODELS_HEAD = """\
# The models that TensorFlow Serving serves, each in its largest version. To pin some, and to name them
# for clients (--allow_version_labels_for_unavailable_models is needed for that), add to a model's config
#
#     model_version_policy { specific { versions: 1 versions: 2 } }
#     version_labels { key: "stable" value: 1 }
#     version_labels { key: "canary" value: 2 }
#
# A base_path is a path in the container. export/main.py adds new models and leaves all else as it is.
"""
_MODEL = """\
  config {{
    name: "{name}"
    base_path: "{root}/{name}"
    model_platform: "tensorflow"
  }}
"""
_BATCHING = """\
# How TensorFlow Serving joins requests that wait at the same time; start it with --enable_batching.
# export/serve.py has the same defaults.
#
# The texts of a batch, and the most that a single request may have. The models encode a large batch in
# parts, sorted by length, so there is no reason for a small one, nor for allowed_batch_sizes, which
# would encode padding.
max_batch_size { value: 1000 }
# How long a request waits for others. 0 on CPUs: batches form while all threads are busy. Try 1000 to
# 10000 on a GPU.
batch_timeout_micros { value: 0 }
# Beyond as many batches in the queue, requests are refused (UNAVAILABLE).
max_enqueued_batches { value: 10 }
# num_batch_threads { value: 4 } would be the batches at once: without it, one for each CPU.
"""
_MONITORING = """\
# Metrics for Prometheus, at the port of the REST API.
prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }
"""
_COMPOSE = """\
# docker compose --file compose.yaml up
services:
  tensorflow-serving:
    image: {image}
    # This machine alone; others should come through a proxy that knows who they are.
    ports: ["127.0.0.1:8501:8501"]
    volumes: [".:{root}:ro"]
    command:
{command}
    restart: unless-stopped
"""


def configure(serving: Path, name: str) -> list[Path]:
    """Writes the configuration files that are missing, and adds a model to those served.

    Args:
        serving: The serving folder, with a version of the model.
        name: The model.

    Returns:
        The files written or changed.

    Raises:
        UserError: `models.config` is none, or of a form that nothing can be added to.
    """
    command = "\n".join(f"      - {flag}" for flag in _FLAGS)
    texts = {
        _MODELS: _with_model(serving, name),
        "batching.config": _BATCHING,
        "monitoring.config": _MONITORING,
        "compose.yaml": _COMPOSE.format(image=IMAGE, root=_ROOT, command=command),
    }
    paths = [serving / file for file in texts]
    written = [
        path
        for path in paths
        if not path.exists() or (path.name == _MODELS and _read(path) != texts[_MODELS])
    ]
    for path in written:
        with replacing(path) as temporary:
            temporary.write_text(texts[path.name], encoding="utf-8")
    return written


def require_configurable(serving: Path, name: str) -> None:
    """Proves that `configure` will be able to add the model, before its version is written.

    Args:
        serving: The serving folder, which may be missing.
        name: The model.

    Raises:
        UserError: As `configure` does.
    """
    if (serving / _MODELS).exists():
        _with_model(serving, name)


def find_pinned_versions(serving: Path, name: str) -> list[int]:
    """The versions that `models.config` says are to be served; none where the largest is.

    Args:
        serving: A configured serving folder.
        name: A model in it.
    """
    listed = _parse(serving / _MODELS, _read(serving / _MODELS)).model_config_list.config
    return [
        version
        for model in listed
        if model.name == name
        for version in model.model_version_policy.specific.versions
    ]


def docker_command(serving: Path) -> str:
    """The line that serves the folder by TensorFlow Serving's image, on this machine's port 8501.

    Example:
        >>> docker_command(Path("/srv/models")).split(" tensorflow/")[0]
        'docker run --rm -p 127.0.0.1:8501:8501 -v /srv/models:/models:ro'
    """
    volume = f"{serving.resolve()}:{_ROOT}:ro"
    arguments = ["run", "--rm", "-p", "127.0.0.1:8501:8501", "-v", volume, IMAGE, *_FLAGS]
    return shlex.join(["docker", *arguments])


def _with_model(serving: Path, name: str) -> str:
    """The text of `models.config` with the model in it."""
    path = serving / _MODELS
    if not path.exists():
        blocks = "".join(_MODEL.format(name=each, root=_ROOT) for each in find_models(serving))
        return f"{_MODELS_HEAD}model_config_list {{\n{blocks}}}\n"
    text = _read(path)
    wanted = _parse(path, text)
    if name in [model.name for model in wanted.model_config_list.config]:
        return text
    block = _MODEL.format(name=name, root=_ROOT)
    addition = text_format.Parse(f"model_config_list {{\n{block}}}", type(wanted)())
    wanted.MergeFrom(addition)
    for changed in _insertions(text, block):
        # A brace may be one of a comment, or of another model: what is read back decides.
        if _parses_to(changed, wanted):
            return changed
    raise UserError(
        f"{path} is expected to have a model_config_list, to which {name} would be added, but it has "
        f'none; add one with name: "{name}" base_path: "{_ROOT}/{name}", and start this again'
    )


def _insertions(text: str, block: str) -> Iterator[str]:
    """The text with the block before each closing brace, from the last one on, and as a list of its own."""
    for index in range(len(text) - 1, -1, -1):
        if text[index] in "}>":
            head = text[:index].rstrip(" ")
            yield f"{head}{'' if head.endswith(chr(10)) else chr(10)}{block}{text[index:]}"
    yield f"{text}model_config_list {{\n{block}}}\n"


def _parses_to(text: str, message: Any) -> bool:
    try:
        return bool(text_format.Parse(text, type(message)()) == message)
    except text_format.ParseError:
        return False


def _parse(path: Path, text: str) -> Any:
    config = serving_proto("config.model_server_config").ModelServerConfig()
    try:
        return text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise UserError(
            f"{path} must be TensorFlow Serving's ModelServerConfig in text form, but at {error}; "
            "mend it, or move it away to have it made anew"
        ) from error


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
