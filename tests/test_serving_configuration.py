"""The files beside the served models: what TensorFlow Serving reads, and the user's once made."""

import shlex
from pathlib import Path

import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from xling_tf.errors import UserError
from xling_tf.serving_layout.configuration import (
    IMAGE,
    configure,
    docker_command,
    find_pinned_versions,
    require_configurable,
)

FILES = ["batching.config", "compose.yaml", "models.config", "monitoring.config"]
MINE = """\
# Mine. {
model_config_list: {
  config: <name: 'other' base_path: "gs://bucket/other" model_platform: "tensorflow"> # }
  config {
    name: "pinned"  # see the ticket
    base_path: "/models/pinned"
    model_version_policy { specific { versions: 3 versions: 5 } }
    version_labels { key: "stable" value: 3 } }
}
# The end. }
"""


def add_model(serving: Path, name: str) -> None:
    """A version of a model, as far as configuration looks at it."""
    (serving / name / "1").mkdir(parents=True)
    (serving / name / "1" / "saved_model.pb").write_text("")


def read_models(serving: Path) -> dict[str, str]:
    config = text_format.Parse((serving / "models.config").read_text(), ModelServerConfig())
    return {model.name: model.base_path for model in config.model_config_list.config}


@pytest.fixture
def serving(tmp_path: Path) -> Path:
    add_model(tmp_path, "en-es")
    return tmp_path


def test_all_files_are_made_and_name_all_models(serving: Path) -> None:
    add_model(serving, "qa")
    written = configure(serving, "en-es")
    assert sorted(path.name for path in written) == FILES
    assert read_models(serving) == {"en-es": "/models/en-es", "qa": "/models/qa"}
    assert find_pinned_versions(serving, "en-es") == []


def test_nothing_is_written_twice(serving: Path) -> None:
    configure(serving, "en-es")
    before = {name: (serving / name).stat().st_mtime_ns for name in FILES}
    assert configure(serving, "en-es") == []
    assert {name: (serving / name).stat().st_mtime_ns for name in FILES} == before


def test_a_model_is_added_and_the_user_s_edits_stay(serving: Path) -> None:
    edited = {name: f"# {name}, edited\n" for name in FILES} | {"models.config": MINE}
    for name, text in edited.items():
        (serving / name).write_text(text)
    assert configure(serving, "pinned") == []
    assert configure(serving, "en-es") == [serving / "models.config"]
    for name in FILES:
        # The lines of the user, in their order; those of the model among them.
        lines = iter((serving / name).read_text().splitlines())
        assert all(line in lines for line in edited[name].splitlines()), name
    assert read_models(serving) == {
        "other": "gs://bucket/other",
        "pinned": "/models/pinned",
        "en-es": "/models/en-es",
    }
    assert find_pinned_versions(serving, "pinned") == [3, 5]
    assert find_pinned_versions(serving, "en-es") == []


@pytest.mark.parametrize(
    "text", ["", "# none yet\n", "model_config_list {}", "model_config_list: <\n>\n"]
)
def test_a_list_without_models_gets_its_first(text: str, serving: Path) -> None:
    (serving / "models.config").write_text(text)
    configure(serving, "en-es")
    assert read_models(serving) == {"en-es": "/models/en-es"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model_config_list {", "Expected"),
        ("models { }", 'no field named "models"'),
        ("model_config_list { config { nam: 'x' } }", "1:30"),
        ('custom_model_config { type_url: "x" }', "to which en-es would be added"),
    ],
)
def test_a_file_that_nothing_can_be_added_to_is_refused(
    text: str, said: str, serving: Path
) -> None:
    (serving / "models.config").write_text(text)
    with pytest.raises(UserError, match=r"models\.config .*") as caught:
        require_configurable(serving, "en-es")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (serving / "models.config").read_text() == text


def test_no_file_is_configurable(tmp_path: Path) -> None:
    require_configurable(tmp_path / "missing", "en-es")


def message(name: str, fields: dict[str, tuple[int, str]]) -> object:
    """A message that tensorflow-serving-api leaves out, by its fields' numbers and types."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    kinds = {"bool": 8, "string": 9}
    inner = file.message_type.add(name="PrometheusConfig")
    inner.field.add(name="enable", number=1, type=kinds["bool"], label=1)
    inner.field.add(name="path", number=2, type=kinds["string"], label=1)
    outer = file.message_type.add(name=name)
    for field, (number, kind) in fields.items():
        outer.field.add(name=field, number=number, type=11, type_name=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()


def test_batching_has_the_parameters_of_tensorflow_serving(serving: Path) -> None:
    configure(serving, "en-es")
    # BatchingParameters in session_bundle_config.proto.
    numbers = {
        "max_batch_size": 1,
        "batch_timeout_micros": 2,
        "max_enqueued_batches": 3,
        "num_batch_threads": 4,
    }
    value = ".google.protobuf.Int64Value"
    empty = message("BatchingParameters", {name: (n, value) for name, n in numbers.items()})
    parameters = text_format.Parse((serving / "batching.config").read_text(), empty)
    assert parameters.max_batch_size.value == 1000
    assert parameters.batch_timeout_micros.value == 0
    assert parameters.max_enqueued_batches.value == 10
    assert not parameters.HasField("num_batch_threads")


def test_monitoring_is_on(serving: Path) -> None:
    configure(serving, "en-es")
    # MonitoringConfig in monitoring_config.proto.
    empty = message("MonitoringConfig", {"prometheus_config": (1, ".PrometheusConfig")})
    config = text_format.Parse((serving / "monitoring.config").read_text(), empty)
    assert config.prometheus_config.enable
    assert config.prometheus_config.path == "/monitoring/prometheus/metrics"


def test_compose_and_the_docker_line_start_the_same_server(serving: Path) -> None:
    configure(serving, "en-es")
    (service,) = yaml.safe_load((serving / "compose.yaml").read_text())["services"].values()
    command = shlex.split(docker_command(serving))
    image = command.index(IMAGE)
    assert service["image"] == IMAGE
    assert service["command"] == command[image + 1 :]
    assert command[:image] == [
        *["docker", "run", "--rm", "-p", *service["ports"]],
        *["-v", service["volumes"][0].replace(".", str(serving.resolve()), 1)],
    ]
    # Whatever the flags name lies in the folder, which is /models there.
    named = [flag.partition("=/models/")[2] for flag in service["command"] if "=/models/" in flag]
    assert sorted(named) == ["batching.config", "models.config", "monitoring.config"]
    assert all((serving / name).is_file() for name in named)
