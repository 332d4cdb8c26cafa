"""More pieces for a SentencePiece model, for texts that it cuts into too many.

New pieces come after the old ones, which keep their rows. A new piece is used where the old model would
have spelt it with its parents, and nowhere else: its score is the sum of theirs, so the best
segmentation stays the best one, with some neighbours in it joined.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray

from xling_tf.config import TextConfig
from xling_tf.text.sampling import draw_balanced
from xling_tf.text.sentencepiece import library
from xling_tf.text.sentencepiece_fitting import train_pieces

_SAMPLED_TEXTS = 500_000
# Added to a score for each piece that the joined one saves: fewer pieces win where all else is equal,
# and nothing else changes. Scores are logarithms of probabilities, single precision in SentencePiece.
_BONUS = 0.01
# SentencePiece scores an unknown character this much below its rarest piece.
_UNKNOWN_PENALTY = 10.0
# A NormalizerSpec (field 3 of a ModelProto) that leaves texts as they are: no rules, no space in front,
# all spaces kept, but marked. Appended to a serialized model it overrides the model's own.
_AS_THEY_ARE = b"\x1a\x08\x12\x00\x18\x00\x20\x00\x28\x01"


class _Joined(NamedTuple):
    """A new piece and the old ones that spell it."""

    piece: str
    parents: list[int]
    score: float
    saved: int  # pieces, and unknown ones made known, wherever it is used


def extend_pieces(
    model: bytes, texts_by_language: Mapping[str, Iterable[str]], num_new: int, config: TextConfig
) -> tuple[bytes, list[list[int]]]:
    """Adds the pieces that save most in texts of a new domain.

    Args:
        model: SentencePiece's serialized unigram model.
        texts_by_language: Of the new domain; read once, language after language, in bounded memory.
        num_new: Pieces to add, at most.
        config: `sentencepiece_size` pieces are learnt from the texts to choose from.

    Returns:
        The extended model, which starts with the bytes of `model`; and for each new piece the rows of
        the old ones that spelt it.

    Raises:
        UserError: SentencePiece is not installed, or no pieces can be learnt from the texts.
    """
    processor = library("sentencepiece").SentencePieceProcessor
    drawn = draw_balanced(texts_by_language, _SAMPLED_TEXTS).values()
    normalize = processor(model_proto=model).normalize
    texts = [normalize(text) for texts in drawn for text in texts]
    old = processor(model_proto=model + _AS_THEY_ARE)
    candidates = _candidates(old, texts, config.sentencepiece_size)
    # Appended messages and fields are a ModelProto's like any others: nothing of `model` is rewritten.
    tried = processor(model_proto=model + _serialized(candidates) + _AS_THEY_ARE)
    added = _most_useful(candidates, _count(tried, texts), old.get_piece_size(), num_new)
    extended = model + _serialized(added)
    _report(old, processor(model_proto=extended + _AS_THEY_ARE), texts, num_new)
    return extended, [joined.parents for joined in added]


def extend_rows(
    table: NDArray[np.floating[Any]], parents: Sequence[Sequence[int]]
) -> NDArray[np.floating[Any]]:
    """Gives each new piece the mean of its parents' rows.

    Args:
        table: `[pieces, dim]`, a row for each old piece and no others.
        parents: For each new piece the rows of those that spelt it, at least one.

    Returns:
        `[pieces + new pieces, dim]`.

    Example:
        >>> extend_rows(np.array([[1.0, 0.0], [3.0, 4.0]]), [[0, 1]]).tolist()
        [[1.0, 0.0], [3.0, 4.0], [2.0, 2.0]]
    """
    means = [table[list(rows)].mean(axis=0, dtype=np.float64) for rows in parents]
    return np.concatenate([table, np.array(means, table.dtype).reshape(-1, table.shape[1])])


def _candidates(old: Any, texts: Sequence[str], size: int) -> list[_Joined]:
    """Pieces learnt from normalized texts that the old model lacks.

    They are learnt by byte-pair encoding, which keeps every frequent word whole: a unigram model leaves
    out those that its other pieces spell well, but the old ones do not.
    """
    plain = [text.replace("▁", " ").strip() for text in texts]
    model = train_pieces(plain, size, normalization_rule_name="identity", model_type="bpe")
    learnt = library("sentencepiece").SentencePieceProcessor(model_proto=model)
    ids = range(learnt.get_piece_size())
    pieces = (
        learnt.id_to_piece(i) for i in ids if not (learnt.is_control(i) or learnt.is_unknown(i))
    )
    scores = [old.get_score(i) for i in range(old.get_piece_size())]
    scores[old.unk_id()] = min(scores) - _UNKNOWN_PENALTY  # of each of its characters
    return [_join(old, piece, scores) for piece in pieces if old.piece_to_id(piece) == old.unk_id()]


def _join(old: Any, piece: str, scores: Sequence[float]) -> _Joined:
    parents, spelt = old.encode(piece), old.encode(piece, out_type=str)
    # Unknown characters side by side are one piece.
    lengths = [
        len(part) if parent == old.unk_id() else 1
        for parent, part in zip(parents, spelt, strict=True)
    ]
    saved = len(parents) - 1 + parents.count(old.unk_id())
    score = sum(n * scores[parent] for n, parent in zip(lengths, parents, strict=True))
    return _Joined(piece, parents, score + _BONUS * saved, saved)


def _serialized(added: Iterable[_Joined]) -> bytes:
    """Pieces as fields of a ModelProto: field 1, of messages with a piece (1) and its score (2)."""
    fields = []
    for joined in added:
        piece = joined.piece.encode()
        message = b"\x0a" + _varint(len(piece)) + piece + b"\x15" + struct.pack("<f", joined.score)
        fields.append(b"\x0a" + _varint(len(message)) + message)
    return b"".join(fields)


def _varint(number: int) -> bytes:
    """Encodes a length as protocol buffers do: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _count(processor: Any, texts: Iterable[str]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(processor.encode(text))
    return counts


def _most_useful(
    candidates: Sequence[_Joined], uses: Counter[int], first: int, num_new: int
) -> list[_Joined]:
    """Chooses those that save most, with the number of uses of each by its row from `first` on."""
    gains = [uses[first + place] * joined.saved for place, joined in enumerate(candidates)]
    ranked = sorted(
        range(len(candidates)), key=lambda place: (-gains[place], candidates[place].piece)
    )
    return [candidates[place] for place in ranked[:num_new] if gains[place]]


def _report(old: Any, extended: Any, texts: Sequence[str], num_new: int) -> None:
    num_added = extended.get_piece_size() - old.get_piece_size()
    before, after = (sum(_count(model, texts).values()) / len(texts) for model in (old, extended))
    line = (
        f"{num_added} pieces were added to {old.get_piece_size()}: a text has {after:.1f} of them rather "
        f"than {before:.1f}"
    )
    if num_added == num_new:
        logging.info("%s", line)
    else:
        logging.warning(
            "text.extra_pieces=%d asks for more pieces than would shorten the texts; %s",
            num_new,
            line,
        )
