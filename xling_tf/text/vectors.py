"""Vectors of words to start from: read, learnt from translations, and mapped into one space.

Rücklé et al. 2018, sec. 5.1 and appendix A.1. A space is named by what makes it, from the right:

- `FILE`: word2vec, fastText or GloVe; with `{}` in it, a file for each language;
- `bivcd:300`, `cvm:300`: learnt from the training translations, so many numbers;
- `project:SPACE`, `cca:SPACE`: mapped so that translations are near each other;
- `cca@DICTIONARY:SPACE`: so that words are near their translations in a file;
- `sif:SPACE`: weighted and without the common direction, to be averaged.
"""

import itertools
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray
from scipy import sparse

from xling_tf.config import TextConfig
from xling_tf.corpora.line_files import MAX_LINE, normal_form, split_blocks
from xling_tf.corpora.readers import read_parallel
from xling_tf.errors import UserError, library
from xling_tf.files import PACKED, unpacked
from xling_tf.text.tokenization import EMPTY_TOKEN, tokenize

Matrix = NDArray[np.float32]

# Ours, where the paper gives none: translations that a space is learnt from, and how.
_MAX_PAIRS = 200_000
_BIVCD = {"sg": 1, "window": 5, "negative": 5, "epochs": 3}
_PROJECTION = {"batch": 256, "epochs": 20, "rate": 1e-3}
_CVM = {"batch": 256, "epochs": 5, "rate": 0.05}
_MARGIN = 0.5  # A.1
_DROPOUT = 0.5  # A.1, "of the input embedding dimensions"
_CONSTANT = 1e-10  # times the largest variance is more than float32's rounding errors have
# Errors of damaged files; gensim unpacks binary ones itself, and raises NotImplementedError for a fastText
# classifier.
_DAMAGED = (EOFError, OSError, OverflowError, NotImplementedError, ValueError, lzma.LZMAError, zlib.error)
_SIF = 1e-3  # a of Arora et al. 2017, sec. 3
_CHUNK = 50_000


class Words(NamedTuple):
    """The vectors of a language's words."""

    places: Mapping[str, int]
    rows: Matrix

    def averages(self, sentences: Sequence[Sequence[str]]) -> Matrix:
        """The average of each sentence's known words; zeros of none: `[sentences, dim]`."""
        known = [[self.places[word] for word in words if word in self.places] for words in sentences]
        counts = np.array([len(words) for words in known], np.int64)
        shares = np.repeat(1 / np.maximum(counts, 1), counts)
        places = np.fromiter(itertools.chain.from_iterable(known), np.int64, counts.sum())
        ends = np.concatenate([[0], np.cumsum(counts)])
        table = sparse.csr_array((shares, places, ends), shape=(len(known), len(self.rows)))
        return (table @ self.rows).astype(np.float32)


Space = Mapping[str, Words]  # by language


class Bitext(NamedTuple):
    """Training translations as words, with how often each language has them."""

    sides: Mapping[tuple[str, str], tuple[list[list[str]], list[list[str]]]]
    counts: Mapping[str, Counter[str]]

    @classmethod
    def read(cls, pairs: Mapping[str, Sequence[Any]], config: TextConfig, seed: int) -> "Bitext":
        """Tokenizes translations, by their languages as "en-es": at most 200,000 of each."""
        sides, counts = {}, dict[str, Counter[str]]()
        for languages, records in pairs.items():
            random = np.random.default_rng(seed)
            chosen = random.permutation(len(records))[:_MAX_PAIRS].tolist()
            pair = [records[place] for place in chosen]
            source, target = (_tokenized([record[side] for record in pair], config) for side in (0, 1))
            first, second = languages.split("-")
            sides[first, second] = source, target
            for language, side in ((first, source), (second, target)):
                counts.setdefault(language, Counter()).update(itertools.chain.from_iterable(side))
        return cls(sides, counts)


class Fitted(NamedTuple):
    """The vectors of a vocabulary in each space, one after another.

    Attributes:
        words: The vocabulary, the most frequent words of the translations first.
        rows: `[words, sum(dims)]`, zeros where a space does not know a word.
        is_known: `[words, spaces]`.
        dims: Numbers of each space.
    """

    words: list[str]
    rows: Matrix
    is_known: NDArray[np.bool_]
    dims: tuple[int, ...]


