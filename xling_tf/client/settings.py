"""What the folder of every export says about its model, and whose prompts go before which texts."""

from collections.abc import Mapping
from pathlib import Path

from ..errors import UserError

# The file that makes a folder a model for NumPy, LiteRT or ONNX Runtime.
RUNTIME_SETTINGS = "runtime.json"
# Names of the prompt of documents; sentence-transformers takes the first that a model has.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def role_prompts(prompts: Mapping[str, str], default: str | None) -> dict[str, str]:
    """Returns the prompts of texts in general, of queries and of documents, by these roles.

    Examples:
        >>> role_prompts({"query": "q: ", "passage": "p: "}, "query")
        {'default': 'q: ', 'query': 'q: ', 'document': 'p: '}
    """
    documents = (prompts[name] for name in DOCUMENT_PROMPTS if prompts.get(name))
    return {
        "default": prompts.get(default or "", ""),
        "query": prompts.get("query", ""),
        "document": next(documents, ""),
    }


def require_inside(folder: Path, name: str) -> Path:
    """Returns the path of a file or folder that a model's file names; it must be inside."""
    if (
        not isinstance(name, str)
        or "\0" in name
        or Path(name).is_absolute()
        or ".." in Path(name).parts
    ):
        raise UserError(
            f"the files of {folder} must name files in that folder, but name {name!r}; use "
            "another copy of the model"
        )
    return folder / name
