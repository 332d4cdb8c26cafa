"""Word vectors to start from, read or learned (Rücklé et al. 2018, sec. 5.1, appendix A.1).

docs/teachers.md has the names of spaces: files, `bivcd:300`, `cvm:300`, and `project:`, `cca:` or
`sif:` before the name of another space. `cvm@DICTIONARY:` and `cca@DICTIONARY:` learn from pairs of
words.
"""

import itertools
import lzma
import re
import unicodedata
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

from xling_tf.client.batches import available_cpus
from xling_tf.compressed import PACKED, unpacked
from xling_tf.config import WordsConfig
from xling_tf.corpora.line_files import MAX_LINE, split_blocks
from xling_tf.corpora.readers import read_parallel
from xling_tf.encoders.base import WordVectors
from xling_tf.errors import UserError, as_user_error, library
from xling_tf.tokenizers.treebank import EMPTY_TOKEN, tokenize

Matrix = NDArray[np.float32]

# Our choices where the paper gives none: the number of translations that a space is learned from,
# and hyperparameters.
_MAX_PAIRS = 200_000
_BIVCD = {"sg": 1, "window": 5, "negative": 5, "epochs": 3}
# A.1: "convergence is usually achieved after less than 100 epochs". The authors' example has these
# settings too, but stops by the retrieval of held-out translations, not by their loss.
_PROJECTION: dict[str, Any] = {"batch": 128, "epochs": 100, "patience": 5, "rate": 1e-3}
_HELD_OUT = 0.02  # share of the translations whose loss says when a projection has converged
# Hermann and Blunsom 2014, sec. 5.1: batches of 10 or 50, steps of 0.01 or 0.05, 1, 10 or 50 noise
# sentences, and the same regularizer; but 100 epochs or more.
_CVM: dict[str, Any] = {"batch": 50, "epochs": 5, "rate": 0.05, "noise": 10, "regularizer": 1.0}
_MARGIN = 0.5  # A.1
_DROPOUT = 0.5  # A.1, "of the input embedding dimensions"
_CONSTANT = 1e-10  # variances below this share of the largest one are rounding errors of float32
# Errors of damaged files. gensim raises NotImplementedError for fastText classifiers.
_DAMAGED = (
    EOFError,
    OSError,
    OverflowError,
    NotImplementedError,
    ValueError,
    lzma.LZMAError,
    zlib.error,
)
_SIF = 1e-3  # a of Arora et al. 2017, sec. 3
_CHUNK = 50_000


class Words(NamedTuple):
    """Word vectors of one language: the row of each word, and the rows."""

    places: Mapping[str, int]
    rows: Matrix

    def averages(self, sentences: Sequence[Sequence[str]]) -> Matrix:
        """Returns the `[sentences, dim]` averages of known words; zeros where there are none."""
        bags = _bags(self.places, len(self.rows), sentences)
        return bags @ self.rows / np.maximum(bags.sum(axis=1), 1)[:, None]


def _bags(
    places: Mapping[str, int], num_rows: int, sentences: Sequence[Sequence[str]]
) -> sparse.csr_array:
    """Returns `[sentences, num_rows]` float32, 1 for each occurrence of a known word."""
    known = [[places[word] for word in words if word in places] for words in sentences]
    ends = np.cumsum([0, *map(len, known)])
    columns = np.fromiter(itertools.chain.from_iterable(known), np.int64, ends[-1])
    return sparse.csr_array(
        (np.ones(ends[-1], np.float32), columns, ends), shape=(len(known), num_rows)
    )


Space = Mapping[str, Words]  # by language


class Bitext(NamedTuple):
    """Training translations, split into words, and the counts of each language's words."""

    sides: Mapping[tuple[str, str], tuple[list[list[str]], list[list[str]]]]
    counts: Mapping[str, Counter[str]]

    @classmethod
    def read(cls, pairs: Mapping[str, Sequence[Any]], config: WordsConfig, seed: int) -> "Bitext":
        """Tokenizes a random choice of the translations of each language pair, such as "en-es"."""
        sides, counts = {}, dict[str, Counter[str]]()
        for languages, records in pairs.items():
            random = np.random.default_rng(seed)
            chosen = random.permutation(len(records))[:_MAX_PAIRS].tolist()
            pair = [records[place] for place in chosen]
            source, target = (_tokenized([record[s] for record in pair], config) for s in (0, 1))
            first, second = languages.split("-")
            sides[first, second] = source, target
            for language, side in ((first, source), (second, target)):
                counts.setdefault(language, Counter()).update(itertools.chain.from_iterable(side))
        return cls(sides, counts)


