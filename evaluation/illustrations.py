"""What `report.py` draws of a system: sentences on a plane, their similarities, wrong neighbours.

These suites give no scores but JSON to be drawn, small enough for a results file.
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
from xling_tf.evaluators.data import Dataset, Missing, Suite, find_tables, read_table
from xling_tf.evaluators.documents import divide, pool
from xling_tf.evaluators.encoding import Encode, NotApplicableError, encode_units
from xling_tf.evaluators.parallel_texts import (
    NO_BITEXTS,
    ParallelTexts,
    Rows,
    datasets,
    find_bitexts,
    find_multilingual,
)

Columns = Mapping[str, Sequence[str]]  # by language, row by row translations of each other
Draw = Callable[[Columns, Encode, int], dict[str, Any]]

_LONGEST = 200  # characters of a text that are kept
_ERRORS = 12
_CORPORA = 4  # that are drawn: a results file is to stay below a megabyte
_PERPLEXITY = 30.0  # scikit-learn's default
_SAME = 1e-6
_DOCUMENTS = 300
_PLANE = {"method": "t-SNE of unit vectors", "perplexity": _PERPLEXITY}


class Illustration:
    """What `draw` makes of sentences that translate each other; more rows than `most_rows` are sampled."""

    def __init__(
        self,
        draw: Draw,
        rows: Rows,
        languages: Sequence[str],
        *,
        name: str,
        most_rows: int,
        protocol: Mapping[str, Any],
        seed: int,
    ) -> None:
        self.name = name
        different = sorted({row for row in rows if all(row)})
        if len(different) < 2:
            raise UserError(
                f"{name} must have two different rows of sentences to be drawn, but has "
                f"{len(different)}; give more data"
            )
        order = np.random.default_rng(seed).permutation(len(different))[:most_rows]
        texts = zip(*(different[place] for place in order), strict=True)
        self._columns = dict(zip(languages, texts, strict=True))
        self._draw, self._seed = draw, seed
        self.protocol: Mapping[str, Any] = {**protocol, "seed": seed, "num_rows": len(order)}

    def __call__(self, encode: Encode) -> dict[str, Any]:
        """Returns "languages" and what is to be drawn of the system's vectors."""
        return {"languages": [*self._columns], **self._draw(self._columns, encode, self._seed)}


def sentence_map(columns: Columns, encode: Encode, seed: int) -> dict[str, Any]:
    """Lays sentences out on a plane by t-SNE: the "texts", "x" and "y" (0 to 1) of each language.

    In a space that languages share, a sentence lies with its translations and not with its language.
    """
    places = _on_a_plane(np.concatenate(_unit_vectors(encode, columns.values())), seed)
    parts = zip(columns.items(), np.split(places, len(columns)), strict=True)
    return {"points": {language: _points(texts, own) for (language, texts), own in parts}}


class DocumentMap:
    """Lays documents of a language out on a plane by t-SNE: the "texts", "x" and "y" (0 to 1) of each class.

    Yu et al. 2018, figure 1: their vectors are the means of their sentences'.

    Args:
        documents: (label, text) rows; of more than 300, so many are drawn at random.
        language: ISO code.
        name: What results call this evaluator.
        seed: Of the sample and of the plane.
    """

    def __init__(self, documents: Sequence[tuple[str, ...]], language: str, *, name: str, seed: int) -> None:
        self.name = name
        different = sorted(set(documents))
        order = np.random.default_rng(seed).permutation(len(different))[:_DOCUMENTS]
        self._documents = sorted(different[place] for place in order)
        if len(self._documents) < 2:
            raise UserError(f"{name} must have two different documents to be drawn; give more data")
        self._language, self._seed = language, seed
        self.protocol: Mapping[str, Any] = {**_PLANE, "seed": seed, "num_documents": len(self._documents)}

    def __call__(self, encode: Encode) -> dict[str, Any]:
        """Returns what is to be drawn of the system's vectors."""
        parts = [divide(text, self._language, "sentences") for _, text in self._documents]
        vectors = pool(encode, parts)["mean"].astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        places = _on_a_plane(vectors / np.maximum(lengths, _SAME), self._seed)
        labels = np.array([label for label, _ in self._documents])
        texts = np.array([text for _, text in self._documents], object)
        own = {label: labels == label for label in dict.fromkeys(labels.tolist())}
        return {"points": {label: _points(texts[is_own], places[is_own]) for label, is_own in own.items()}}