def fit_vectors(names: Sequence[str], bitext: Bitext, config: TextConfig, seed: int) -> Fitted:
    """Reads or learns the spaces of these names, and joins them.

    A word of several languages has the vector of the language that uses it more often.

    Raises:
        UserError: A space cannot be read or learnt.
    """
    spaces = [_make(name, bitext, config, seed) for name in names]
    totals = {language: max(1, counts.total()) for language, counts in bitext.counts.items()}
    shares = {
        language: {word: count / totals[language] for word, count in counts.items()}
        for language, counts in bitext.counts.items()
    }
    ranks = Counter[str]()
    for share in shares.values():
        ranks.update(share)
    for space in spaces:
        for words in space.values():
            ranks.update(dict.fromkeys(words.places, 0))
    ranked = [word for word, _ in ranks.most_common() if word != EMPTY_TOKEN]
    vocabulary = [EMPTY_TOKEN, *ranked[: config.max_words]]
    parts = [_rows(space, vocabulary, shares) for space in spaces]
    return Fitted(
        vocabulary,
        np.concatenate([rows for rows, _ in parts], axis=1),
        np.stack([is_known for _, is_known in parts], axis=1),
        tuple(rows.shape[1] for rows, _ in parts),
    )


def _rows(
    space: Space, vocabulary: Sequence[str], shares: Mapping[str, Mapping[str, float]]
) -> tuple[Matrix, NDArray[np.bool_]]:
    dim = next(iter(space.values())).rows.shape[1]
    rows = np.zeros((len(vocabulary), dim), np.float32)
    is_known = np.zeros(len(vocabulary), bool)
    for place, word in enumerate(vocabulary):
        if having := [language for language, words in space.items() if word in words.places]:
            words = space[max(having, key=lambda language: shares[language].get(word, 0.0))]
            rows[place], is_known[place] = words.rows[words.places[word]], True
    return rows, is_known


def _make(name: str, bitext: Bitext, config: TextConfig, seed: int) -> Space:
    kind, colon, rest = name.partition(":")
    mapping, _, dictionary = kind.partition("@")
    if colon and (kind in _MAPPINGS or (mapping == "cca" and dictionary)):
        space = _make(rest, bitext, config, seed)
        translations = _read_dictionary(dictionary, bitext, config) if dictionary else bitext
        return _MAPPINGS[mapping](space, translations, seed)
    if kind in _LEARNT:
        if not rest.isdecimal() or not int(rest):
            raise UserError(f"initial.vectors expects a number of dimensions, as {kind}:300, got {name!r}")
        words = _LEARNT[kind](bitext, int(rest), seed)
        return dict.fromkeys(bitext.counts, words)
    return _read(name, list(bitext.counts))


def _read_dictionary(path: str, bitext: Bitext, config: TextConfig) -> Bitext:
    """Reads pairs of words, in the order of the languages of `bitext`; leaves longer entries out."""
    entries = [(record.source, record.target) for record, _ in read_parallel(Path(path))]
    sources, targets = (_tokenized([entry[side] for entry in entries], config) for side in (0, 1))
    pairs = [pair for pair in zip(sources, targets, strict=True) if max(map(len, pair)) == 1]
    return Bitext({next(iter(bitext.sides)): ([a for a, _ in pairs], [b for _, b in pairs])}, bitext.counts)


def _read(pattern: str, languages: Sequence[str]) -> Space:
    space: Space
    if "{}" in pattern:
        space = {language: read_vectors(Path(pattern.replace("{}", language))) for language in languages}
    else:
        space = _by_tag(read_vectors(Path(pattern)), languages)
    widths = {language: words.rows.shape[1] for language, words in space.items()}
    if len(set(widths.values())) > 1:
        raise UserError(f"vectors of one space must be as wide in every language, but {pattern} has {widths}")
    return space


def _by_tag(words: Words, languages: Sequence[str]) -> Space:
    """Words of all languages, or of the one that each is tagged with, as "en:house"."""
    tagged: dict[str, dict[str, int]] = {language: {} for language in languages}
    for word, place in words.places.items():
        language, colon, plain = word.partition(":")
        if not (colon and plain and language in tagged):
            return dict.fromkeys(languages, words)
        tagged[language][plain] = place
    if empty := [language for language, places in tagged.items() if not places]:
        raise UserError(f"words of {', '.join(languages)} are expected, but none is tagged {empty[0]}:")
    return {language: Words(places, words.rows) for language, places in tagged.items()}


