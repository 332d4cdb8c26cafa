"""Corpora from Hugging Face's hub, by its library `datasets`: `--source hf:OWNER/NAME[:CONFIG]`."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from xling_tf.corpora.cleaning import has_leftovers, normalise
from xling_tf.corpora.readers import percentages, triplets
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import NLI_LABELS, Corpus, Row
from xling_tf.corpora.sentences import paragraphs, sentences
from xling_tf.errors import UserError, library
from xling_tf.inputs import is_blank

_PREFIX = "hf:"
# The splits that are read, and what they are for; of types other than NLI only the training split is read.
_NLI_SPLITS = {
    "train": "train",
    "dev": "dev",
    "validation": "dev",
    "validation_matched": "dev_matched",
    "validation_mismatched": "dev_mismatched",
}


class Collection(NamedTuple):
    """Data sets with the same columns."""

    kind: str  # the name of their `RecordType`
    columns: tuple[str, ...]  # for the record's fields; "translation" holds dicts of texts by language
    language: str | None = None  # of the texts; None: the config names it, as "es", "20231101.es" or "en-es"
    config: str = ""  # the config if the user gives none


_NLI_COLUMNS = ("premise", "hypothesis", "label")
_SCORED_COLUMNS = ("sentence1", "sentence2", "score")
# The keys are regular expressions of the names of data sets.
COLLECTIONS: Mapping[str, Collection] = {
    r"sentence-transformers/parallel-sentences-.+": Collection("parallel", ("english", "non_english")),
    r"Helsinki-NLP/(?:opus-100|opus_books|europarl)|wmt/wmt\d\d": Collection("parallel", ("translation",)),
    r"sentence-transformers/all-nli": Collection("nli", _NLI_COLUMNS, "en", "pair-class"),
    r"(?:stanfordnlp/snli|nyu-mll/multi_nli)": Collection("nli", _NLI_COLUMNS, "en"),
    r"facebook/xnli": Collection("nli", _NLI_COLUMNS),
    r"(?:sentence-transformers/stsb|mteb/stsbenchmark-sts)": Collection("similarity", _SCORED_COLUMNS, "en"),
    r"PhilipMay/stsb_multi_mt": Collection("similarity", (*_SCORED_COLUMNS[:2], "similarity_score")),
    r"sentence-transformers/natural-questions": Collection("questions", ("query", "answer"), "en"),
    r"sentence-transformers/(?:gooaq|squad|eli5)": Collection("questions", ("question", "answer"), "en"),
    r"wikimedia/wikipedia": Collection("documents", ("title", "text")),
}


@dataclass(frozen=True, kw_only=True)
class HubCorpus(Corpus):
    """One split of a data set, which streams from the disk."""

    dataset: Any  # datasets.Dataset
    columns: tuple[str, ...]
    dataset_languages: Sequence[str]  # in the order of the columns

    def version(self) -> str:
        """Returns a digest of the names of the cached files, which contain the commit of the data set."""
        files = [Path(file["filename"]) for file in self.dataset.cache_files]
        names = "".join(f"{file.parent.name}/{file.name}\n" for file in files)
        return f"{self.dataset.num_rows} {hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}"

    def __iter__(self) -> Iterator[Row]:
        num_used = 0
        for rows in self._rows():
            yield from rows
            num_used += bool(rows)
        if 0 < num_used < self.dataset.num_rows:
            logging.warning("%s uses %d of %d rows", self.title, num_used, self.dataset.num_rows)
        if not num_used:
            raise UserError(
                f"{self.title} must have usable records, but has none in {self.dataset.num_rows} rows; "
                "remove it from the sources"
            )

    def _rows(self) -> Iterator[list[Row]]:
        """Yields the rows of the corpus for each row of the data set."""
        percents: Iterator[int] = iter(())
        if self.kind == "similarity":
            percents = iter(percentages(list(self.dataset[self.columns[-1]])))
        for row in self.dataset:
            values = [row[name] for name in self.columns]
            match self.kind:
                case "documents":
                    yield _triplets(values[0], values[1], self.languages)
                case "parallel":
                    is_dict = self.columns == ("translation",)
                    texts = values[0] if is_dict else dict(zip(self.dataset_languages, values, strict=True))
                    yield self._record([texts[language] for language in self.languages.split("-")])
                case "questions":
                    yield self._record([*values, values[1]])
                case "similarity":
                    yield self._record(values[:2], next(percents))
                case _:  # the label of inference is -1 if the annotators did not agree
                    yield self._record(values[:2], values[2]) if 0 <= values[2] < len(NLI_LABELS) else []

    def _record(self, texts: Sequence[str | None], label: int = 0) -> list[Row]:
        """Returns the row of a record; none if a text is empty."""
        clean = [normalise(text or "") for text in texts]
        return [(RECORD_TYPES[self.kind].make(clean, label), None)] if not any(map(is_blank, clean)) else []


def _triplets(title: str, text: str, language: str) -> list[Row]:
    # The title is a sentence (Chidambaram et al. 2018, sec. A.1). No triplet spans leftover markup.
    lines = [normalise(title), *(s for part in paragraphs(text) for s in sentences(part, language))]
    return [(triplet, text) for triplet in triplets(["" if has_leftovers(s) else s for s in lines])]


def read_source(spec: str, languages: Sequence[str], *, target_inference: bool = False) -> list[HubCorpus]:
    """Makes a corpus of each useful split of "hf:OWNER/NAME[:CONFIG]", which is downloaded the first time.

    Inference is read in the source, the first of the languages, and with `target_inference` in the others
    too; translations are read between the source and another, and other types in any of the languages.
    """
    name, _, config = spec.removeprefix(_PREFIX).partition(":")
    if not spec.startswith(_PREFIX) or name.count("/") != 1:
        raise UserError(f"expected a source as {_PREFIX}OWNER/NAME[:CONFIG], got {spec!r}")
    collection = next((c for pattern, c in COLLECTIONS.items() if re.fullmatch(pattern, name)), None)
    # For an unknown data set, only the first row is downloaded, for the names of the columns.
    config = config or (collection.config if collection else "")
    splits = _load(spec, name, config, streaming=collection is None)
    columns = [*next(iter(next(iter(splits.values()))), {})]
    if collection is None or not {*collection.columns} <= {*columns}:
        expected = ", ".join(collection.columns) if collection else "those of a collection in docs/data.md"
        raise UserError(
            f"{spec} must have the columns {expected}, but has {', '.join(columns)}; choose another config, "
            "or save the columns as a file of a data folder, such as parallel/NAME.en-es.tsv"
        )
    available = [collection.language] if collection.language else _languages(collection.kind, config)
    source, *targets = languages
    in_source = collection.kind == "nli" and not target_inference
    used = tuple(code for code in languages[: 1 if in_source else None] if code in available)
    if RECORD_TYPES[collection.kind].is_bilingual:
        used = next(((source, target) for target in targets if {source, target} == {*available}), ())
    if not used:
        raise UserError(
            f"{spec} must be in languages of the model ({', '.join(languages)}), but is in "
            f"{', '.join(filter(None, available)) or 'others'}; choose a config with {_PREFIX}{name}:CONFIG"
        )
    splits_used = _NLI_SPLITS if collection.kind == "nli" else {"train": ""}
    return [
        HubCorpus(
            name=name.replace("/", "_"),
            kind=collection.kind,
            languages="-".join(used),
            split=splits_used[split],
            dataset=dataset,
            columns=collection.columns,
            dataset_languages=available,
        )
        for split, dataset in splits.items()
        if split in splits_used
    ]


def _load(spec: str, name: str, config: str, *, streaming: bool) -> Mapping[str, Any]:
    datasets = library("datasets", "datasets", "datasets")
    try:
        return dict(datasets.load_dataset(name, config or None, streaming=streaming))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{spec} must be a data set of the hub, with a config that it has, but: {reason}; correct it, or "
            "load it on a machine with a network and set HF_HOME"
        ) from error


def _languages(kind: str, config: str) -> list[str]:
    """Returns the languages that the name of a config states: "en-zh-cn" is English and Chinese."""
    last = config.rpartition(".")[2]
    codes = last.split("-", 1) if RECORD_TYPES[kind].is_bilingual else [last]
    return [{"zh-cn": "zh"}.get(code, re.sub("-(.+)", lambda m: f"_{m[1].upper()}", code)) for code in codes]