def _on_a_plane(units: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    if np.ptp(units, axis=0).max() < _SAME:
        raise NotApplicableError("all its vectors are the same")
    perplexity = min(_PERPLEXITY, (len(units) - 1) / 3)
    # For so few points, threads wait for each other most of the time.
    with single_threaded():
        from sklearn.manifold import TSNE

        places = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(units)
    return (places - places.min(axis=0)) / np.ptp(places, axis=0)


def _points(texts: Iterable[str], places: NDArray[np.float64]) -> dict[str, Any]:
    x, y = places.round(4).T.tolist()
    return {"texts": list(map(_cut, texts)), "x": x, "y": y}


def heat_map(columns: Columns, encode: Encode, seed: int) -> dict[str, Any]:
    """The cosine of each sentence of one language (rows) with each of the other's (columns)."""
    first, second = _unit_vectors(encode, columns.values())
    return {
        "texts": [list(map(_cut, texts)) for texts in columns.values()],
        "similarities": (first @ second.T).round(3).tolist(),
    }


def retrieval_errors(columns: Columns, encode: Encode, seed: int) -> dict[str, Any]:
    """Sentences that find something else than their translation, where that leads by most."""
    queries, translations = columns.values()
    answers: defaultdict[str, list[str]] = defaultdict(list)
    for query, answer in zip(queries, translations, strict=True):
        answers[query].append(answer)
    candidates = sorted(set(translations))
    place_of = {text: place for place, text in enumerate(candidates)}
    units, candidate_units = _unit_vectors(encode, [list(answers), candidates])
    errors = []
    for query, scores in zip(answers, units @ candidate_units.T, strict=True):
        found = int(np.argmax(scores))
        right = max((place_of[text] for text in answers[query]), key=scores.__getitem__)
        if scores[found] > scores[right]:
            errors.append((float(scores[found] - scores[right]), query, found, right, scores))
    errors.sort(key=lambda error: (-error[0], error[1]))
    shown = [
        {
            "query": _cut(query),
            "found": _cut(candidates[found]),
            "right": _cut(candidates[right]),
            "found_score": round(float(scores[found]), 3),
            "right_score": round(float(scores[right]), 3),
        }
        for _, query, found, right, scores in errors[:_ERRORS]
    ]
    return {"num_queries": len(answers), "num_errors": len(errors), "errors": shown}


def _unit_vectors(encode: Encode, columns: Iterable[Sequence[str]]) -> list[NDArray[np.float64]]:
    return encode_columns(partial(encode_units, encode), columns, np.float64)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _corpora(folder: Path, most_languages: int) -> list[ParallelTexts]:
    """The corpora of most languages, then one for each pair not among theirs."""
    found = [*find_multilingual(folder), *find_bitexts(folder)]
    found = [texts for texts in found if len(texts.languages) <= most_languages]
    covered: list[set[str]] = []
    chosen = []
    for texts in sorted(found, key=lambda texts: (-len(texts.languages), texts.name)):
        if not any(covering >= set(texts.languages) for covering in covered):
            covered.append(set(texts.languages))
            chosen.append(texts)
    return chosen[:_CORPORA]


def _suite(
    draw: Draw, title: str, source: str, *, most_languages: int = 2, most_rows: int, **protocol: Any
) -> Suite:
    def find(folder: Path, seed: int) -> Iterable[Dataset | Missing]:
        make = partial(Illustration, draw, most_rows=most_rows, protocol=protocol, seed=seed)
        return datasets(_corpora(folder, most_languages), make) or [NO_BITEXTS]

    return Suite(name=draw.__name__, title=title, source=source, find=find, illustrates=True)


def _find_documents(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    found = find_tables(folder / "documents")
    for name, tables in found.items():
        for language, splits in tables.items():
            if table := splits.get("test"):
                stem = f"{name}.{language}"
                load = partial(_load_documents, table, language, stem, seed)
                yield Dataset(name=stem, files=(table,), load=load)
    if not found:
        expected = "documents/<name>.<language>.test.tsv (label TAB text, so named in line 1)"
        yield Missing(name="documents", expected=expected)


def _load_documents(table: Path, language: str, name: str, seed: int) -> DocumentMap:
    return DocumentMap(read_table(table, ("label", "text")), language, name=name, seed=seed)


SUITES = {
    suite.name: suite
    for suite in (
        _suite(
            sentence_map,
            "Parallel sentences on a plane",
            "Yu et al. 2018, figure 1, of documents; by language",
            most_languages=6,
            most_rows=150,
            **_PLANE,
        ),
        Suite(
            name="document_map",
            title="Documents of a language on a plane, by class",
            source="Yu et al. 2018, figure 1",
            find=_find_documents,
            illustrates=True,
        ),
        _suite(
            heat_map,
            "Similarities of some sentences and translations",
            "none; as the published models' pages show them",
            most_rows=12,
            similarity="cosine",
        ),
        _suite(
            retrieval_errors,
            "Sentences that find something else than their translation",
            "Yu et al. 2018, Table 3",
            most_rows=2000,
            similarity="cosine",
        ),
    )
}