def read_vectors(path: Path) -> Words:
    """Reads word2vec's, fastText's or GloVe's text (.vec or .txt), or binary (.bin), perhaps packed.

    Raises:
        UserError: There is no such file, or it is damaged.
    """
    is_text = re.search(rf"\.(?i:vec|txt){PACKED}$", path.name)
    models = None if is_text else library("gensim.models", "gensim", "vectors")
    try:
        with path.open("rb") as file:
            blocks = split_blocks(unpacked(file, path), b"\n", MAX_LINE)
            lines = (line or b"" for block in blocks for line in block)
            words = _read_text(lines) if is_text else _read_binary(path, next(lines, b""), models)
    except UserError:
        raise
    except _DAMAGED as error:
        raise UserError(
            f"{path} must hold vectors of words, as word2vec, fastText or GloVe write them: {error}"
        ) from error
    # Tokens are in NFC. A word that is there in several forms has the row of its NFC.
    places = {normal_form(word): place for word, place in words.places.items()}
    places.update((word, place) for word, place in words.places.items() if word in places)
    return Words(places, words.rows)


def _read_binary(path: Path, first_line: bytes, models: Any) -> Words:
    """Reads word2vec's format, which begins with two numbers, or fastText's."""
    if len(header := first_line.split()) == 2:
        keyed = models.KeyedVectors.load_word2vec_format(str(path), binary=True)
        if len(keyed.key_to_index) != int(header[0]):
            raise ValueError(f"{int(header[0])} different words are expected, got {len(keyed.key_to_index)}")
    else:
        keyed = models.fasttext.load_facebook_vectors(str(path))
    if not (finite := np.isfinite(keyed.vectors).all(axis=1)).all():
        raise ValueError(f"{keyed.index_to_key[int(np.argmin(finite))]!r} has numbers that are not finite")
    return Words(keyed.key_to_index, keyed.vectors)


def _read_text(file: Iterable[bytes]) -> Words:
    """Reads a word and its numbers a line; gensim's reader takes lines of any width, and words twice."""
    places: dict[str, int] = {}
    rows = list[Matrix]()
    dim, count = 0, None
    for line, raw in enumerate(file, 1):
        word, *numbers = raw.decode("utf-8", "replace").rstrip().split(" ")
        if line == 1 and len(numbers) == 1 and word.isdecimal():
            count, dim = int(word), int(numbers[0])
            continue
        dim = dim or len(numbers)
        row = np.array(numbers, np.float32)
        if len(row) != dim or not np.isfinite(row).all():
            raise ValueError(f"line {line}, of {word!r}, expects {dim} finite numbers, has {len(row)}")
        if word in places:
            raise ValueError(f"line {line} has {word!r} for the second time")
        places[word] = len(rows)
        rows.append(row)
    if not rows or count not in (None, len(rows)):
        raise ValueError(f"{count or 'some'} words are expected, got {len(rows)}")
    return Words(places, np.stack(rows))


def _bivcd(bitext: Bitext, dim: int, seed: int) -> Words:
    """Skip-gram over translations whose words are mixed (Vulić and Moens 2015, sec. 3)."""
    word2vec = library("gensim.models", "gensim", "vectors").Word2Vec
    random = np.random.default_rng(seed)
    mixed = []
    for first, second in _translations(bitext):
        words = [*first, *second]
        mixed.append([words[place] for place in random.permutation(len(words))])
    logging.info("learning vectors of words from %d translations", len(mixed))
    workers = os.cpu_count() or 1
    keyed = word2vec(mixed, vector_size=dim, min_count=1, seed=seed, workers=workers, **_BIVCD).wv
    return Words(keyed.key_to_index, keyed.vectors)


