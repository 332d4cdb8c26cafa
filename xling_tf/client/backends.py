"""What a `SentenceEncoder` runs: the interface of a model, and any function as one."""

import json
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from ..errors import UserError, as_user_error
from .match import Line, as_lines
from .settings import RUNTIME_SETTINGS

RUNTIME_FORMAT = 4  # of runtime.json; raised whenever older versions would misread a folder


class Backend(ABC):
    """A model that turns texts into vectors.

    A subclass defines `embed`, and the attributes whose values differ from those here.

    Attributes:
        batch_size: Maximum number of texts in one call.
        threads: Number of calls at the same time.
        prompts: The model's prompts by name.
        default_prompt_name: Name of the prompt that is put before texts by default; None for none.
        roles: Which of "default", "query" and "document" `embed` knows: it puts the prompt of such
            a role before texts itself. For others, `SentenceEncoder` does, and the role is "".
        takes_contexts: True if documents have contexts.
        has_units: True if vectors have unit length.
        match: The probability's slope and intercept by kind of match, see `match.probabilities`.
        device: Where the model runs, "cpu" or "cuda".
    """

    batch_size: int = 2048
    threads: int = 1
    prompts: Mapping[str, str] = {}
    default_prompt_name: str | None = None
    roles: Collection[str] = ()
    takes_contexts: bool = False
    has_units: bool = True
    match: Mapping[str, Line] = {}
    device: str = "cpu"

    @abstractmethod
    def embed(self, texts: list[str], role: str, *contexts: list[str]) -> ArrayLike:
        """Returns `[texts, dim]` vectors; `role` is one of `roles`, or "" for texts as they are."""

    def embed_raw(self, texts: list[str], role: str, *contexts: list[str]) -> ArrayLike:
        """Returns vectors of the encoder's own lengths."""
        raise UserError(
            "normalize_embeddings=False: the model has no signature raw, only unit vectors"
        )


class Function(Backend):
    """Any function from a list of texts to vectors."""

    has_units = False

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        self._function = function

    def embed(self, texts: list[str], role: str, *contexts: list[str]) -> ArrayLike:
        """Calls the function."""
        return self._function(texts)

    embed_raw = embed  # vectors of any length

    def __repr__(self) -> str:
        return f"Function({self._function!r})"

    def __reduce__(self) -> Any:
        raise UserError("only an encoder that was loaded by its model's name can be pickled")


class RuntimeFolder(Backend):
    """A model in a folder with `runtime.json`, which is pickled by its path.

    Args:
        folder: What `export --to onnx`, `litert` or `wheel` has written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self.settings = read_settings(self.folder)
        with self.reading():
            self.dim = operator.index(self.settings["dim"])
            self.prompts = {
                str(name): prompt + "" for name, prompt in self.settings["prompts"].items()
            }
            self.default_prompt_name = self.settings["default_prompt_name"]
        self.match = as_lines(self.settings.get("match"))

    def reading(self) -> Any:
        """Makes a block's errors, which settings of another form cause, a `UserError`."""
        message = (
            f"{self.folder / RUNTIME_SETTINGS} must have all settings of an exported model, but "
            "one is missing or damaged ({error}); export it again"
        )
        return as_user_error(message, AttributeError, LookupError, TypeError, OSError, ValueError)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def __reduce__(self) -> Any:
        return type(self), (self.folder,)


def read_settings(folder: Path) -> dict[str, Any]:
    """Returns what `runtime.json` says about a model; raises a `UserError` if it cannot be read."""
    path = folder / RUNTIME_SETTINGS
    message = f"{path} cannot be read: {{error}}; export it again"
    with as_user_error(message, OSError, ValueError, RecursionError):
        settings = json.loads(path.read_text(encoding="utf-8"))
    if (form := settings.get("format") if isinstance(settings, dict) else None) != RUNTIME_FORMAT:
        raise UserError(
            f"{folder} must be in format {RUNTIME_FORMAT}, but is in {form}; export it again"
        )
    return settings
