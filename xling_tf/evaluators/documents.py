"""Document classification within and across languages: parts of documents encoded, then pooled."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.corpora.sentences import sentences
from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import (
    LOGISTIC,
    Array,
    Predict,
    accuracy,
    encode_columns,
    fit_logistic,
    in_threads,
)
from xling_tf.evaluators.data import Dataset, Missing, Suite, Tables, find_tables, read_table
from xling_tf.evaluators.encoding import Encode

# Yu et al. 2018, sec. 5.1.
WINDOW_WORDS = 128
STRIDE_WORDS = 64
# Where words are not parted by spaces, windows are of characters.
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th"})
MAX_PARTS = 64  # of news about a dozen sentences are one document; a book is known by its beginning
_DOCUMENTS_AT_ONCE = 2000  # their parts are encoded together
# The way that scored best (Table 5) and was used in Tables 4 and 6.
_BEST = "sentences-mean"
_TUNING_LANGUAGE = "en"  # where training sets of several languages are joined (sec. 5.2)
_SPLITS = ("train", "dev", "test")

Labelled = Sequence[tuple[str, ...]]  # labels and texts
_Sets = Mapping[str, Mapping[str, tuple[Array, Array]]]  # language, split: vectors and labels


class DocumentClassification:
    """Accuracy of logistic regression on documents, trained in one language and tested in each.

    A document is divided into sentences or windows of words, whose vectors are pooled to one by mean
    or maximum (Yu et al. 2018, sec. 5.1, Table 5). In zero-shot transfer the regularisation is chosen on
    the development set of the language that is trained on, in targeted transfer on that of the language
    tested on (sec. 5.2, Table 6, there as here by the mean of sentences only).

    The paper takes each of ".!?" as a sentence's end; here sentencex finds them.

    Args:
        documents: (label, text) rows, by the language's ISO code and by split: "train", "dev", "test".
        name: What results call this evaluator.

    Raises:
        UserError: A split is empty, or a training set has one label only.

    Example:
        >>> rows = [("sport", "A goal. A match."), ("money", "A bank. A loan.")] * 10
        >>> news = {"en": {"train": rows, "dev": rows, "test": rows}}
        >>> evaluator = DocumentClassification(news, name="news")
        >>> scores = evaluator(lambda texts: np.array([["goal" in text, 1] for text in texts]))
        >>> scores["sentences-mean/zero_shot/en/accuracy"]
        1.0
    """

    def __init__(self, documents: Mapping[str, Mapping[str, Labelled]], *, name: str) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "classifier": "logistic regression",
            **LOGISTIC,
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
            empty = [split for split, rows in splits.items() if not rows]
            if empty or len(labels) < 2:
                came = (
                    f"none in {', '.join(empty)}" if empty else f"only {min(labels)!r} in training"
                )
                raise UserError(
                    f"{name} must have documents in each split, and two labels in training, but in "
                    f"{language} has {came}; give it some"
                )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encodes the documents' parts, trains on each language and tests in all.

        Returns:
            "<way>/zero_shot/<from>-<to>/accuracy" of each two languages, with ways from "sentences-mean"
            to "windows-max", "<way>/zero_shot/<language>/accuracy" within one, and ".../all/accuracy", the
            mean of these; "sentences-mean/targeted/..." likewise; and of training on all other languages
            (two at least, and English) "sentences-mean/leave_one_out/<language>/accuracy".
        """
        scores: dict[str, float] = {}
        for segmentation in ("sentences", "windows"):
            for pooling, sets in self._pool(encode, segmentation).items():
                way = f"{segmentation}-{pooling}"
                scores |= _named(f"{way}/zero_shot", _transfer(sets, targeted=False))
                if way == _BEST:
                    scores |= _named(f"{way}/targeted", _transfer(sets, targeted=True))
                    scores |= _named(f"{way}/leave_one_out", _leave_one_out(sets))
        return scores

    def _pool(self, encode: Encode, segmentation: str) -> Mapping[str, _Sets]:
        """The documents' vectors and labels, by pooling."""
        pooled: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
        for language, splits in self._documents.items():
            for split, rows in splits.items():
                y = np.array([label for label, _ in rows])
                vectors = pool(encode, [divide(text, language, segmentation) for _, text in rows])
                for pooling, x in vectors.items():
                    pooled[pooling][language][split] = x, y
        return pooled


