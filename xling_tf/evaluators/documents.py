"""Document classification within and across languages: parts of documents encoded, then pooled."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.corpora.sentences import sentences
from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers
from xling_tf.evaluators.data import Dataset, Missing, Suite, Tables, find_tables, read_table
from xling_tf.evaluators.encoding import Encode

# Yu et al. 2018, sec. 5.1.
WINDOW_WORDS = 128
STRIDE_WORDS = 64
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th"})  # their windows are of characters
MAX_PARTS = 64  # of news about a dozen sentences are one document; a book is known by its beginning
_DOCUMENTS_AT_ONCE = 2000  # their parts are encoded together
_BEST = "sentences-mean"  # in Table 5, and used in Tables 4 and 6
_TUNING_LANGUAGE = "en"  # where training sets of several languages are joined (sec. 5.2)
_SPLITS = ("train", "dev", "test")

Labelled = Sequence[tuple[str, ...]]  # labels and texts
_Set = tuple[np.ndarray, np.ndarray]  # vectors and labels
_Sets = Mapping[str, Mapping[str, _Set]]  # by language and split
_Job = tuple[tuple[str, ...], str, str]  # languages to train on, to tune to and to test on


class DocumentClassification:
    """Accuracy of logistic regression on documents, trained in one language and tested in each.

    A document is divided into sentences (found by sentencex; in the paper by ".!?") or windows of words,
    whose vectors are pooled to one by mean or maximum (Yu et al. 2018, sec. 5.1, Table 5). Zero-shot
    transfer is tuned on the development set of the language that is trained on, targeted transfer on that
    of the language tested on (sec. 5.2, Table 6).

    Args:
        documents: (label, text) rows, by the language's ISO code and by split: "train", "dev", "test".
        name: What results call this evaluator.

    Raises:
        UserError: A split is empty, or a training set has one label only.
    """

    def __init__(self, documents: Mapping[str, Mapping[str, Labelled]], *, name: str) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "classifier": "logistic regression",
            **classifiers.LOGISTIC,
            "sentences": f"sentencex {version('sentencex')}",
            "window_words": WINDOW_WORDS,
            "stride_words": STRIDE_WORDS,
            "windows_of_characters": sorted(UNSPACED_LANGUAGES & set(documents)),
            "max_parts": MAX_PARTS,
            "num_documents": {
                language: {split: len(splits[split]) for split in _SPLITS}
                for language, splits in documents.items()
            },
        }
        # In one order, since a solver's rounding follows that of the rows.
        self._documents = {
            language: {split: sorted(splits[split]) for split in _SPLITS}
            for language, splits in sorted(documents.items())
        }
        for language, splits in self._documents.items():
            labels = {label for label, _ in splits["train"]}
            if len(labels) < 2 or not all(splits.values()):
                empty = [split for split, rows in splits.items() if not rows]
                came = f"none in {', '.join(empty)}" if empty else f"only {[*labels]} in training"
                raise UserError(
                    f"{name} must have documents in each split, and two labels in training, but in "
                    f"{language} has {came}; give it some"
                )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encodes the documents' parts, trains on each language and tests in all."""
        languages = list(self._documents)
        zero_shot, targeted = dict[str, _Job](), dict[str, _Job]()
        for source, target in product(languages, repeat=2):
            pair = source if source == target else f"{source}-{target}"
            zero_shot[pair] = (source,), source, target
            targeted[pair] = (source,), target, target
        left_out: dict[str, _Job] = {}
        if _TUNING_LANGUAGE in languages and len(languages) > 2:
            for target in languages:
                others = tuple(language for language in languages if language != target)
                left_out[target] = others, _TUNING_LANGUAGE, target
        scores: dict[str, float] = {}
        for segmentation in ("sentences", "windows"):
            pooled: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
            for language, splits in self._documents.items():
                for split, rows in splits.items():
                    y = np.array([label for label, _ in rows])
                    parts = [divide(text, language, segmentation) for _, text in rows]
                    for pooling, x in pool(encode, parts).items():
                        pooled[pooling][language][split] = x, y
            for pooling, sets in pooled.items():
                way = f"{segmentation}-{pooling}"
                scores |= _accuracies(f"{way}/zero_shot", sets, zero_shot)
                if way == _BEST:
                    scores |= _accuracies(f"{way}/targeted", sets, targeted)
                    scores |= _accuracies(f"{way}/leave_one_out", sets, left_out)
        return scores


def divide(text: str, language: str, segmentation: str) -> list[str]:
    """Divides a document into the "sentences" or "windows" that are encoded, `MAX_PARTS` at most."""
    if segmentation == "sentences":
        return sentences(text, language)[:MAX_PARTS] or [""]
    joint = "" if language in UNSPACED_LANGUAGES else " "
    words = text.split() if joint else list(text)
    starts = range(0, max(len(words) - STRIDE_WORDS, 1), STRIDE_WORDS)
    return [joint.join(words[start : start + WINDOW_WORDS]) for start in starts][:MAX_PARTS] or [""]


def pool(encode: Encode, documents: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Encodes the parts of documents: "mean" and "max" over those of each, `[documents, dim]`."""
    means, maxima = [], []
    for start in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        for x in classifiers.encode_columns(encode, documents[start : start + _DOCUMENTS_AT_ONCE]):
            means.append(x.mean(axis=0))
            maxima.append(x.max(axis=0))
    return {"mean": np.array(means, np.float32), "max": np.array(maxima, np.float32)}


def _accuracies(prefix: str, sets: _Sets, jobs: Mapping[str, _Job]) -> dict[str, float]:
    """Trains and tests each job: "<prefix>/<job>/accuracy", their mean ("all") before the others."""
    if not jobs:
        return {}

    def fit(trained_and_tuned: tuple[Sequence[str], str]) -> classifiers.Predict:
        trained, tuned = trained_and_tuned
        x, y = map(np.concatenate, zip(*(sets[code]["train"] for code in trained), strict=True))
        return classifiers.fit_logistic(x, y, dev=sets[tuned]["dev"])

    different = list(dict.fromkeys(job[:2] for job in jobs.values()))
    fitted = dict(zip(different, classifiers.in_threads(fit, different), strict=True))
    values = {
        name: classifiers.accuracy(fitted[trained, tuned], *sets[tested]["test"])
        for name, (trained, tuned, tested) in jobs.items()
    }
    values = {"all": float(np.mean(list(values.values()))), **values}
    return {f"{prefix}/{name}/accuracy": value for name, value in values.items()}


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    layout = "documents/{}.train.tsv, .dev.tsv, .test.tsv (label TAB text, so named in line 1)"
    found = find_tables(folder / "documents")
    for name, tables in found.items():
        complete = {code: splits for code, splits in tables.items() if set(_SPLITS) <= set(splits)}
        if complete:
            files = tuple(splits[split] for splits in complete.values() for split in _SPLITS)
            yield Dataset(name=name, files=files, load=partial(_load, name, complete))
        for language in tables.keys() - complete.keys():
            stem = f"{name}.{language}"
            yield Missing(name=stem, expected=layout.format(stem))
    if not found:
        yield Missing(name="MLDoc", expected=layout.format("<name>.<language>"))


def _load(name: str, tables: Tables) -> DocumentClassification:
    documents = {
        language: {split: read_table(splits[split], ("label", "text")) for split in _SPLITS}
        for language, splits in tables.items()
    }
    return DocumentClassification(documents, name=name)


SUITE = Suite(
    name="documents",
    title="Document classification within and across languages",
    source="Yu et al. 2018, Tables 4, 5 and 6; Schwenk and Li 2018",
    find=_find,
)
