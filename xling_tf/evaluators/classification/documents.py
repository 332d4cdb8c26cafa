"""Document classification within and across languages: parts of documents encoded, then pooled."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.sentences import sentences
from xling_tf.errors import UserError
from xling_tf.evaluators.classification.classifiers import LOGISTIC_PROTOCOL, Predict, fit_logistic
from xling_tf.evaluators.classification.folds import in_threads
from xling_tf.evaluators.encoding import Encode, encode_checked

# Yu et al. 2018, sec. 5.1.
WINDOW_WORDS = 128
STRIDE_WORDS = 64
# Where words are not parted by spaces, windows are of characters.
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th"})
# Of news about a dozen sentences are one document; a book is known by its beginning.
MAX_PARTS = 64
# Their parts are encoded together.
_DOCUMENTS_AT_ONCE = 2000

_SEGMENTATIONS = ("sentences", "windows")
_POOLINGS = ("mean", "max")
# Which way scored best and was used in Tables 4 and 6 of Yu et al. 2018 (Table 5).
_BEST = "sentences-mean"
# Where training sets of several languages are joined (sec. 5.2).
_TUNING_LANGUAGE = "en"

Labelled = Sequence[tuple[str, str]]  # labels and texts


class Splits(NamedTuple):
    """The labelled documents of a language."""

    train: Labelled
    dev: Labelled
    test: Labelled


class _Examples(NamedTuple):
    x: NDArray[np.float32]  # [num_documents, dim]
    y: NDArray[np.str_]  # [num_documents]


class _Language(NamedTuple):
    train: _Examples
    dev: _Examples
    test: _Examples


_Languages = Mapping[str, _Language]


class DocumentClassification:
    """Accuracy of logistic regression on documents, trained in one language and tested in each.

    A document is divided into sentences or windows of words, whose vectors are pooled to one by mean
    or maximum (Yu et al. 2018, sec. 5.1, Table 5). In zero-shot transfer the regularisation is chosen on
    the development set of the language that is trained on, in targeted transfer on that of the language
    tested on (sec. 5.2, Table 6, there as here by the mean of sentences only).

    The paper takes each of ".!?" as a sentence's end; here sentencex finds them, which knows
    abbreviations and the marks of other scripts.

    Args:
        languages: The documents, by the language's ISO code.
        name: What results call this evaluator.

    Raises:
        UserError: A split is empty, or a training set has one label only.

    Example:
        >>> documents = [("sport", "A goal. A match."), ("money", "A bank. A loan.")] * 10
        >>> evaluator = DocumentClassification({"en": Splits(documents, documents, documents)}, name="news")
        >>> scores = evaluator(lambda texts: np.array([["goal" in text, 1] for text in texts]))
        >>> scores["sentences-mean/zero_shot/en/accuracy"]
        1.0
    """

    def __init__(self, languages: Mapping[str, Splits], *, name: str) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "classifier": "logistic regression",
            **LOGISTIC_PROTOCOL,
            "sentences": f"sentencex {version('sentencex')}",
            "window_words": WINDOW_WORDS,
            "stride_words": STRIDE_WORDS,
            "windows_of_characters": sorted(UNSPACED_LANGUAGES & set(languages)),
            "max_parts": MAX_PARTS,
            "num_documents": {
                language: {split: len(rows) for split, rows in splits._asdict().items()}
                for language, splits in languages.items()
            },
        }
        # In one order, since a solver's rounding follows that of the rows.
        self._languages = {
            language: Splits(*(sorted(rows) for rows in splits))
            for language, splits in sorted(languages.items())
        }
        for language, splits in self._languages.items():
            _require_labels(name, language, splits)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encodes the documents' parts, trains on each language and tests in all.

        Args:
            encode: The system.

        Returns:
            "<way>/zero_shot/<from>-<to>/accuracy" of each two languages, where ways are "sentences-mean",
            "sentences-max", "windows-mean" and "windows-max"; "<way>/zero_shot/<language>/accuracy"
            within one; "<way>/zero_shot/all/accuracy", the mean of these; "sentences-mean/targeted/..."
            likewise; and "sentences-mean/leave_one_out/<language>/accuracy" of training on all other
            languages, where there are two or more and English.

        Raises:
            UserError: The system gave something else than a finite vector for each text.
        """
        scores: dict[str, float] = {}
        for segmentation in _SEGMENTATIONS:
            for pooling, languages in self._pool(encode, segmentation).items():
                way = f"{segmentation}-{pooling}"
                scores |= _named(f"{way}/zero_shot", _zero_shot(languages))
                if way == _BEST:
                    scores |= _named(f"{way}/targeted", _targeted(languages))
                    scores |= _named(f"{way}/leave_one_out", _leave_one_out(languages))
        return scores

    def _pool(self, encode: Encode, segmentation: str) -> dict[str, _Languages]:
        """The documents' vectors and labels, by pooling."""
        pooled: dict[str, dict[str, _Language]] = {pooling: {} for pooling in _POOLINGS}
        for language, splits in self._languages.items():
            labels = [np.array([label for label, _ in rows]) for rows in splits]
            vectors = [
                pool(encode, [divide(text, language, segmentation) for _, text in rows])
                for rows in splits
            ]
            for pooling, by_language in pooled.items():
                by_language[language] = _Language(
                    *(_Examples(x[pooling], y) for x, y in zip(vectors, labels, strict=True))
                )
        return dict(pooled)


