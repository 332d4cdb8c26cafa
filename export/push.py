"""Shares an exported model: packs an archive with a checksum, or uploads it to Hugging Face."""

import hashlib
import tarfile
from pathlib import Path

from xling_tf.errors import UserError, as_user_error, library
from xling_tf.files import replacing, require_writable_file
from xling_tf.savedmodel.saved_models import HUGGING_FACE, require_saved_model


def archive(model: Path, output: Path) -> Path:
    """Packs a model as TF Hub does; `xling_tf.load` and, from a web server, `hub.load` take the archive.

    Returns a file beside it for `sha256sum --check`.
    """
    require_saved_model(model)
    if not output.name.endswith(".tar.gz"):
        raise UserError(f"--archive must end in .tar.gz, got {output}")
    require_writable_file(output, "give another --archive")
    # Files of Hugging Face's cache are links.
    with replacing(output) as temporary, tarfile.open(temporary, "w:gz", dereference=True) as file:
        file.add(model, arcname=".")
    with output.open("rb") as packed:
        digest = hashlib.file_digest(packed, "sha256").hexdigest()
    with replacing(checksum := output.with_name(f"{output.name}.sha256")) as temporary:
        temporary.write_text(f"{digest}  {output.name}\n", encoding="utf-8")
    return checksum


def push(model: Path, name: str) -> str:
    """Uploads a model to Hugging Face, as `hf://owner/name`, in one commit, and returns its address.

    A missing repository is created as public: create it first if it should be private. Log in with
    `hf auth login` or set `HF_TOKEN`.
    """
    require_saved_model(model)
    if not name.startswith(HUGGING_FACE):
        raise UserError(f"--push expects {HUGGING_FACE}owner/name, got {name!r}")
    repository = name.removeprefix(HUGGING_FACE)
    hub = library("huggingface_hub", "huggingface_hub", "sharing")
    errors = library("huggingface_hub.errors", "huggingface_hub", "sharing")
    message = f"{repository} at Hugging Face rejects the model: {{error}}; log in with `hf auth login`"
    # Validation raises ValueErrors, files and answers OSErrors, the network httpx's errors.
    with as_user_error(message, OSError, ValueError, errors.HTTPError):
        hub.create_repo(repository, exist_ok=True)
        title = f"{model.resolve().name} of xling_tf"
        # Leaves out .cache, which a download by `hf` has.
        commit = hub.upload_folder(repo_id=repository, folder_path=model, commit_message=title)
    return str(commit.commit_url)