def _cvm(bitext: Bitext, dim: int, seed: int) -> Words:
    """Sums of words near those of translations: max(0, m + |a - b|^2 - |a - n|^2).

    Hermann and Blunsom 2014, "Multilingual Models for Compositional Distributed Semantics", eq. 2 and 3: ADD,
    AdaGrad, and a margin of `dim`. One unrelated n for each pair.
    """
    words = list(dict.fromkeys(itertools.chain.from_iterable(bitext.counts.values())))
    places = {word: place for place, word in enumerate(words)}
    sides = [
        tf.ragged.constant([[places[word] for word in s] for s in side], tf.int32)
        for side in zip(*_translations(bitext), strict=True)
    ]
    random = tf.random.Generator.from_seed(seed)
    table = tf.Variable(0.1 * random.normal([len(words), dim]))
    squares = tf.Variable(tf.fill([len(words), dim], 0.1))

    def sums(rows: tf.Tensor, part: tf.RaggedTensor) -> tf.Tensor:
        return tf.math.segment_sum(tf.gather(rows, part.values), part.value_rowids())

    @tf.function(reduce_retracing=True)
    def step(first: tf.RaggedTensor, second: tf.RaggedTensor) -> None:
        ids, positions = tf.unique(tf.concat([first.values, second.values], axis=0))
        rows, of_first = tf.gather(table, ids), tf.size(first.values)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            a = sums(rows, first.with_values(positions[:of_first]))
            b = sums(rows, second.with_values(positions[of_first:]))
            loss = tf.reduce_sum(additive_hinge(a, b, tf.roll(b, 1, axis=0), float(dim)))
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=table.handle,
            accum=squares.handle,
            lr=_CVM["rate"],
            epsilon=1e-7,
            grad=tape.gradient(loss, rows),
            indices=ids,
        )

    for _, batch in _batches([sides[0].nrows().numpy()], _CVM, seed):
        step(tf.gather(sides[0], batch), tf.gather(sides[1], batch))
    return Words(places, table.numpy())


def additive_hinge(a: tf.Tensor, b: tf.Tensor, noise: tf.Tensor, margin: float) -> tf.Tensor:
    """max(0, m + |a - b|^2 - |a - n|^2) of rows of `[batch, dim]` (Hermann and Blunsom 2014, eq. 2)."""
    near, far = (tf.reduce_sum(tf.square(a - other), axis=1) for other in (b, noise))
    return tf.maximum(0.0, margin + near - far)


def cosine_hinge(s: tf.Tensor, t: tf.Tensor, u: tf.Tensor, margin: float) -> tf.Tensor:
    """max(0, m - cos(s, t) + cos(s, u)) of rows of `[batch, dim]` (Rücklé et al. 2018, A.1)."""
    s, t, u = (tf.math.l2_normalize(x, axis=1) for x in (s, t, u))
    return tf.maximum(0.0, margin - tf.reduce_sum(s * t, axis=1) + tf.reduce_sum(s * u, axis=1))


