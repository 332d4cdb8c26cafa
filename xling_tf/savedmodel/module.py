"""The SavedModel, made from an encoder and its heads."""

from collections.abc import Mapping
from pathlib import Path

from xling_tf.config import TASKS, ModelInfo
from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL, require_writable_folder
from xling_tf.layers.base import float32_copy
from xling_tf.savedmodel.encoder import ExportedEncoder
from xling_tf.tasks.base import Heads, scale_for_heads
from xling_tf.tasks.signatures import (
    ExportedLayers,
    RawSignature,
    SentenceSignature,
    Signature,
    SignatureDescription,
    untracked,
)
from xling_tf.weights import named_weights

_SENTENCES = SignatureDescription(
    "serving_default",
    ("inputs",),
    "vectors of sentences; also called `default`",
    'encoder(["Hola", "Hello"])                      # float32 [2, {dim}]',
)
# The other signatures of every model; a task may replace them.
_QUESTIONS = SignatureDescription(
    "question_encoder", ("input",), "vectors of questions", role="query"
)
_ANSWERS = SignatureDescription(
    "response_encoder", ("input",), "vectors of answers or replies", role="document"
)
_RAW = SignatureDescription("raw", ("inputs",), "vectors of sentences, not normalised")
# For models with a default prompt, which their other signatures put before texts.
_UNPROMPTED = SignatureDescription(
    "unprompted", ("inputs",), "vectors of texts with their prompts, not normalised", role=""
)


class ExportedModule(SentenceSignature):
    """A SavedModel's root object, which encodes sentences; other signatures are its attributes.

    Heads are layers, by the name of their task in `TASKS` and their own name; they are copied.
    `named_weights` has all variables by name.
    """

    def __init__(
        self, encoder: ExportedEncoder, heads: Mapping[str, Heads], info: ModelInfo
    ) -> None:
        layers = ExportedLayers(encoder, {}, scale_for_heads(info.similarity), info.role_prompts)
        super().__init__(layers, _SENTENCES)
        parts: dict[str, Signature] = {
            **{part.name: SentenceSignature(layers, part) for part in (_QUESTIONS, _ANSWERS)},
            "raw": RawSignature(layers, _RAW),
        }
        if info.role_prompts["default"]:
            parts["unprompted"] = RawSignature(layers, _UNPROMPTED)
        weights = dict(encoder.named_weights)
        for task in (name for name in TASKS if name in heads):
            copies = {name: float32_copy(layer) for name, layer in heads[task].items()}
            signatures = TASKS.implementation(task).signatures(layers._replace(heads=copies))
            parts |= {signature.description.name: signature for signature in signatures}
            for name, layer in copies.items():
                named = named_weights(layer, f"heads/{task}/{name}")
                weights |= {full: variable.value for full, variable in named.items()}
        for name, part in parts.items():
            setattr(self, name, part)
        self._parts = untracked(parts)
        self.named_weights = weights

    @property
    def signatures(self) -> dict[str, Signature]:
        """All signatures by name."""
        return {self.description.name: self, **self._parts()}


def require_replaceable(path: Path, argument: str = "output", mark: str = SAVED_MODEL) -> None:
    """Checks that a folder can be written, and would replace nothing but an earlier export.

    Messages call the folder by `argument`; `mark` is the name of a file that every export has.
    """
    if not path.name.strip("."):
        raise UserError(
            f"`{argument}` must name a folder, got {str(path)!r}; give its name or whole path"
        )
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty and not ((path / mark).is_file() and _is_export(path, mark)):
        raise UserError(
            f"`{argument}` must be a new folder, or an exported model to replace, but {path} "
            "holds something else; choose another"
        )
    require_writable_folder(path.parent, f"choose another `{argument}`")


def _is_export(path: Path, mark: str) -> bool:
    """False for another library's model, which also has a file such as model.safetensors."""
    descriptions = (path / name for name in ("config.json", "README.md"))
    return mark == SAVED_MODEL or any(
        b"xling_tf" in description.read_bytes()
        for description in descriptions
        if description.is_file()
    )
