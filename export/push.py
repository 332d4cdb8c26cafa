"""Shares an exported model: packs an archive with a checksum, or uploads it to Hugging Face.

    python export/push.py --model exported/en-es --output en-es.tar.gz
    python export/push.py --model exported/en-es --output hf://owner/en-es

For the second, log in with `hf auth login` or set HF_TOKEN. A missing repository is created as public: create
it first if it should be private.
"""

import hashlib
import sys
import tarfile
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.errors import UserError, as_user_error, library
from xling_tf.files import replacing, require_writable_file
from xling_tf.program import run
from xling_tf.savedmodel.saved_models import HUGGING_FACE, find_model, require_saved_model

_ARCHIVE = ".tar.gz"


def main() -> None:
    """Shares the model that the flags name, and prints how to load it."""
    model, output = find_model(flags.FLAGS.model), flags.FLAGS.output
    if output.startswith(HUGGING_FACE):
        where = push(model, output)
    elif output.endswith(_ARCHIVE):
        where = f"{output} and {archive(model, Path(output))}"
    else:
        raise UserError(f"--output must end in {_ARCHIVE} or be {HUGGING_FACE}owner/name, got {output}")
    print(f'{where}. Load it with\n\n    xling_tf.load("{output}")')


def archive(model: Path, output: Path) -> Path:
    """Packs a model as TF Hub does; `xling_tf.load` and, from a web server, `hub.load` take the archive.

    Returns a file beside it for `sha256sum --check`.
    """
    require_saved_model(model)
    require_writable_file(output, "give another --output")
    # Files of Hugging Face's cache are links.
    with replacing(output) as temporary, tarfile.open(temporary, "w:gz", dereference=True) as file:
        file.add(model, arcname=".")
    with output.open("rb") as packed:
        digest = hashlib.file_digest(packed, "sha256").hexdigest()
    with replacing(checksum := output.with_name(f"{output.name}.sha256")) as temporary:
        temporary.write_text(f"{digest}  {output.name}\n", encoding="utf-8")
    return checksum


def push(model: Path, name: str) -> str:
    """Uploads a model to Hugging Face, as `hf://owner/name`, in one commit, and returns its address."""
    require_saved_model(model)
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


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "The exported model, as xling_tf.load takes it.", required=True)
    flags.DEFINE_string("output", None, "Archive to write (.tar.gz), or hf://owner/name.", required=True)
    run(main, "the same command starts again")
