"""Document classification within and across languages, on pooled vectors of a document's parts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.line_files import is_unspaced
from xling_tf.corpora.sentences import sentences
from xling_tf.evaluators import classifiers, data
from xling_tf.evaluators.encoding import Encode, as_embedder, encode_checked

# Yu et al. 2018.
_BEST = "sentences-mean"  # the best in Table 5, and used in Tables 4 and 6
_TUNING_LANGUAGE = "en"  # where training sets of several languages are joined (sec. 5.2)
_SPLITS = ("train", "dev", "test")
WINDOW_WORDS, STRIDE_WORDS = 128, 64  # sec. 5.1
# News articles have about a dozen sentences; only the beginning of a book is encoded.
MAX_PARTS = 64
_DOCUMENTS_AT_ONCE = 2000  # number of documents whose parts are encoded in one call


class DocumentClassification:
    """Accuracy of logistic regression on documents, trained in one language and tested in each.

    A document is divided into sentences (by sentencex; in the paper at ".!?") or windows of words,
    whose vectors are pooled by mean or maximum (Yu et al. 2018, sec. 5.1, Table 5). Zero-shot
    transfer is tuned on the development set of the training language, targeted transfer on that of
    the test language (sec. 5.2, Table 6). Documents are (label, text) rows by language (ISO code)
    and split.
    """

    def __init__(self, documents: Mapping[str, Mapping[str, data.Rows]], *, name: str) -> None:
        self.name = name
        # Sorted, since the rounding of a solver depends on the order of the rows.
        self._documents = {
            language: {split: sorted(splits[split]) for split in _SPLITS}
            for language, splits in sorted(documents.items())
        }
        for splits in self._documents.values():
            classifiers.require_trained(name, splits["train"], [*splits["dev"], *splits["test"]])
        languages = list(self._documents)
        self.protocol: Mapping[str, Any] = {
            "sentencex": version("sentencex"),
            "languages": languages,
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<segmentation>-<pooling>/<zero_shot, targeted or
        leave_one_out>/<languages>/accuracy".

        "leave_one_out" trains on all languages but the one that is tested.
        """
        encode_parts = partial(encode_checked, as_embedder(encode).encode_raw)
        scores: dict[str, float] = {}
        for segmentation in ("sentences", "windows"):
            pooled: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
            for language, splits in self._documents.items():
                for split, rows in splits.items():
                    y = np.array([label for label, _ in rows])
                    parts = [divide(text, language, segmentation) for _, text in rows]
                    for pooling, x in pool(encode_parts, parts).items():
                        pooled[pooling][language][split] = x, y
            for pooling, sets in pooled.items():
                method = f"{segmentation}-{pooling}"
                for name, jobs in _jobs(sets, only_zero_shot=method != _BEST).items():
                    accuracies = classifiers.mean_accuracies(jobs)
                    accuracies = {"all": float(np.mean([*accuracies.values()])), **accuracies}
                    scores |= {
                        f"{method}/{name}/{key}/accuracy": value
                        for key, value in accuracies.items()
                    }
        return scores


def _jobs(
    sets: Mapping[str, Mapping[str, classifiers.Labelled]], *, only_zero_shot: bool
) -> dict[str, list[classifiers.Job]]:
    """The classifiers of each kind of transfer, of the sets by language and split."""

    def job(trained: Iterable[str], tuned: str, tested: Mapping[str, str]) -> classifiers.Job:
        x, y = map(np.concatenate, zip(*(sets[code]["train"] for code in trained), strict=True))
        tests = {name: sets[code]["test"] for name, code in tested.items()}
        return classifiers.Job(classifiers.fit_logistic, (x, y), sets[tuned]["dev"], tests)

    names = {pair: classifiers.pair_name(*pair) for pair in product(sets, repeat=2)}
    jobs = {"zero_shot": [job([one], one, {names[one, o]: o for o in sets}) for one in sets]}
    if not only_zero_shot:
        jobs["targeted"] = [job([one], to, {name: to}) for (one, to), name in names.items()]
        if _TUNING_LANGUAGE in sets and len(sets) > 2:
            left_out = {code: [other for other in sets if other != code] for code in sets}
            jobs["leave_one_out"] = [
                job(others, _TUNING_LANGUAGE, {c: c}) for c, others in left_out.items()
            ]
    return jobs


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    for name, tables in data.find_tables(folder / "documents").items():
        complete = {code: splits for code, splits in tables.items() if set(_SPLITS) <= set(splits)}
        if complete:
            yield data.tables_dataset(name, complete, DocumentClassification)


SUITE = data.Suite(
    name="documents",
    title="Document classification within and across languages",
    source="Yu et al. 2018, Tables 4, 5 and 6; Schwenk and Li 2018",
    layout=(
        "documents/<name>.<language>.train.tsv, .dev.tsv, .test.tsv (label TAB text, so named in "
        "line 1)"
    ),
    find=_find,
)


def divide(text: str, language: str, segmentation: str) -> list[str]:
    """Divides a document into "sentences", by sentencex, or "windows" of 128 words, every 64 words.

    Returns:
        From 1 to `MAX_PARTS` parts.

    Examples:
        >>> divide("Dr. Smith left. Why?", "en", "sentences")
        ['Dr. Smith left.', 'Why?']
    """
    if segmentation == "sentences":
        return sentences(text, language)[:MAX_PARTS] or [""]
    separator = "" if is_unspaced(language) else " "  # without spaces, words are characters
    words = text.split() if separator else list(text)
    starts = range(0, max(len(words) - STRIDE_WORDS, 1), STRIDE_WORDS)
    windows = [separator.join(words[start : start + WINDOW_WORDS]) for start in starts]
    return windows[:MAX_PARTS] or [""]


def pool(encode: Encode, documents: Sequence[Sequence[str]]) -> dict[str, NDArray[np.float32]]:
    """Encodes documents that are already divided into parts.

    Returns:
        The "mean" and the "max" of the parts' vectors, `[documents, dim]` each.

    Examples:
        >>> count_letters = lambda texts: np.array([[len(text)] for text in texts])
        >>> pool(count_letters, [["a", "abc"]])["mean"].tolist()
        [[2.0]]
    """
    means, maxima = [], []
    for start in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        chunk = documents[start : start + _DOCUMENTS_AT_ONCE]
        texts = dict.fromkeys(part for parts in chunk for part in parts)
        row_of = {text: row for row, text in enumerate(texts)}
        vectors = np.asarray(encode(list(texts)), np.float32)
        for parts in chunk:
            part_vectors = vectors[[row_of[part] for part in parts]]
            means.append(part_vectors.mean(axis=0))
            maxima.append(part_vectors.max(axis=0))
    return {"mean": np.array(means, np.float32), "max": np.array(maxima, np.float32)}
