"""How well a tokenizer knows texts: unknown tokens, tokens a word, texts that are cut."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.corpora.line_files import UNSPACED
from xling_tf.tokenizers.base import Tokenizer

# From this share of unknown tokens on, a model sees too little of a text: users are warned.
MANY_UNKNOWN = 0.02
_BATCH = 512  # texts
_LONGEST = 8192  # tokens of a text that are counted
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


class Coverage(NamedTuple):
    """What a tokenizer makes of some texts."""

    unknown: float  # share of the tokens that it does not know, from 0 to 1
    tokens_per_word: float  # a word stands between spaces, or is a Chinese, Japanese or Thai sign
    cut: float  # share of the texts that have more tokens than the model reads, from 0 to 1


def coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> Coverage:
    """Measures how well a tokenizer knows texts; marks around sentences do not count as tokens.

    Args:
        tokenizer: Such as `Model.from_pretrained(folder).tokenizer`.
        texts: Any number of texts, which are read once; a few thousand tell enough.

    Returns:
        The shares and means over all texts; zeros if there is no word.

    Examples:
        >>> from xling_tf.config import WordPieceConfig
        >>> from xling_tf.tokenizers.wordpiece import WordPieceTokenizer
        >>> vocabulary = ["[UNK]", "[CLS]", "[SEP]", "walk", "##ing"]
        >>> tokenizer = WordPieceTokenizer(vocabulary, WordPieceConfig(max_tokens=5))
        >>> coverage(tokenizer, ["walk", "walking ეზო"])  # [CLS] walk ##ing [UNK] [SEP]
        Coverage(unknown=0.25, tokens_per_word=1.3333333333333333, cut=0.0)
    """
    rules = tokenizer.rules()
    marks = len(rules.get("begin", ())) + len(rules.get("end", ()))
    num_texts = num_words = num_tokens = num_unknown = num_cut = 0
    for batch in _batches(text for text in texts if text.strip()):
        rows = tokenizer.tokenize(tf.constant(batch), _LONGEST)
        lengths = rows.row_lengths().numpy()
        num_texts += len(batch)
        num_words += sum(len(_WORD.findall(text)) for text in batch)
        num_tokens += int(np.sum(lengths - marks))
        num_unknown += int(np.sum(tokenizer.is_unknown(rows.values)))
        num_cut += int(np.sum(lengths > tokenizer.config.max_tokens))
    return Coverage(
        num_unknown / max(1, num_tokens),
        num_tokens / max(1, num_words),
        num_cut / max(1, num_texts),
    )


def warn_of_unknown(tokenizer: Tokenizer, texts: Iterable[str], name: str) -> float:
    """Says in a line if too many tokens are unknown; `name` says of what. Returns their share."""
    unknown = coverage(tokenizer, texts).unknown
    if unknown > MANY_UNKNOWN:
        logging.warning(
            "%.0f%% of the pieces of %s are unknown to the model, which cannot tell their words "
            "apart; xling-tf languages compares models on a text",
            *(100 * unknown, name),
        )
    return unknown


def _batches(texts: Iterator[str]) -> Iterator[Sequence[str]]:
    while batch := [*islice(texts, _BATCH)]:
        yield batch