def _project(space: Space, bitext: Bitext, seed: int) -> Space:
    """Maps each language by tanh(W x + b), learnt on averages of translations (Rücklé et al. 2018, A.1)."""
    dim = next(iter(space.values())).rows.shape[1]
    layers = {}
    for place, language in enumerate(space):
        start = keras.initializers.GlorotUniform(seed=seed + place)
        layer = keras.layers.Dense(dim, activation="tanh", kernel_initializer=start, dtype="float32")
        layer.build((None, dim))
        layers[language] = layer
    variables = [v for layer in layers.values() for v in layer.trainable_variables]
    optimizer = keras.optimizers.Adam(_PROJECTION["rate"])
    optimizer.build(variables)
    dropout = keras.layers.Dropout(_DROPOUT, seed=seed, dtype="float32")

    @tf.function(reduce_retracing=True)
    def step(first: str, second: str, s: tf.Tensor, t: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            source = layers[first](dropout(s, training=True))
            target = layers[second](dropout(t, training=True))
            loss = tf.reduce_mean(cosine_hinge(source, target, tf.roll(target, 1, axis=0), _MARGIN))
        values = [v.value for v in variables]
        gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        optimizer.apply(gradients, variables)

    pairs = [*_averages(space, bitext)]
    for place, batch in _batches([len(sides[0]) for _, sides in pairs], _PROJECTION, seed):
        languages, sides = pairs[place]
        step(*languages, *(tf.constant(side[batch]) for side in sides))
    return {
        language: Words(words.places, np.asarray(layers[language](words.rows)))
        for language, words in space.items()
    }


def _cca(space: Space, bitext: Bitext, seed: int) -> Space:
    """Maps two languages to where averages of translations correlate most (Faruqui and Dyer 2014).

    They take pairs of single words, as a dictionary gives them here; Rücklé et al. 2018, A.1, Table 5, take
    aligned words.

    The SVD of the covariance of whitened sides gives at once all directions that scikit-learn's CCA looks for
    one after another: of 50,000 pairs of 300 numbers, all in a second, five by scikit-learn's CCA in 98.
    """
    if len(space) != 2:
        raise UserError(f"cca: maps two languages, got {', '.join(space)}; project: maps any number")
    decomposition = library("sklearn.decomposition", "scikit-learn", "vectors")
    cross_decomposition = library("sklearn.cross_decomposition", "scikit-learn", "vectors")
    (languages, averages) = next(_averages(space, bitext))
    count, dim = averages[0].shape
    if count <= dim:
        raise UserError(
            f"cca: of {dim} numbers needs more than {dim} translations of known words, got {count}"
        )
    whitened = [decomposition.PCA(whiten=True).fit(side) for side in averages]
    for pca in whitened:  # whitening would magnify the rounding errors of a constant direction
        variances = pca.explained_variance_
        variances[variances < _CONSTANT * variances[0]] = np.inf
    svd = cross_decomposition.PLSSVD(n_components=dim, scale=False)
    svd.fit(*(pca.transform(side) for pca, side in zip(whitened, averages, strict=True)))
    words = [space[language] for language in languages]
    mapped = svd.transform(*(pca.transform(w.rows) for pca, w in zip(whitened, words, strict=True)))
    return {
        language: Words(w.places, rows.astype(np.float32))
        for language, w, rows in zip(languages, words, mapped, strict=True)
    }


def _sif(space: Space, bitext: Bitext, seed: int) -> Space:
    """Weighs words by a / (a + p(w)) and takes the averages' first direction out (Arora et al. 2017, alg. 1).

    Both are linear, so that averages of the rows are SIF's vectors. The direction is that of the training
    translations.
    """
    weighted = {}
    for language, words in space.items():
        counts = bitext.counts[language]
        shares = np.array([counts[word] for word in words.places]) / counts.total()
        places = np.fromiter(words.places.values(), np.int64, len(words.places))
        rows = words.rows.copy()
        rows[places] *= (_SIF / (_SIF + shares))[:, None]
        weighted[language] = Words(words.places, rows)
    averages = np.concatenate([side for _, sides in _averages(weighted, bitext) for side in sides])
    _, directions = np.linalg.eigh(averages.T @ averages)
    first = directions[:, -1]
    return {
        language: Words(words.places, words.rows - np.outer(words.rows @ first, first))
        for language, words in weighted.items()
    }


_LEARNT: Mapping[str, Callable[[Bitext, int, int], Words]] = {"bivcd": _bivcd, "cvm": _cvm}
_MAPPINGS: Mapping[str, Callable[[Space, Bitext, int], Space]] = {
    "project": _project,
    "cca": _cca,
    "sif": _sif,
}


def _translations(bitext: Bitext) -> Iterator[tuple[list[str], list[str]]]:
    for first, second in bitext.sides.values():
        yield from zip(first, second, strict=True)


def _averages(space: Space, bitext: Bitext) -> Iterator[tuple[tuple[str, str], list[Matrix]]]:
    """The averages of translations that have known words on both sides."""
    for languages, sides in bitext.sides.items():
        pair = [space[language].averages(side) for language, side in zip(languages, sides, strict=True)]
        has_both = pair[0].any(axis=1) & pair[1].any(axis=1)
        yield languages, [side[has_both] for side in pair]


def _batches(
    counts: Sequence[int], settings: Mapping[str, Any], seed: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Batches of the rows of several tables, those of all mixed: a table's place and rows of it."""
    random = np.random.default_rng(seed)
    for _ in range(settings["epochs"]):
        batches = []
        for place, count in enumerate(counts):
            size, order = min(count, settings["batch"]), random.permutation(count)
            batches += [
                (place, order[begin : begin + size]) for begin in range(0, count - size + 1, max(1, size))
            ]
        yield from (batches[place] for place in random.permutation(len(batches)))


def _tokenized(texts: Sequence[str], config: TextConfig) -> list[list[str]]:
    words: dict[bytes, str] = {}
    rows: list[list[str]] = []
    for begin in range(0, len(texts), _CHUNK):
        tokens: Iterable[list[bytes]] = tokenize(tf.constant(texts[begin : begin + _CHUNK]), config).to_list()
        for row in tokens:
            rows.append([words.setdefault(word, word.decode()) for word in row])
    return rows
