"""TensorFlow Datasets as a source of corpora: `--source tfds:wiki40b/es`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from absl import logging

from xling_tf.config import DataConfig
from xling_tf.corpora.cleaning import normalise, sentence_fault
from xling_tf.corpora.records import (
    NLI_LABELS,
    Corpus,
    InferencePair,
    Kind,
    Record,
    Row,
    SentenceTriplet,
    TranslationPair,
)
from xling_tf.corpora.sentences import sentences
from xling_tf.errors import UserError, library

_PREFIX = "tfds:"
_CODES = {"zh-cn": "zh"}  # where theirs is not ours
# Wiki-40B's marks; the paragraphs of a section stand on one line.
_WIKI40B = re.compile(r"(_START_ARTICLE_|_START_SECTION_|_START_PARAGRAPH_|_NEWLINE_)")
_PROSE = ("_START_PARAGRAPH_", "_NEWLINE_")

Example = Mapping[str, Any]  # a row of a dataset; its texts are bytes


def _translations(row: Example, languages: Sequence[str]) -> Iterator[TranslationPair]:
    source, target = (_text(row[language]) for language in languages)
    if source and target:
        yield TranslationPair(source, target)


def _inferences(row: Example, languages: Sequence[str]) -> Iterator[InferencePair]:
    del languages
    premise, hypothesis, label = _text(row["premise"]), _text(row["hypothesis"]), int(row["label"])
    # Where the annotators did not agree it is -1.
    if premise and hypothesis and 0 <= label < len(NLI_LABELS):
        yield InferencePair(premise, hypothesis, label)


def _articles(row: Example, languages: Sequence[str]) -> Iterator[Record]:
    yield from wiki40b_triplets(row["text"].decode("utf-8", "replace"), languages[0])


def _text(raw: bytes) -> str:
    return normalise(raw.decode("utf-8", "replace"))


class _Builder(NamedTuple):
    """How the rows of a builder (with the features of tensorflow-datasets 4.9) become records."""

    kind: Kind
    splits: Mapping[str, str]  # TFDS' names of those that are read, and ours
    languages: Callable[[Any], Iterable[str]]  # (the builder) to the languages of its texts
    records: Callable[..., Iterator[Record]]  # (row, the names of its languages in our order) to records


_TRANSLATIONS = _Builder("parallel", {"train": ""}, lambda b: b.info.features, _translations)
_VALIDATION = {"validation_matched": "dev_matched", "validation_mismatched": "dev_mismatched"}
BUILDERS: Mapping[str, _Builder] = {
    "snli": _Builder("nli", {"train": "train", "validation": "dev"}, lambda b: ["en"], _inferences),
    "multi_nli": _Builder("nli", {"train": "train", **_VALIDATION}, lambda b: ["en"], _inferences),
    "wiki40b": _Builder("documents", {"train": ""}, lambda b: [b.builder_config.name], _articles),
    **dict.fromkeys(("para_crawl", "opus", "ted_hrlr_translate"), _TRANSLATIONS),
    **{f"wmt{year}_translate": _TRANSLATIONS for year in range(13, 20)},
}


@dataclass(frozen=True, kw_only=True)
class TfdsCorpus(Corpus):
    """One split of a dataset (its name, config and version), which streams from the disk."""

    dataset: str
    rows: Callable[[], Iterable[Example]]
    records: Callable[[Example], Iterator[Record]]

    def version(self) -> str:
        """Returns the dataset's name and version, which TFDS raises when its rows change."""
        return self.dataset

    def __iter__(self) -> Iterator[Row]:
        num_rows = num_used = 0
        for row in self.rows():
            is_document = self.kind == "documents"
            group = row["text"].decode("utf-8", "replace") if is_document else None
            records = list(self.records(row))
            yield from ((record, group) for record in records)
            num_rows += 1
            num_used += bool(records)
        if 0 < num_used < num_rows:
            logging.warning("%s uses %d of %d rows", self.title, num_used, num_rows)
        if not num_used:
            raise UserError(
                f"{self.dataset} of TensorFlow Datasets must have records for {self.title}, but "
                "has none; take it out of the sources"
            )