def divide(text: str, language: str, segmentation: str) -> list[str]:
    """Divides a document into the parts that are encoded, `MAX_PARTS` of them at most.

    Args:
        text: The document.
        language: ISO code.
        segmentation: "sentences" or "windows".

    Returns:
        Its parts in order; of an empty document one empty part.

    Example:
        >>> divide("Dr. Smith left. Why?", "en", "sentences")
        ['Dr. Smith left.', 'Why?']
        >>> divide("Dr. Smith left. Why?", "en", "windows")
        ['Dr. Smith left. Why?']
    """
    parts = sentences(text, language) if segmentation == "sentences" else _windows(text, language)
    return parts[:MAX_PARTS] or [""]


def _windows(text: str, language: str) -> list[str]:
    joint = "" if language in UNSPACED_LANGUAGES else " "
    words = text.split() if joint else list(text)
    starts = range(0, max(len(words) - STRIDE_WORDS, 1), STRIDE_WORDS)
    return [joint.join(words[start : start + WINDOW_WORDS]) for start in starts]


def pool(encode: Encode, documents: Sequence[Sequence[str]]) -> dict[str, NDArray[np.float32]]:
    """Encodes the parts of documents and pools them, elementwise.

    Args:
        encode: The system.
        documents: The parts of each document, one at least.

    Returns:
        "mean" and "max", each [num_documents, dim].
    """
    chunks = [
        _pool_chunk(encode, documents[start : start + _DOCUMENTS_AT_ONCE])
        for start in range(0, len(documents), _DOCUMENTS_AT_ONCE)
    ]
    return {pooling: np.concatenate([chunk[pooling] for chunk in chunks]) for pooling in _POOLINGS}


def _pool_chunk(
    encode: Encode, documents: Sequence[Sequence[str]]
) -> dict[str, NDArray[np.float32]]:
    parts = list(dict.fromkeys(part for document in documents for part in document))
    row_of = {part: row for row, part in enumerate(parts)}
    vectors = encode_checked(encode, parts)
    rows = [[row_of[part] for part in document] for document in documents]
    return {
        "mean": np.array([vectors[row].mean(axis=0) for row in rows], np.float32),
        "max": np.array([vectors[row].max(axis=0) for row in rows], np.float32),
    }


def _zero_shot(languages: _Languages) -> dict[str, float]:
    def fit(language: _Language) -> Predict:
        return fit_logistic(*language.train, dev=language.dev)

    predict = dict(zip(languages, in_threads(fit, languages.values()), strict=True))
    return {
        _pair(source, target): _accuracy(predict[source], languages[target].test)
        for source in languages
        for target in languages
    }


def _targeted(languages: _Languages) -> dict[str, float]:
    def score(pair: tuple[str, str]) -> float:
        source, target = (languages[language] for language in pair)
        return _accuracy(fit_logistic(*source.train, dev=target.dev), target.test)

    pairs = [(source, target) for source in languages for target in languages]
    return dict(zip((_pair(*pair) for pair in pairs), in_threads(score, pairs), strict=True))


def _leave_one_out(languages: _Languages) -> dict[str, float]:
    """Of each language the accuracy after training on all others, tuned to English."""
    if _TUNING_LANGUAGE not in languages or len(languages) < 3:
        return {}

    def score(target: str) -> float:
        others = [language.train for code, language in languages.items() if code != target]
        x, y = (np.concatenate(arrays) for arrays in zip(*others, strict=True))
        predict = fit_logistic(x, y, dev=languages[_TUNING_LANGUAGE].dev)
        return _accuracy(predict, languages[target].test)

    return dict(zip(languages, in_threads(score, languages), strict=True))


def _pair(source: str, target: str) -> str:
    return source if source == target else f"{source}-{target}"


def _accuracy(predict: Predict, test: _Examples) -> float:
    return float(np.mean(predict(test.x) == test.y))


def _named(prefix: str, accuracies: Mapping[str, float]) -> dict[str, float]:
    """Puts the mean of all before the single ones, as "All" in Table 4 of Yu et al. 2018."""
    if not accuracies:
        return {}
    values = {"all": float(np.mean(list(accuracies.values()))), **accuracies}
    return {f"{prefix}/{pair}/accuracy": value for pair, value in values.items()}


def _require_labels(name: str, language: str, splits: Splits) -> None:
    empty = [split for split, rows in splits._asdict().items() if not rows]
    if empty:
        raise UserError(
            f"{name} must have documents in each split, but {language} has none in {', '.join(empty)}; "
            "give it some"
        )
    labels = {label for label, _ in splits.train}
    if len(labels) < 2:
        raise UserError(
            f"{name} must have two labels at least in each training set, but all documents of {language} "
            f"are labelled {min(labels)!r}; correct the labels"
        )