def vectors_from(
    translations: Mapping[str, Sequence[Any]], names: Sequence[str], config: WordsConfig, seed: int
) -> WordVectors:
    """Makes the spaces of these names from the translations of each language pair."""
    return fit_vectors(names, Bitext.read(translations, config, seed), config, seed)


def fit_vectors(
    names: Sequence[str], bitext: Bitext, config: WordsConfig, seed: int
) -> WordVectors:
    """Reads or learns the spaces of these names, and joins them."""
    spaces = [_make(name, bitext, config, seed) for name in names]
    totals = {language: max(1, counts.total()) for language, counts in bitext.counts.items()}
    shares = {
        language: {word: count / totals[language] for word, count in counts.items()}
        for language, counts in bitext.counts.items()
    }
    ranks = Counter[str]()
    for share in shares.values():
        ranks.update(share)
    for words in itertools.chain.from_iterable(space.values() for space in spaces):
        ranks.update(dict.fromkeys(words.places, 0))
    ranked = [word for word, _ in ranks.most_common() if word != EMPTY_TOKEN]
    vocabulary = [EMPTY_TOKEN, *ranked[: config.max_words]]
    # A word of several languages has the vector of the language that uses it most often.
    parts = [_rows(space, vocabulary, shares) for space in spaces]
    for name, (_, is_known) in zip(names, parts, strict=True):
        if not is_known.any():
            raise UserError(
                f"initial.vectors={name} must have words of the translations, but has none: use "
                "vectors of their languages, or set tokenizer.lowercase as in the file"
            )
    return WordVectors(
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
        if languages := [language for language, words in space.items() if word in words.places]:
            words = space[max(languages, key=lambda language: shares[language].get(word, 0.0))]
            rows[place], is_known[place] = words.rows[words.places[word]], True
    return rows, is_known


def _make(name: str, bitext: Bitext, config: WordsConfig, seed: int) -> Space:
    prefix, colon, rest = name.partition(":")
    kind, _, dictionary = prefix.partition("@")
    is_mapping = bool(colon) and kind in _MAPPINGS
    if not (is_mapping or kind in _LEARNED) or (dictionary and kind not in _FROM_WORDS):
        return _read(name, list(bitext.counts))
    translations = _read_dictionary(dictionary, bitext, config) if dictionary else bitext
    if is_mapping:
        return _MAPPINGS[kind](_make(rest, bitext, config, seed), translations, seed)
    if not rest.isdecimal() or not int(rest):
        raise UserError(f"initial.vectors expects a width, such as {prefix}:300, got {name!r}")
    return dict.fromkeys(bitext.counts, _LEARNED[kind](translations, int(rest), seed))


def _read_dictionary(path: str, bitext: Bitext, config: WordsConfig) -> Bitext:
    """Reads translations of single words, in the order of the languages of `bitext`."""
    entries = [(record.source, record.target) for record, _ in read_parallel(Path(path))]
    sources, targets = (_tokenized([entry[side] for entry in entries], config) for side in (0, 1))
    pairs = [pair for pair in zip(sources, targets, strict=True) if max(map(len, pair)) == 1]
    return Bitext(
        {next(iter(bitext.sides)): ([a for a, _ in pairs], [b for _, b in pairs])}, bitext.counts
    )


def _read(pattern: str, languages: Sequence[str]) -> Space:
    space: Space
    if "{}" in pattern:
        space = {code: read_vectors(Path(pattern.replace("{}", code))) for code in languages}
    else:
        space = _by_tag(read_vectors(Path(pattern)), languages)
    widths = {language: words.rows.shape[1] for language, words in space.items()}
    if len(set(widths.values())) > 1:
        raise UserError(
            f"vectors of a space must have the same width in all languages, got {widths}: {pattern}"
        )
    return space


def _by_tag(words: Words, languages: Sequence[str]) -> Space:
    """Separates languages by tags ("en:house", "en_house"); without, they share all words."""
    tagged: dict[str, dict[str, int]] = {language: {} for language in languages}
    for word, place in words.places.items():
        language, *plain = re.split("[:_]", word, maxsplit=1)
        if not any(plain) or language not in tagged:
            return dict.fromkeys(languages, words)
        tagged[language][plain[0]] = place
    if empty := [language for language, places in tagged.items() if not places]:
        raise UserError(
            f"expected words of {', '.join(languages)}, but no word begins with {empty[0]}:"
        )
    return {language: Words(places, words.rows) for language, places in tagged.items()}


def read_vectors(path: Path) -> Words:
    """Returns the vectors in a text file (.vec, .txt) or binary file (.bin), plain or compressed.

    Raises:
        UserError: The file does not exist or is not one of word2vec, fastText or GloVe.
    """
    is_text = re.search(rf"\.(?i:vec|txt){PACKED}$", path.name)
    models: Any = None if is_text else library("gensim.models", "gensim", "vectors")
    message = f"{path} must be a file of word vectors, as word2vec writes it: {{error}}"
    with as_user_error(message, *_DAMAGED), path.open("rb") as file:
        blocks = split_blocks(unpacked(file, path), b"\n", MAX_LINE)
        lines = itertools.chain.from_iterable(blocks)
        first = next(lines, b"")
        # The numbers of words and dimensions; GloVe and binary files of fastText have none.
        header = first.split() if first and re.fullmatch(rb"\d+ \d+\s*", first) else None
        if is_text:
            places, rows = _read_text(lines if header else itertools.chain([first], lines))
            _require_shape(rows, header)
        else:
            if header:
                keyed = models.KeyedVectors.load_word2vec_format(str(path), binary=True)
            else:
                keyed = models.fasttext.load_facebook_vectors(str(path))
            places, rows = keyed.key_to_index, keyed.vectors
    if not rows.size or not np.isfinite(rows).all():
        raise UserError(f"{path} must have finite numbers after each word; download it again")
    # Tokens are in NFC. Of several forms of a word, the row of the composed one is used.
    in_nfc = {unicodedata.normalize("NFC", word): place for word, place in places.items()}
    in_nfc.update((word, place) for word, place in places.items() if word in in_nfc)
    return Words(in_nfc, rows)


def _read_text(lines: Iterable[bytes | None]) -> tuple[dict[str, int], Matrix]:
    """Reads lines of a word and its numbers; of equal words, the first is kept, as gensim does."""
    places, rows, width = dict[str, int](), list[Matrix](), None
    for line in lines:
        if line is None:
            raise ValueError(f"a line is longer than {MAX_LINE} bytes")
        if not line.strip():
            continue
        text = line.decode("utf-8", "replace").rstrip()
        width = text.count(" ") if width is None else width
        word, *numbers = text.rsplit(" ", width)  # GloVe's words may have spaces, such as ". . ."
        places.setdefault(word, len(rows))
        rows.append(np.array(numbers, np.float32))
    return places, np.stack(rows)


def _require_shape(rows: Matrix, header: Sequence[bytes] | None) -> None:
    if header and rows.shape != (expected := tuple(map(int, header))):
        raise ValueError(f"words and width are {rows.shape}, but its header says {expected}")


def _bivcd(bitext: Bitext, dim: int, seed: int) -> Words:
    """Learns skip-gram vectors from shuffled words of both sides (Vulić and Moens 2015, sec. 3)."""
    word2vec = library("gensim.models", "gensim", "vectors").Word2Vec
    random = np.random.default_rng(seed)
    mixed = []
    for first, second in _translations(bitext):
        words = [*first, *second]
        mixed.append([words[place] for place in random.permutation(len(words))])
    logging.info("learning word vectors from %d translations", len(mixed))
    keyed = word2vec(
        mixed, vector_size=dim, min_count=1, seed=seed, workers=available_cpus(), **_BIVCD
    ).wv
    return Words(keyed.key_to_index, keyed.vectors)


def _cvm(bitext: Bitext, dim: int, seed: int) -> Words:
    """Learns word vectors that sum to those of translations (ADD of Hermann and Blunsom 2014)."""
    # Eq. 2 and 3 with AdaGrad and a margin of `dim`. The regularizer, which is for a whole epoch,
    # is divided equally among the occurrences of a word.
    sides = [*zip(*_translations(bitext), strict=True)]
    words = dict.fromkeys(word for side in sides for sentence in side for word in sentence)
    places = {word: place for place, word in enumerate(words)}
    first, second = (_bags(places, len(places), side) for side in sides)
    decay = _CVM["regularizer"] / np.bincount(np.concatenate([first.indices, second.indices]))
    random = np.random.default_rng(seed)
    table = random.normal(0, 0.1, (len(places), dim)).astype(np.float32)
    squares = np.full_like(table, 0.1)
    for _ in range(_CVM["epochs"]):
        for _, batch in _epoch([first.shape[0]], _CVM["batch"], random):
            bags = sparse.vstack([first[batch], second[batch]])
            rows = np.unique(bags.indices)
            bags = bags[:, rows]
            gradients = bags.T @ additive_gradients(*np.split(bags @ table[rows], 2), margin=dim)
            gradients += (decay[rows] * bags.sum(axis=0))[:, None] * table[rows]
            squares[rows] += gradients**2
            table[rows] -= _CVM["rate"] * gradients / np.sqrt(squares[rows])
    return Words(places, table)


def additive_gradients(
    a: Matrix, b: Matrix, *, margin: float, noise: int = _CVM["noise"]
) -> Matrix:
    """Gradients of the sum of max(0, m + |a - b|^2 - |a - n|^2) for the rows of a, then of b."""
    # Sentence vectors a and b, `[batch, dim]`, are translations; n are the next `noise` rows of b
    # (eq. 2 of Hermann and Blunsom 2014).
    d_a, d_b = np.zeros_like(a), np.zeros_like(b)
    near = np.sum((a - b) ** 2, axis=1, keepdims=True)
    for shift in range(1, noise + 1):
        other = np.roll(b, -shift, axis=0)
        slope = 2 * (margin + near > np.sum((a - other) ** 2, axis=1, keepdims=True))
        d_a += slope * (other - b)
        d_b += slope * (b - a) + np.roll(slope * (a - other), shift, axis=0)
    return np.concatenate([d_a, d_b])


def cosine_hinge(s: tf.Tensor, t: tf.Tensor, u: tf.Tensor, margin: float) -> tf.Tensor:
    """Computes max(0, m - cos(s, t) + cos(s, u)) of `[batch, dim]` (Rücklé et al. 2018, A.1)."""
    s, t, u = (tf.math.l2_normalize(x, axis=1) for x in (s, t, u))
    return tf.maximum(0.0, margin - tf.reduce_sum(s * t, axis=1) + tf.reduce_sum(s * u, axis=1))


def _project(space: Space, bitext: Bitext, seed: int) -> Space:
    """Maps languages by tanh(W x + b), from averages of translations (Rücklé et al. 2018)."""
    dim = next(iter(space.values())).rows.shape[1]
    layers = {}
    for place, language in enumerate(space):
        start = keras.initializers.GlorotUniform(seed=seed + place)
        layer = keras.layers.Dense(
            dim, activation="tanh", kernel_initializer=start, dtype="float32"
        )
        layer.build((None, dim))
        layers[language] = layer
    variables = [v for layer in layers.values() for v in layer.trainable_variables]
    optimizer = keras.optimizers.Adam(_PROJECTION["rate"])
    optimizer.build(variables)
    dropout = keras.layers.Dropout(_DROPOUT, seed=seed, dtype="float32")

    @tf.function(reduce_retracing=True)
    def loss(languages: tuple[str, str], sides: Sequence[tf.Tensor], training: bool) -> tf.Tensor:
        source, target = (
            layers[language](dropout(side, training=training))
            for language, side in zip(languages, sides, strict=True)
        )
        return tf.reduce_mean(cosine_hinge(source, target, tf.roll(target, 1, axis=0), _MARGIN))

    @tf.function(reduce_retracing=True)
    def step(languages: tuple[str, str], sides: Sequence[tf.Tensor]) -> None:
        with tf.GradientTape() as tape:
            mean = loss(languages, sides, training=True)
        values = [v.value for v in variables]
        gradients = tape.gradient(mean, values, unconnected_gradients="zero")
        optimizer.apply(gradients, variables)

    train, held_out = [], []
    for languages, sides in _averages(space, bitext):
        count = max(2, int(_HELD_OUT * len(sides[0])))
        if len(sides[0]) <= count:
            raise UserError(f"project: needs translations of known words, got {len(sides[0])}")
        train.append((languages, [side[count:] for side in sides]))
        held_out.append((languages, [tf.constant(side[:count]) for side in sides]))
    random = np.random.default_rng(seed)

    def train_epoch() -> float:
        for place, batch in _epoch([len(s[0]) for _, s in train], _PROJECTION["batch"], random):
            languages, sides = train[place]
            step(languages, [tf.constant(side[batch]) for side in sides])
        return sum(float(loss(*pair, training=False)) for pair in held_out)

    _train_to_lowest(variables, train_epoch)
    return {
        language: Words(words.places, np.asarray(layers[language](words.rows)))
        for language, words in space.items()
    }


def _train_to_lowest(variables: Sequence[keras.Variable], train_epoch: Callable[[], float]) -> None:
    """Trains until the loss stops falling for some epochs; restores the lowest one's variables."""
    lowest, best_epoch, best = np.inf, 0, [v.numpy() for v in variables]
    for epoch in range(1, 1 + _PROJECTION["epochs"]):
        loss = train_epoch()
        if loss < lowest:
            lowest, best_epoch, best = loss, epoch, [v.numpy() for v in variables]
        elif epoch - best_epoch >= _PROJECTION["patience"]:
            break
    for variable, value in zip(variables, best, strict=True):
        variable.assign(value)
    logging.info(
        "the loss of held-out translations is lowest, %.4f, after %d epochs", lowest, best_epoch
    )


def _cca(space: Space, bitext: Bitext, seed: int) -> Space:
    """Maps two languages so that translations' averages correlate most (Faruqui and Dyer 2014)."""
    # Faruqui and Dyer learn from pairs of words, as `cca@FILE` does; Rücklé et al. 2018, A.1, Table
    # 5, from aligned words. The SVD of the covariance of whitened sides yields all directions in a
    # second; scikit-learn's CCA needs 20 seconds for each.
    if len(space) != 2:
        raise UserError(f"cca: maps two languages, got {', '.join(space)}; project: maps any")
    languages, averages = next(_averages(space, bitext))
    count, dim = averages[0].shape
    if count <= dim:
        raise UserError(f"cca: in {dim} dimensions needs more translations of known words: {count}")
    centres = [side.mean(axis=0) for side in averages]
    whiteners = []
    for side, centre in zip(averages, centres, strict=True):
        variances, directions = np.linalg.eigh((side - centre).T @ (side - centre) / (count - 1))
        # Whitening would magnify the rounding errors of a constant direction.
        variances[variances < _CONSTANT * variances[-1]] = np.inf
        whiteners.append(directions / np.sqrt(variances))
    parts = list(zip(languages, centres, whiteners, strict=True))
    first, second = ((side - c) @ w for side, (_, c, w) in zip(averages, parts, strict=True))
    left, _, right = np.linalg.svd(first.T @ second)
    return {
        language: Words(
            space[language].places, (space[language].rows - centre) @ whitener @ rotation
        )
        for (language, centre, whitener), rotation in zip(parts, (left, right.T), strict=True)
    }


def _sif(space: Space, bitext: Bitext, seed: int) -> Space:
    """Weights words by a / (a + p(w)), removes the first direction (Arora et al. 2017, alg. 1)."""
    # Both steps are linear, so that averages of the rows are SIF's sentence vectors.
    weighted = {}
    for language, words in space.items():
        counts = bitext.counts[language]
        shares = np.array([counts[word] for word in words.places]) / counts.total()
        places = np.fromiter(words.places.values(), np.int64, len(words.places))
        rows = words.rows.copy()
        rows[places] *= (_SIF / (_SIF + shares))[:, None]
        weighted[language] = Words(words.places, rows)
    averages = np.concatenate([side for _, sides in _averages(weighted, bitext) for side in sides])
    first = np.linalg.eigh(averages.T @ averages).eigenvectors[:, -1]
    return {
        language: Words(words.places, words.rows - np.outer(words.rows @ first, first))
        for language, words in weighted.items()
    }


_FROM_WORDS = ("cvm", "cca")  # learn from a dictionary too
_LEARNED: Mapping[str, Callable[[Bitext, int, int], Words]] = {"bivcd": _bivcd, "cvm": _cvm}
_MAPPINGS: Mapping[str, Callable[[Space, Bitext, int], Space]] = {
    "project": _project,
    "cca": _cca,
    "sif": _sif,
}


def _translations(bitext: Bitext) -> Iterator[tuple[list[str], list[str]]]:
    for first, second in bitext.sides.values():
        yield from zip(first, second, strict=True)


def _averages(space: Space, bitext: Bitext) -> Iterator[tuple[tuple[str, str], list[Matrix]]]:
    """Yields the averages of both sides of the translations that have known words on both."""
    for languages, sides in bitext.sides.items():
        pair = [space[language].averages(s) for language, s in zip(languages, sides, strict=True)]
        has_both = pair[0].any(axis=1) & pair[1].any(axis=1)
        yield languages, [side[has_both] for side in pair]


def _epoch(
    counts: Sequence[int], batch_size: int, random: np.random.Generator
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yields batches of several tables in random order: the position of a table, and rows of it."""
    batches = []
    for place, count in enumerate(counts):
        size, order = min(count, batch_size), random.permutation(count)
        batches += [
            (place, order[begin : begin + size])
            for begin in range(0, count - size + 1, max(1, size))
        ]
    yield from (batches[place] for place in random.permutation(len(batches)))


def _tokenized(texts: Sequence[str], config: WordsConfig) -> list[list[str]]:
    words: dict[bytes, str] = {}
    rows: list[list[str]] = []
    for begin in range(0, len(texts), _CHUNK):
        for row in tokenize(tf.constant(texts[begin : begin + _CHUNK]), config).to_list():
            rows.append([words.setdefault(word, word.decode()) for word in row])
    return rows
