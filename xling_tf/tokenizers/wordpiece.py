"""BERT's WordPiece tokenizer (Devlin et al. 2019; Wu et al. 2016, sec. 4.1), for imported models.

Rows equal the ids of Hugging Face's `tokenizers`, except that characters which Unicode has added
since version 8 count as what they are (punctuation, marks, capital letters), that texts are cut
after `BYTES_PER_TOKEN` bytes for each token, and that no text, such as "[SEP]", is read as a
special token.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Self

import tensorflow as tf

from xling_tf.client.words import BYTES_PER_TOKEN
from xling_tf.config import WordPieceConfig
from xling_tf.errors import UserError
from xling_tf.tokenizers.base import Frame, VocabularyTokenizer
from xling_tf.tokenizers.composition import first_bytes

UNKNOWN, BEGIN, END = "[UNK]", "[CLS]", "[SEP]"
SPECIAL = (UNKNOWN, BEGIN, END, "[PAD]", "[MASK]")

_MAX_CHARACTERS = 100  # longer words are unknown
_MAX_BYTES = 4 * _MAX_CHARACTERS

# Control and format characters are removed. Unicode added those listed here after version 8.
_REMOVED = r"[^\PC\t\n\r\x{890}\x{891}\x{8e2}\x{110cd}\x{13430}-\x{1343f}]|\x{fffd}"
_SPACES = r"[\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
# All symbols of ASCII are punctuation.
_PUNCTUATION = r"!-/:-@\[-`{-~\pP"
_CHINESE = (
    r"\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b81f}\x{2b920}-\x{2ceaf}"
    r"\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}"
)


class WordPieceTokenizer(VocabularyTokenizer):
    """Splits words into the longest pieces of a vocabulary; pieces inside a word begin with "##".

    Args:
        vocabulary: The pieces, with "[UNK]" and, for sentence marks, "[CLS]" and "[SEP]"; piece i
            has row i of the word table. The last of equal pieces counts.
        config: Rules for words. `sentence_marks` counts towards `max_tokens`.

    Examples:
        >>> vocabulary = ["[UNK]", "[CLS]", "[SEP]", "walk", "##ing", "!"]
        >>> tokenizer = WordPieceTokenizer(vocabulary, WordPieceConfig(lowercase=True))
        >>> tokenizer.tokenize(tf.constant(["Walking!", "talking", ""])).to_list()
        [[1, 3, 4, 5, 2], [1, 0, 2], [1, 2]]
    """

    file_names = ("vocab.txt",)
    needs_text_ops = True
    config: WordPieceConfig

    def __init__(self, vocabulary: Sequence[str], config: WordPieceConfig) -> None:
        super().__init__(vocabulary, config)
        self.num_words = len(self.vocabulary)
        rows = {piece: row for row, piece in enumerate(self.vocabulary)}
        required = (UNKNOWN, BEGIN, END) if config.sentence_marks else (UNKNOWN,)
        if missing := [piece for piece in required if piece not in rows]:
            raise UserError(
                f"a WordPiece vocabulary must have {', '.join(required)}, but this one of "
                f"{len(rows)} pieces lacks {', '.join(missing)}; use the vocab.txt of a BERT"
            )
        self._unknown = rows[UNKNOWN]
        self._frame = Frame((), (), self._unknown)
        if config.sentence_marks:
            self._frame = Frame((rows[BEGIN],), (rows[END],), None)
        initializer = tf.lookup.KeyValueTensorInitializer(
            tf.constant([*rows]), tf.constant([*rows.values()], tf.int64)
        )
        self._table = tf.lookup.StaticHashTable(initializer, -1)
        self._text = import_module("tensorflow_text")
        self._splitter = self._text.WordpieceTokenizer(
            self._table,
            max_bytes_per_word=_MAX_BYTES,
            unknown_token=UNKNOWN,
            token_out_type=tf.int64,
        )

    @classmethod
    def fit(cls, config: WordPieceConfig, texts_by_language: Mapping[str, Iterable[str]]) -> Self:
        """Raises a `UserError`: these vocabularies are not learned here."""
        raise UserError(
            "tokenizer.kind=wordpiece is for imported models, whose vocabulary is kept; to learn "
            "pieces, set tokenizer.kind=sentencepiece"
        )

    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """See `Tokenizer.tokenize`: int32 rows of the table."""
        max_tokens = max_tokens or self.config.max_tokens
        words = tf.strings.split(self._normalized(sentences, max_tokens))[:, :max_tokens]
        distinct, positions = tf.unique(words.values)
        is_long = tf.strings.length(distinct, unit="UTF8_CHAR") > _MAX_CHARACTERS
        pieces = tf.gather(self._splitter.tokenize(tf.where(is_long, UNKNOWN, distinct)), positions)
        rows = tf.cast(words.with_values(pieces).merge_dims(1, 2), tf.int32)
        return self._frame.put_around(rows, max_tokens)

    def is_unknown(self, tokens: tf.Tensor) -> tf.Tensor:
        """See `Tokenizer.is_unknown`."""
        return tf.equal(tokens, self._unknown)

    def rules(self) -> dict[str, Any]:
        """See `Tokenizer.rules`."""
        config = self.config
        return {
            "kind": "wordpiece",
            "max_tokens": config.max_tokens,
            "max_bytes": BYTES_PER_TOKEN * config.max_tokens,
            "lowercase": config.lowercase,
            "strip_accents": config.strip_accents,
            "split_chinese": config.split_chinese,
            **self._frame._asdict(),
        }

    def fingerprints(self, sentences: tf.Tensor) -> tf.Tensor:
        """See `Tokenizer.fingerprints`."""
        words = tf.strings.split(self._normalized(sentences, self.config.max_tokens))
        return tf.strings.to_hash_bucket_fast(
            tf.strings.reduce_join(words, axis=1, separator=" "), 2**62
        )

    def _normalized(self, sentences: tf.Tensor, max_tokens: int) -> tf.Tensor:
        """Returns the text of `[batch]` strings with spaces between words."""
        config = self.config
        text = first_bytes(sentences, BYTES_PER_TOKEN * max_tokens)
        text = tf.strings.regex_replace(text, _REMOVED, "")
        if config.strip_accents:
            text = self._text.normalize_utf8(text, "NFD")
            text = tf.strings.regex_replace(text, r"\p{Mn}", "")
        if config.lowercase:
            # A sigma at the end of a word becomes the same letter as elsewhere.
            text = tf.strings.lower(tf.strings.regex_replace(text, "Σ", "σ"), encoding="utf-8")
        text = tf.strings.regex_replace(text, _SPACES, " ")
        alone = _PUNCTUATION + (_CHINESE if config.split_chinese else "")
        return tf.strings.regex_replace(text, f"([{alone}])", r" \1 ")
