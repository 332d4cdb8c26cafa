"""Cleans bitext from the web (Chidambaram et al. 2018, sec. A.1)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.pvalue import PCollection

from pipelines.common import count, decoded, dropping, lines_of, read_lines
from xling_tf.compressed import PACKED
from xling_tf.corpora.cleaning import form_fault, looks_foreign, normalise, translation_fault
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.savedmodel.saved_models import load_saved_model, resolve

_BATCH_PAIRS = 512


class CleanPairs(beam.PTransform[Any, Any]):
    """Keeps the pairs that are fit for training, new, and scored `min_cosine` or more by a model, if any.

    The paths are files of source TAB target, and both sides of Moses pairs (`x.en-es.en`, `x.en-es.es`).
    """

    def __init__(self, paths: Sequence[str], source: str, target: str, model: str, min_cosine: float) -> None:
        super().__init__()
        self._languages = (source, target)
        self._model, self._min_cosine = resolve(model) if model else None, min_cosine
        twins = {path: moses_twin(path, source, target) for path in paths}
        self._moses = [(path, twin) for path, twin in twins.items() if twin]
        # Target sides are read together with their source sides.
        self._tables = [path for path in paths if not twins[path] and path not in twins.values()]

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Returns lines of source TAB target."""
        parts = []
        if self._tables:
            columns = pipeline | read_lines(self._tables) | beam.Map(lambda line: line.split(b"\t"))
            parts.append(columns)
        if self._moses:
            parts.append(pipeline | beam.Create(self._moses) | beam.FlatMapTuple(moses_lines))
        pairs = (
            parts
            | beam.Flatten()
            | beam.FlatMap(sound_pair, *self._languages)
            | beam.Map(lambda pair: (tuple(map(normalised, pair[:2])), pair))
            | beam.GroupByKey()
            | beam.MapTuple(first_of)
        )
        if self._model:
            scored = pairs | RunInference(PairScorer(self._model))
            pairs = scored | beam.FlatMap(well_scored, self._min_cosine)
        return pairs | beam.Map(lambda pair: f"{pair.source}\t{pair.target}")


def moses_twin(path: str, source: str, target: str) -> str | None:
    """Returns the target side of a Moses pair, given its source side; None for any other file."""
    match = re.fullmatch(rf"(.*\.){source}({PACKED})", path)
    return f"{match[1]}{target}{match[2]}" if match else None


def corpus_name(paths: Sequence[str], pair: str) -> str:
    """Returns the common name of files: the part before the languages, or before the first dot."""
    files = (re.split(r"[/\\]", path)[-1] for path in paths)
    names = {name.partition(f".{pair}." if f".{pair}." in name else ".")[0] for name in files}
    if len(names) > 1:
        raise UserError(f"the corpus of {', '.join(sorted(names))} needs a name; give one with --name")
    return names.pop()


def moses_lines(path: str, twin: str) -> Iterator[list[bytes]]:
    """Yields the lines of a Moses pair side by side; nothing if one side has more lines."""
    if not FileSystems.exists(twin):
        raise UserError(f"{path} must have its translation beside it, but {twin} is missing")
    lengths = [sum(1 for _ in lines_of(side)) for side in (path, twin)]
    if lengths[0] != lengths[1]:
        # Nobody knows at which line the sides stop being translations.
        count("Moses pairs dropped: sides of different length")
        return
    for columns in zip(lines_of(path), lines_of(twin), strict=True):
        yield list(columns)


def sound_pair(columns: Sequence[bytes], source: str, target: str) -> Iterator[TranslationPair]:
    """Yields the pair of a line if it is fit for training, and counts it."""
    count("pairs")
    with dropping("pairs"):
        texts = [normalise(decoded(column)) for column in columns]
        if len(texts) != 2:
            raise MalformedLineError("not 2 columns")
        pair = TranslationPair(texts[0], texts[1])
        if fault := bitext_fault(pair, source, target):
            raise MalformedLineError(fault)
        yield pair


def bitext_fault(pair: TranslationPair, source: str, target: str) -> str | None:
    """Works like debian.py's `pair_fault`, but for all known languages, and keeps short sentences."""
    reason = form_fault(pair.source) or form_fault(pair.target) or translation_fault(pair, source, target)
    for text, language in zip(pair[:2], (source, target), strict=True):
        if not reason and looks_foreign(str(text), language, (source, target)):
            reason = f"{language} side in another language"
    return reason


def first_of(key: tuple[str, ...], pairs: Iterable[TranslationPair]) -> TranslationPair:
    """Returns the lexicographically first of pairs that differ only in case, width and spaces."""
    del key
    first, *others = sorted(pairs)
    if others:
        count("pairs dropped: duplicate", len(others))
    return first


class PairScorer(ModelHandler[TranslationPair, tuple[TranslationPair, float], Any]):
    """Scores pairs by the cosine of a SavedModel's vectors; each worker loads the model once."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self._model = model

    def load_model(self) -> Any:
        """Loads the model."""
        return load_saved_model(self._model)

    def run_inference(
        self, batch: Sequence[TranslationPair], model: Any, inference_args: Any = None
    ) -> Iterator[tuple[TranslationPair, float]]:
        """Yields the pairs of a batch, each with its cosine."""
        del inference_args
        texts = [pair.source for pair in batch] + [pair.target for pair in batch]
        vectors = np.asarray(model(texts), np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units = vectors / np.maximum(lengths, 1e-12)
        cosines = np.sum(units[: len(batch)] * units[len(batch) :], axis=1)
        yield from zip(batch, cosines.tolist(), strict=True)

    def batch_elements_kwargs(self) -> dict[str, int]:
        """Returns the largest batch, in pairs."""
        return {"max_batch_size": _BATCH_PAIRS}


def well_scored(scored: tuple[TranslationPair, float], min_cosine: float) -> Iterator[TranslationPair]:
    """Yields a pair if its score is high enough."""
    pair, cosine = scored
    if cosine >= min_cosine:
        yield pair
    else:
        count("pairs dropped: low cosine")
