"""The files of a model that another library has saved: modules, settings and tensors."""

from pathlib import Path
from typing import Any, NamedTuple

from xling_tf.client.settings import require_inside
from xling_tf.errors import UserError, as_user_error
from xling_tf.files import first_names, read_json
from xling_tf.weights import Weights, read_weights

MODULES = "modules.json"  # sentence-transformers' list of a model's modules


class Module(NamedTuple):
    """One of sentence-transformers' modules."""

    type: str  # the full name of its class
    folder: Path

    @property
    def kind(self) -> str:
        """The name of its class alone."""
        return self.type.rpartition(".")[2]


def read_saved_modules(folder: Path) -> list[Module]:
    """Returns the modules of a model in their order; none if it has no `modules.json`."""
    path = folder / MODULES
    message = f"{path} must have a type and a path for each module ({{error}}); download it again"
    with as_user_error(message, AttributeError, LookupError, TypeError):
        return [
            Module(str(module["type"]), require_inside(folder, module["path"]))
            for module in read_settings(path, [])
        ]


def read_settings(path: Path, default: Any = None) -> Any:
    """Returns the content of a JSON file; `default`, unless None, if the file is missing."""
    if default is not None and not path.exists():
        return default
    message = f"{path} must be a JSON file, but cannot be read ({{error}}); download it again"
    with as_user_error(message, OSError, ValueError):
        return read_json(path)


def read_tensors(folder: Path) -> Weights:
    """Returns the tensors of `model.safetensors`, or of the shards its index lists, by name."""
    index, files = folder / "model.safetensors.index.json", ["model.safetensors"]
    if index.exists():
        files = sorted(set(read_settings(index)["weight_map"].values()))
    paths = [require_inside(folder, file) for file in files]
    if not all(path.exists() for path in paths):
        raise UserError(
            f"expected the weights of {folder} in {', '.join(files)}, but there are only "
            f"{first_names(sorted(path.name for path in folder.iterdir()))}; write a copy of the "
            "model in that format, in Python: from sentence_transformers import "
            "SentenceTransformer; SentenceTransformer(MODEL).save('converted'), where MODEL is "
            "its name at Hugging Face, or its folder with pytorch_model.bin"
        )
    return {name: array for path in paths for name, array in read_weights(path).items()}
