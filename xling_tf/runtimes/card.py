"""The page inside a folder for another runtime: its format, for programs in any language."""

from collections.abc import Mapping
from typing import Any

_PAGE = """# A sentence encoder for {runtime}

Sentences to {dim}-dimensional vectors of unit length, the same as those of the SavedModel of xling_tf that
it was made of. In Python, without TensorFlow:

    pip install 'xling_tf[runtimes]'

    from xling_tf.runtimes import load
    load(".").encode(["Hola", "Hello"])             # float32 [2, {dim}]

## Files

- `{model}`: ids of tokens to vectors. All weights are in it; both sizes of a batch are free.
- `{vocabulary}`: {vocabulary_is}
- `runtime.json`: what the steps below call by its `names`.

## For other languages

The model has these inputs, and gives `outputs`, float32 `[batch, {dim}]`:

- `ids`, int32 `[batch, tokens]`: the tokens of each sentence, padded with 0.
- `lengths`, int32 `[batch]`: how many of them there are, at least 1.{unknown_inputs}

A sentence becomes tokens so:

1. Cut its UTF-8 after `max_bytes` bytes; what is no UTF-8 then, as half a character, becomes a space.
{steps}"""

_PIECES = """2. Encode it with SentencePiece to ids: the best segmentation, without its marks.
3. Where there are none, take `[empty]`.
4. Keep the first `max_tokens`, less the marks. Put the ids in `begin` before them and those in `end` after
   them (either may be none).

Where two segmentations are equally likely ("XXXX" is "XXX" and "X", or "X" and "XXX"), versions of
SentencePiece may choose either; vectors then differ a little.
"""

_WORDS = r"""2. If `lowercase`, make it lower case, as Unicode has it in full, but by no language's own rules.
3. Apply the `rules` in their order: replace every match of a pattern. Patterns are in RE2's syntax, and most
   engines read them. `classes` has the code points, first to last, that `\pL` and the like stand for in them:
   put in their place, tokens do not depend on the engine's version of Unicode.
4. Split it at spaces and keep the first `max_tokens`; where there are none, take the word in `empty`.
5. A word's id is the number of its line in `{vocabulary}`, from 0. {unknown}
"""
_HASHED = """A word that is not there has the
   number of lines + hash(word) % `num_buckets`, where hash is FarmHash's Fingerprint64 of its UTF-8.
"""
_SPELT = """The first word of a batch that is
   not there has the number of lines as its id, the second distinct one the next number, and so on.
6. Of each of these words, in that order, `buckets` has hash(word) % `num_buckets`, where hash is FarmHash's
   Fingerprint64 of its UTF-8. `ngrams` has hash(n-gram) % `ngrams.num_buckets` of all runs of characters
   of a length in `ngrams.sizes` within `<word>`: its first `ngrams.max_characters` characters between `<` and
   `>`. Where a word has fewer of them than another, `ngrams.num_buckets` fills the places.
7. A batch without such words has one row of fill: `buckets` [0], `ngrams` [[`ngrams.num_buckets`]].
"""
_UNKNOWN_INPUTS = """
- `buckets`, int32 `[unknown]`, and `ngrams`, int32 `[unknown, ngrams]`: of the batch's distinct words that
  the vocabulary has not; see step 6."""
_RUNTIMES = {"litert": "LiteRT", "onnx": "ONNX Runtime"}


def card(settings: Mapping[str, Any]) -> str:
    """The page for a folder with the settings of its `runtime.json`."""
    text = settings["text"]
    is_spelt = bool(text.get("ngrams"))
    if text["kind"] == "pieces":
        steps, vocabulary_is = _PIECES, "SentencePiece's model."
    else:
        unknown = (_SPELT if is_spelt else _HASHED).strip()
        steps = _WORDS.format(vocabulary=settings["vocabulary"], unknown=unknown)
        vocabulary_is = "the known words, a line each."
    return _PAGE.format(
        runtime=_RUNTIMES[settings["runtime"]],
        dim=settings["dim"],
        model=settings["model"],
        vocabulary=settings["vocabulary"],
        vocabulary_is=vocabulary_is,
        unknown_inputs=_UNKNOWN_INPUTS if is_spelt else "",
        steps=steps,
    )