def read_sources(config: DataConfig) -> list[Corpus]:
    """Makes the corpora of all `data.sources`."""
    return [
        corpus
        for spec in config.sources
        for corpus in read_tfds(spec, source=config.source, targets=config.targets)
    ]


def read_tfds(spec: str, *, source: str, targets: Sequence[str]) -> list[TfdsCorpus]:
    """Makes a corpus of each split used of a dataset, which TFDS downloads the first time."""
    name = spec.removeprefix(_PREFIX)
    known = BUILDERS.get(name.partition("/")[0])
    if name == spec or known is None:
        raise UserError(
            f"a source must be {_PREFIX} and one of {', '.join(sorted(BUILDERS))} "
            f"(with its config, as {_PREFIX}para_crawl/enes), got {spec!r}"
        )
    builder = _builder(name)
    found = {_CODES.get(language, language): language for language in known.languages(builder)}
    if known.kind == "parallel":
        pairs = ((source, target) for target in targets)
        languages: tuple[str, ...] = next((pair for pair in pairs if {*pair} <= {*found}), ())
    else:
        wanted = (source,) if known.kind == "nli" else (source, *targets)
        languages = tuple(language for language in wanted if language in found)
    if not languages:
        raise UserError(
            f"{spec} must be in languages of the model, {', '.join((source, *targets))}, as its "
            f"kind ({known.kind}) is used, but is in {', '.join(found)}; take it out of the sources"
        )
    try:
        builder.download_and_prepare()
    # Without network, without disk, and where files must be fetched by hand.
    except (OSError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{spec} must be prepared in {builder.data_dir}, or be there to download, but: "
            f"{reason}; prepare it elsewhere and set TFDS_DATA_DIR"
        ) from error
    return [
        TfdsCorpus(
            name=name.replace("/", "_"),
            kind=known.kind,
            languages="-".join(languages),
            split=ours,
            dataset=builder.info.full_name,
            rows=partial(_rows, builder, split),
            records=partial(known.records, languages=[found[code] for code in languages]),
        )
        for split, ours in known.splits.items()
    ]


def _builder(name: str) -> Any:
    tfds = library("tensorflow_datasets", "tensorflow-datasets", "tfds")
    try:
        return tfds.builder(name)
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{_PREFIX}{name} must name a config that the dataset has, but: {reason}") from error


def _rows(builder: Any, split: str) -> Iterator[Example]:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    try:
        yield from tfds.as_numpy(builder.as_dataset(split=split))
    except tf.errors.OpError as error:
        raise UserError(
            f"{builder.info.full_name} must be as it was prepared in {builder.data_dir}, but cannot be read "
            f"to its end ({error.message}); delete that folder to prepare it again"
        ) from error


def wiki40b_sentences(text: str, language: str) -> list[str]:
    """The sentences of an article of Wiki-40B (Guo et al. 2020), its title and section names among them."""
    found: list[str] = []
    # What stands before the first mark is no text.
    _, *parts = _WIKI40B.split(text)
    for mark, part in zip(parts[::2], parts[1::2], strict=True):
        if line := normalise(part):
            found += sentences(line, language) if mark in _PROSE else [line]
    return found


def wiki40b_triplets(text: str, language: str) -> Iterator[SentenceTriplet]:
    """Yields the runs of three sentences of an article of Wiki-40B, none of which has a fault."""
    lines = wiki40b_sentences(text, language)
    fit = [not sentence_fault(line, language, min_words=1) for line in lines]
    for i in range(len(lines) - 3 + 1):
        if all(fit[i : i + 3]):
            yield SentenceTriplet(*lines[i : i + 3])
