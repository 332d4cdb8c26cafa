"""Suites whose results `report.py` draws: maps of sentences and documents, heat maps, retrieval errors.

They return JSON instead of scores, small enough for a results file.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import encode_columns, single_threaded
from xling_tf.evaluators.data import (
    BITEXT_LAYOUT,
    Dataset,
    ParallelTexts,
    Rows,
    Suite,
    find_bitexts,
    find_multilingual,
    find_tables,
    parallel_datasets,
    read_table,
)
from xling_tf.evaluators.documents import divide, pool
from xling_tf.evaluators.encoding import Encode, NotApplicableError, as_embedder, encode_checked, encode_units

Columns = Mapping[str, Sequence[str]]  # texts by language, which translate each other row by row, or labels
Draw = Callable[[Columns, Encode, int], dict[str, Any]]

_MAX_CHARACTERS = 200  # of a text in the results
_MAX_ERRORS = 12
_MAX_NEAREST, _NUM_NEAREST = 4, 3  # queries, and candidates of each
_MAX_CORPORA = 4  # keeps a results file below a megabyte
_MAX_DOCUMENTS = 300
_PERPLEXITY = 30.0  # scikit-learn's default
_SAME = 1e-6  # components that differ by less are the same


class Illustration:
    """Draws sentences that translate each other, or documents and their labels.

    Args:
        draw: Function from the columns by name, an encode function and a seed to JSON.
        rows: Rows of a text for each name.
        names: The languages, or "label" and "text".
        name: Its name in results.
        max_rows: Largest number of rows; more are sampled.
        seed: Seed of the sample and of `draw`.
    """

    illustrates = True

    def __init__(
        self, draw: Draw, rows: Rows, names: Sequence[str], *, name: str, max_rows: int, seed: int
    ) -> None:
        self.name = name
        sample = _sample({row for row in rows if all(row)}, max_rows, name, seed)
        self._columns = dict(zip(names, zip(*sample, strict=True), strict=True))
        self._draw, self._seed = draw, seed
        self.protocol: Mapping[str, Any] = {"seed": seed, "num_rows": len(sample)}

    def __call__(self, encode: Encode) -> dict[str, Any]:
        """Returns the result of `draw`."""
        return self._draw(self._columns, encode, self._seed)


def sentence_map(columns: Columns, encode: Encode, seed: int) -> dict[str, Any]:
    """Places sentences on a plane by t-SNE: "texts", "x" and "y" (0 to 1) by language.

    In a space that languages share, a sentence is near its translations, not near others of its language.
    """
    points = _on_a_plane(np.concatenate(_unit_vectors(encode, columns.values())), seed)
    parts = zip(columns.items(), np.split(points, len(columns)), strict=True)
    return {"points": {language: _points(texts, part) for (language, texts), part in parts}}


def document_map(language: str, columns: Columns, encode: Encode, seed: int) -> dict[str, Any]:
    """Places documents on a plane by t-SNE of the means of their sentences (Yu et al. 2018, figure 1).

    Returns "texts", "x" and "y" (0 to 1) by label.
    """
    parts = [divide(text, language, "sentences") for text in columns["text"]]
    vectors = pool(partial(encode_checked, as_embedder(encode).encode_raw), parts)["mean"]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    points = _on_a_plane(vectors / np.maximum(lengths, _SAME), seed)
    labels, texts = (np.array(columns[name], object) for name in ("label", "text"))
    is_in = {label: labels == label for label in sorted(set(columns["label"]))}
    return {"points": {label: _points(texts[rows], points[rows]) for label, rows in is_in.items()}}


def heat_map(columns: Columns, encode: Encode, seed: int) -> dict[str, Any]:
    """The cosines of the sentences of one language (rows) and those of another (columns)."""
    first, second = _unit_vectors(encode, columns.values())
    return {
        "texts": [list(map(_shorten, texts)) for texts in columns.values()],
        "similarities": (first @ second.T).round(3).tolist(),
    }


def retrieval_errors(columns: Columns, encode: Encode, seed: int) -> dict[str, Any]:
    """Sentences whose nearest neighbour is not a translation, and the nearest three of some.

    Returns "errors", those with the largest lead first, and "nearest", the first queries of the sample with
    three candidates each, best first.
    """
    queries, translations = columns.values()
    answers: defaultdict[str, list[str]] = defaultdict(list)
    for query, answer in zip(queries, translations, strict=True):
        answers[query].append(answer)
    candidates = sorted(set(translations))
    place_of = {text: place for place, text in enumerate(candidates)}
    units, candidate_units = _unit_vectors(encode, [list(answers), candidates])
    errors: list[tuple[float, str, dict[str, Any]]] = []
    nearest: list[dict[str, Any]] = []
    for query, scores in zip(answers, units @ candidate_units.T, strict=True):
        right = max((place_of[text] for text in answers[query]), key=scores.__getitem__)

        def scored(place: int, scores: NDArray[np.float64] = scores) -> tuple[str, float]:
            return _shorten(candidates[place]), round(float(scores[place]), 3)

        best = np.argsort(-scores, kind="stable")[:_NUM_NEAREST].tolist()
        if len(nearest) < _MAX_NEAREST:
            hits = [(*scored(place), candidates[place] in answers[query]) for place in best]
            nearest.append({"query": _shorten(query), "found": hits})
        if scores[best[0]] > scores[right]:
            (found, found_score), (text, right_score) = scored(best[0]), scored(right)
            pair = {"query": _shorten(query), "found": found, "right": text}
            error = {**pair, "found_score": found_score, "right_score": right_score}
            errors.append((float(scores[right] - scores[best[0]]), query, error))
    errors.sort(key=lambda item: item[:2])
    shown = [error for *_, error in errors[:_MAX_ERRORS]]
    counts = {"num_queries": len(answers), "num_errors": len(errors)}
    return {**counts, "errors": shown, "nearest": nearest}


def _sample(rows: set[tuple[str, ...]], max_rows: int, name: str, seed: int) -> list[tuple[str, ...]]:
    if len(rows) < 2:
        raise UserError(f"{name} must have two different rows to be drawn, but has {len(rows)}")
    distinct = sorted(rows)
    order = np.random.default_rng(seed).permutation(len(distinct))[:max_rows]
    return [distinct[place] for place in order]


def _on_a_plane(units: NDArray[np.floating], seed: int) -> NDArray[np.floating]:
    if np.ptp(units, axis=0).max() < _SAME:
        raise NotApplicableError("all its vectors are the same")
    perplexity = min(_PERPLEXITY, (len(units) - 1) / 3)
    # With so few points, threads mostly wait for each other.
    with single_threaded():
        from sklearn.manifold import TSNE

        points = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(units)
    return (points - points.min(axis=0)) / np.ptp(points, axis=0)


def _points(texts: Iterable[str], points: NDArray[np.floating]) -> dict[str, Any]:
    x, y = points.astype(float).round(4).T.tolist()
    return {"texts": list(map(_shorten, texts)), "x": x, "y": y}


def _unit_vectors(encode: Encode, columns: Iterable[Sequence[str]]) -> list[NDArray[np.float64]]:
    return encode_columns(partial(encode_units, encode), columns, np.float64)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


def _corpora(folder: Path, max_languages: int) -> list[ParallelTexts]:
    """The corpora with the most languages, and one for each pair of languages that is in none of them."""
    texts = [*find_multilingual(folder), *find_bitexts(folder)]
    covered: list[set[str]] = []
    chosen = []
    for corpus in sorted(texts, key=lambda corpus: (-len(corpus.languages), corpus.name)):
        languages = set(corpus.languages)
        if 2 <= len(languages) <= max_languages and not any(others >= languages for others in covered):
            covered.append(languages)
            chosen.append(corpus)
    return chosen[:_MAX_CORPORA]


def _suite(draw: Draw, title: str, source: str, *, max_languages: int = 2, max_rows: int) -> Suite:
    def find(folder: Path, seed: int) -> Iterable[Dataset]:
        make = partial(Illustration, draw, max_rows=max_rows, seed=seed)
        return parallel_datasets(_corpora(folder, max_languages), make)

    return Suite(name=draw.__name__, title=title, source=source, layout=BITEXT_LAYOUT, find=find)


def _find_documents(folder: Path, seed: int) -> Iterator[Dataset]:
    def load(table: Path, language: str, name: str) -> Illustration:
        draw, names = partial(document_map, language), ("label", "text")
        rows = read_table(table, names)
        return Illustration(draw, rows, names, name=name, max_rows=_MAX_DOCUMENTS, seed=seed)

    for name, tables in find_tables(folder / "documents").items():
        for language, splits in tables.items():
            if table := splits.get("test"):
                stem = f"{name}.{language}"
                yield Dataset(name=stem, files=(table,), load=partial(load, table, language, stem))


_SUITES = (
    _suite(
        sentence_map,
        "Parallel sentences on a plane",
        "Yu et al. 2018, figure 1, of documents; by language",
        max_languages=6,
        max_rows=150,
    ),
    Suite(
        name="document_map",
        title="Documents of a language on a plane, by class",
        source="Yu et al. 2018, figure 1",
        layout="documents/<name>.<language>.test.tsv (label TAB text, so named in line 1)",
        find=_find_documents,
    ),
    _suite(
        heat_map,
        "Similarities of some sentences and translations",
        "none; as on the published models' pages",
        max_rows=12,
    ),
    _suite(
        retrieval_errors,
        "Sentences whose nearest neighbour is not a translation, and the nearest three of some",
        "Yu et al. 2018, Table 3",
        max_rows=2000,
    ),
)
SUITES = {suite.name: suite for suite in _SUITES}
