"""Cleans bitext from the web (Chidambaram et al. 2018, sec. A.1)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PCollection

from pipelines.common import count, decoded, dropping, lines_of, read_lines
from xling_tf.compressed import PACKED
from xling_tf.corpora.cleaning import bitext_fault, normalise
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.integrations.beam import EncodeTexts
from xling_tf.savedmodel.saved_models import find_model


class CleanPairs(beam.PTransform[Any, Any]):
    """Keeps the pairs that are fit for training, new, and scored `min_cosine` or more by a model, if any.

    The paths are files of source TAB target, and both sides of Moses pairs (`x.en-es.en`, `x.en-es.es`).
    """

    def __init__(self, paths: Sequence[str], source: str, target: str, model: str, min_cosine: float) -> None:
        super().__init__()
        self._languages = (source, target)
        self._model, self._min_cosine = find_model(model) if model else None, min_cosine
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

            def unit_vectors(side: str) -> EncodeTexts:
                options = {"vector_column": f"{side}_vector", "normalize_embeddings": True}
                return EncodeTexts(self._model, side, **options)

            pairs = (
                pairs
                | beam.Map(lambda pair: {"pair": pair, "source": pair.source, "target": pair.target})
                | "Sources" >> unit_vectors("source")
                | "Targets" >> unit_vectors("target")
                | beam.FlatMap(well_scored, self._min_cosine)
            )
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


def first_of(key: tuple[str, ...], pairs: Iterable[TranslationPair]) -> TranslationPair:
    """Returns the lexicographically first of pairs that differ only in case, width and spaces."""
    del key
    first, *others = sorted(pairs)
    if others:
        count("pairs dropped: duplicate", len(others))
    return first


def well_scored(row: Mapping[str, Any], min_cosine: float) -> Iterator[TranslationPair]:
    """Yields the pair of two unit vectors if their cosine is high enough."""
    if row["source_vector"] @ row["target_vector"] >= min_cosine:
        yield row["pair"]
    else:
        count("pairs dropped: low cosine")