def divide(text: str, language: str, segmentation: str) -> list[str]:
    """Divides a document into the "sentences" or "windows" that are encoded, `MAX_PARTS` at most.

    Example:
        >>> divide("Dr. Smith left. Why?", "en", "sentences")
        ['Dr. Smith left.', 'Why?']
        >>> divide("Dr. Smith left. Why?", "en", "windows")
        ['Dr. Smith left. Why?']
    """
    if segmentation == "sentences":
        return sentences(text, language)[:MAX_PARTS] or [""]
    joint = "" if language in UNSPACED_LANGUAGES else " "
    words = text.split() if joint else list(text)
    starts = range(0, max(len(words) - STRIDE_WORDS, 1), STRIDE_WORDS)
    return [joint.join(words[start : start + WINDOW_WORDS]) for start in starts][:MAX_PARTS] or [""]


def pool(encode: Encode, documents: Sequence[Sequence[str]]) -> dict[str, Array]:
    """Encodes the parts of documents: "mean" and "max" over those of each, `[documents, dim]`."""
    means, maxima = [], []
    for start in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        for x in encode_columns(encode, documents[start : start + _DOCUMENTS_AT_ONCE]):
            means.append(x.mean(axis=0))
            maxima.append(x.max(axis=0))
    return {"mean": np.array(means, np.float32), "max": np.array(maxima, np.float32)}


def _transfer(sets: _Sets, *, targeted: bool) -> dict[str, float]:
    """The accuracy of training on each language and testing in each, by "en" or "en-de"."""
    pairs = [(source, target) for source in sets for target in sets]
    # Languages to train on and to tune to: tuned to itself, one classifier serves all targets.
    jobs = pairs if targeted else [(language, language) for language in sets]

    def fit(job: tuple[str, str]) -> Predict:
        return fit_logistic(*sets[job[0]]["train"], dev=sets[job[1]]["dev"])

    fitted = dict(zip(jobs, in_threads(fit, jobs), strict=True))
    scores = {}
    for source, target in pairs:
        predict = fitted[source, target if targeted else source]
        name = source if source == target else f"{source}-{target}"
        scores[name] = accuracy(predict, *sets[target]["test"])
    return scores


def _leave_one_out(sets: _Sets) -> dict[str, float]:
    """Of each language the accuracy after training on all others, tuned to English."""
    if _TUNING_LANGUAGE not in sets or len(sets) < 3:
        return {}

    def score(target: str) -> float:
        others = [splits["train"] for language, splits in sets.items() if language != target]
        x, y = (np.concatenate(arrays) for arrays in zip(*others, strict=True))
        predict = fit_logistic(x, y, dev=sets[_TUNING_LANGUAGE]["dev"])
        return accuracy(predict, *sets[target]["test"])

    return dict(zip(sets, in_threads(score, sets), strict=True))


def _named(prefix: str, accuracies: Mapping[str, float]) -> dict[str, float]:
    """Puts the mean of all before the single ones, as "All" in Table 4 of Yu et al. 2018."""
    if not accuracies:
        return {}
    values = {"all": float(np.mean(list(accuracies.values()))), **accuracies}
    return {f"{prefix}/{pair}/accuracy": value for pair, value in values.items()}


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    del seed  # nothing is drawn
    found = find_tables(folder / "documents")
    for name, tables in found.items():
        complete = {code: splits for code, splits in tables.items() if set(_SPLITS) <= set(splits)}
        if complete:
            files = tuple(splits[split] for splits in complete.values() for split in _SPLITS)
            yield Dataset(name=name, files=files, load=partial(_load, name, complete))
        for language in tables.keys() - complete.keys():
            yield Missing(name=f"{name}.{language}", expected=_expected(f"{name}.{language}"))
    if not found:
        yield Missing(name="MLDoc", expected=_expected("<name>.<language>"))


def _expected(stem: str) -> str:
    return f"documents/{stem}.train.tsv, .dev.tsv, .test.tsv (label TAB text, so named in line 1)"


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
