"""A model of pieces with only those that some languages use, from which every format starts."""

import dataclasses
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from xling_tf.corpora.line_files import CHINESE, KANA, THAI, without_country
from xling_tf.errors import UserError, library
from xling_tf.exporters.base import OriginalModel, encode_by, require_equal, sample_texts
from xling_tf.model import Model
from xling_tf.savedmodel.encoder import WORD_TABLE
from xling_tf.weights import arrays, assign_weights, to_be_replaced

# Rarer words do not count. With 1e-6, multilingual-e5-small keeps a tenth fewer pieces, and two to
# eight times as many texts change (docs/research/experiments.md, 29 November 2026).
_LEAST = 1e-7
# Writers put no spaces between the words of these scripts: pieces may be of several words, so all
# of the script are kept.
_HAN = f"\u3005-\u3007{CHINESE}"
_SCRIPTS = {
    "ja": _HAN + KANA,
    "km": "\u1780-\u17ff",
    "lo": "\u0e80-\u0eff",
    "my": "\u1000-\u109f",
    "th": THAI,
    "zh": _HAN,
}
_COMPARED = 100  # texts with and without all their pieces, before and after
_CHANGES = """{kept:,} of {all:,} pieces are kept: those in words that occur at least once in
ten million words of {languages}, and every single character, so that no more text is unknown than
before. Texts whose pieces are all kept, {share:.1%} of {texts:,} texts of {corpora},
have the same vectors as before. In the others, some pieces become several shorter ones{cosine}."""


def reduced(source: OriginalModel, languages: str | Sequence[str]) -> OriginalModel:
    """Returns a model with only those pieces that some languages or its prompts use.

    Args:
        source: A model of SentencePiece's unigram pieces.
        languages: Codes, such as "es,de" or ["es", "de"].

    Raises:
        UserError: The model has no such pieces, nothing is known of a language, or a text whose
            pieces are all kept has another vector than before.
    """
    codes = [*filter(None, languages.split(","))] if isinstance(languages, str) else [*languages]
    model, info = source.model, source.model.info
    prompts = re.findall(r"\w+", " ".join(info.prompts.values()).casefold())
    tokenizer, rows = model.tokenizer.only(
        lambda pieces: _used(pieces, codes, {*_words(codes), *prompts})
    )
    weights, where = arrays(model.weights), str(source.folder)
    weights[WORD_TABLE] = weights[WORD_TABLE][rows]
    with to_be_replaced(weights, where):
        small = Model(
            tokenizer,
            {**model.encoder_settings, "num_words": tokenizer.num_words},
            dataclasses.replace(info, languages=tuple(codes)),
        )
    small.heads = model.heads
    assign_weights(small.weights, weights, where)
    encode = encode_by(small.module())

    texts = sample_texts(source.data, codes)
    is_kept = np.isin(np.arange(model.tokenizer.num_words), rows)
    tokens = model.tokenizer.tokenize(tf.constant(texts))
    same = tf.reduce_all(tokens.with_values(tf.gather(is_kept, tokens.values)), axis=1).numpy()
    equal, others = ([*np.array(texts, object)[which][:_COMPARED]] for which in (same, ~same))
    if equal:
        require_equal(encode(equal), source.encode(equal), source.folder)
    cosine = ""
    if others:
        mean = np.mean(np.sum(encode(others) * source.encode(others), axis=1))
        cosine = f"; the mean cosine to their vectors before is {mean:.4f}"
    changes = _CHANGES.format(
        kept=len(rows),
        all=model.tokenizer.num_words,
        languages=", ".join(codes),
        share=np.mean(same),
        texts=len(texts),
        corpora=source.data.name if source.data else "the built-in sample",
        cosine=cosine,
    )
    return source._replace(model=small, encode=encode, changes=changes)


def word_shares(languages: Iterable[str]) -> Iterator[Mapping[str, float]]:
    """Yields words with their shares of all words, of each language that wordfreq lists."""
    wordfreq = library("wordfreq", "wordfreq", "data")
    for code in {*map(without_country, languages)} & wordfreq.available_languages().keys():
        yield wordfreq.get_frequency_dict(code)
        # It keeps every language that was read, a hundred megabytes each.
        wordfreq.get_frequency_dict.cache_clear()
        wordfreq.get_frequency_list.cache_clear()


def _words(languages: Sequence[str]) -> set[str]:
    """Returns the words of languages, in lower case."""
    known = {*library("wordfreq", "wordfreq", "data").available_languages(), *_SCRIPTS}
    unknown = [code for code in languages if without_country(code) not in known]
    if unknown or not languages:
        raise UserError(
            f"`languages` must be some of {', '.join(sorted(known))}, got "
            f"{', '.join(unknown) or 'none'}; their pieces are found by lists of frequent words"
        )
    shares = word_shares(languages)
    return {word for words in shares for word, share in words.items() if share >= _LEAST}


def _used(pieces: Sequence[str], languages: Sequence[str], words: Iterable[str]) -> list[bool]:
    """Returns which pieces to keep.

    They are those in words, in upper or lower case (a piece after "▁" must begin the word), those
    in scripts without spaces, and those without letters.
    """
    texts = [piece.removeprefix("▁").casefold() for piece in pieces]
    known, longest = {*texts}, max(map(len, texts), default=0)
    beginnings, parts = set(), set()
    for word in words:
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + longest) + 1):
                if (part := word[begin:end]) in known:
                    parts.add(part)
                    if not begin:
                        beginnings.add(part)
    scripts = "".join(_SCRIPTS.get(without_country(code), "") for code in languages)
    is_unspaced = re.compile(f"[{scripts}]+" if scripts else "(?!)").fullmatch
    return [
        text in (beginnings if piece.startswith("▁") else parts)
        or is_unspaced(text) is not None
        or not any(unicodedata.category(character)[0] in "LM" for character in text)
        for piece, text in zip(pieces, texts, strict=True)
    ]
