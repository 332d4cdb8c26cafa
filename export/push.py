"""Shares an exported model: packs an archive with a checksum, or uploads it to Hugging Face."""

import hashlib
import tarfile
from pathlib import Path
from typing import Any

from xling_tf.errors import UserError, library
from xling_tf.files import read_json, replacing
from xling_tf.savedmodel.saved_models import HUGGING_FACE, one_line, require_saved_model

_TASK = "sentence-similarity"


def archive(model: Path, output: Path) -> Path:
    """Packs a model as TF Hub does, with a file for `sha256sum --check` beside the archive.

    Args:
        model: Folder of an exported model.
        output: The archive, .tar.gz, which `xling_tf.load` and, from a web server, `hub.load` take.

    Returns:
        The file with the checksum.

    Raises:
        UserError: `model` is not an exported model, or `output` has another ending.
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
    """Uploads a model to Hugging Face in one commit; the card gets the languages and scores as metadata.

    A missing repository is created as public: create it first if it should be private. Log in with
    `hf auth login` or set `HF_TOKEN`.

    Args:
        model: Folder of an exported model.
        name: `hf://owner/name`.

    Returns:
        The address of the commit.

    Raises:
        UserError: `model` is not an exported model, or the upload is refused.
    """
    require_saved_model(model)
    if not name.startswith(HUGGING_FACE):
        raise UserError(f"--push expects {HUGGING_FACE}owner/name, got {name!r}")
    repository = name.removeprefix(HUGGING_FACE)
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
    # Validation raises ValueErrors, files and answers OSErrors, the network httpx's errors.
    except (OSError, ValueError, errors.HTTPError) as error:
        raise UserError(
            f"{repository} at Hugging Face refuses the model: {one_line(error)}; log in with `hf auth login`"
        ) from error
    return str(commit.commit_url)


def _card(hub: Any, model: Path, name: str) -> str:
    """The model's card with the metadata for Hugging Face's search."""
    card, config, results = (model / file for file in ("README.md", "config.json", "results.json"))
    info = read_json(config).get("info", {}) if config.is_file() else {}
    scores = read_json(results)["scores"] if results.is_file() else {}
    metadata = hub.ModelCardData(
        model_name=name,
        language=info.get("languages"),
        library_name="tensorflow",
        pipeline_tag=_TASK,
        tags=["tensorflow", "tf-hub", "cross-lingual", "xling_tf"],
        eval_results=[
            hub.EvalResult(_TASK, dataset, dataset, metric, value)
            for dataset, values in scores.items()
            for metric, value in values.items()
        ],
    )
    return f"---\n{metadata.to_yaml()}\n---\n\n{card.read_text('utf-8') if card.is_file() else ''}"
