"""An exported model for others: an archive with its checksum, or uploaded to Hugging Face or Kaggle."""

import hashlib
import tarfile
from pathlib import Path
from typing import Any

from xling_tf.errors import UserError, library
from xling_tf.files import read_json, replacing
from xling_tf.hub.saved_models import HUGGING_FACE, one_line, require_saved_model

_KAGGLE = "kaggle:"
_TASK = "sentence-similarity"


def archive(model: Path, output: Path) -> Path:
    """Packs a model as TF Hub does, and writes what `sha256sum --check` reads beside it.

    Args:
        model: Folder of an exported model.
        output: Archive of its content, which `xling_tf.load` and, from a web server, `hub.load` take.

    Returns:
        The file of the checksum.

    Raises:
        UserError: `model` is none, or `output` has another ending.
    """
    require_saved_model(model)
    if not output.name.endswith(".tar.gz"):
        raise UserError(f"--archive must end in .tar.gz, got {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as temporary, tarfile.open(temporary, "w:gz") as file:
        file.add(model, arcname=".")
    with output.open("rb") as packed:
        digest = hashlib.file_digest(packed, "sha256").hexdigest()
    with replacing(checksum := output.with_name(f"{output.name}.sha256")) as temporary:
        temporary.write_text(f"{digest}  {output.name}\n", encoding="utf-8")
    return checksum


def push(model: Path, name: str) -> str:
    """Uploads a model to Hugging Face or Kaggle.

    At Hugging Face it is one commit, the card with the languages and scores as metadata, by the account of
    `hf auth login` or the variable `HF_TOKEN`. A repository that is not there yet is made; one that should
    be private is made so before. At Kaggle it is a version of the model, which is made private where it is
    not there yet, by the account of `~/.kaggle` or the variable `KAGGLE_API_TOKEN`.

    Args:
        model: Folder of an exported model.
        name: `hf://owner/name` or `kaggle:owner/model/tensorFlow2/variation`.

    Returns:
        The address of the commit, or of the model at Kaggle.

    Raises:
        UserError: `model` is none, or it is refused there.
    """
    require_saved_model(model)
    if name.startswith(HUGGING_FACE):
        return _push_to_hugging_face(model, name.removeprefix(HUGGING_FACE))
    if name.startswith(_KAGGLE):
        return _push_to_kaggle(model, name.removeprefix(_KAGGLE))
    raise UserError(
        f"--push expects {HUGGING_FACE}owner/name or {_KAGGLE}owner/model/tensorFlow2/variation, got {name!r}"
    )


def _push_to_hugging_face(model: Path, repository: str) -> str:
    hub = library("huggingface_hub", "huggingface_hub", "sharing")
    errors = library("huggingface_hub.errors", "huggingface_hub", "sharing")
    content = {path.relative_to(model).as_posix(): path for path in model.rglob("*") if path.is_file()}
    card = _card(hub, model, repository.rpartition("/")[2])
    files = {**content, "README.md": card.encode()}
    try:
        hub.create_repo(repository, exist_ok=True)
        additions = [hub.CommitOperationAdd(path, file) for path, file in files.items()]
        commit = hub.create_commit(
            repository, additions, commit_message=f"{model.resolve().name} of xling_tf"
        )
    # Validation raises values' errors, files and answers the system's, and the network httpx's own.
    except (OSError, ValueError, errors.HTTPError) as error:
        raise UserError(
            f"{repository} at Hugging Face must be yours to write, but cannot be: {one_line(error)}; "
            "correct the name, or log in with `hf auth login`"
        ) from error
    return str(commit.commit_url)


def _push_to_kaggle(model: Path, handle: str) -> str:
    kagglehub = library("kagglehub", "kagglehub", "sharing")
    errors = library("kagglehub.exceptions", "kagglehub", "sharing")
    try:
        kagglehub.model_upload(handle, str(model), version_notes=f"{model.resolve().name} of xling_tf")
    # A handle of another form is a value's error; files and answers of the network are the system's.
    except (OSError, ValueError, errors.BackendError, errors.CredentialError) as error:
        raise UserError(
            f"{handle} at Kaggle must be owner/model/tensorFlow2/variation, yours to write, but cannot be: "
            f"{one_line(error)}; correct it, or save a token as kaggle.com/settings says"
        ) from error
    return f"https://www.kaggle.com/models/{handle}"


def _card(hub: Any, model: Path, name: str) -> str:
    """The model's card, with the metadata that Hugging Face searches by."""
    card, config, results = (model / file for file in ("README.md", "config.json", "results.json"))
    data = read_json(config).get("data", {}) if config.is_file() else {}
    scores = read_json(results)["scores"] if results.is_file() else {}
    metadata = hub.ModelCardData(
        model_name=name,
        language=[data["source"], *data["targets"]] if data else None,
        library_name="tensorflow",
        pipeline_tag=_TASK,
        tags=["tensorflow", "tf-hub", "cross-lingual", "xling_tf"],
        eval_results=[
            hub.EvalResult(
                task_type=_TASK,
                dataset_type=dataset,
                dataset_name=dataset,
                metric_type=metric,
                metric_value=value,
            )
            for dataset, values in scores.items()
            for metric, value in values.items()
        ],
    )
    return f"---\n{metadata.to_yaml()}\n---\n\n{card.read_text('utf-8') if card.is_file() else ''}"
