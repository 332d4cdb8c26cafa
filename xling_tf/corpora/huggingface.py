"""Corpora from Hugging Face's hub, by its library `datasets`; see `read_source`."""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.corpora.readers import percentages
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import NLI_LABELS, Corpus, Row
from xling_tf.corpora.tables import find_columns
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
# The columns of each kind of corpus; `find_columns` knows other names of them.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "parallel": ("source", "target"),
    "nli": ("premise", "hypothesis", "label"),
    "similarity": ("sentence1", "sentence2", "score"),
    "questions": ("question", "answer"),
}


@dataclass(frozen=True, kw_only=True)
class HubCorpus(Corpus):
    """One split of a data set, which streams from the disk."""

    dataset: Any  # datasets.Dataset
    columns: tuple[str, ...]  # as in `_COLUMNS`

    def version(self) -> str:
        """Returns a digest of the names of the cached files, which contain the commit of the data set."""
        files = [Path(file["filename"]) for file in self.dataset.cache_files]
        names = "".join(f"{file.parent.name}/{file.name}\n" for file in files)
        return f"{self.dataset.num_rows} {hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}"

    def __iter__(self) -> Iterator[Row]:
        labels, num_used = self._labels(), 0
        for row in self.dataset:
            texts = [row[name] for name in self.columns]
            label = labels.get(texts.pop()) if self.kind in ("nli", "similarity") else 0
            texts += texts[1:] if self.kind == "questions" else []  # the answer is its own context
            clean = [normalise(text or "") for text in texts]
            if label is not None and not any(map(is_blank, clean)):
                num_used += 1
                yield RECORD_TYPES[self.kind].make(clean, label), None
        message = f"{self.title} uses {num_used} of {self.dataset.num_rows} rows"
        if not num_used:
            raise UserError(f"{message}, but must have usable records; remove it from the sources")
        if num_used < self.dataset.num_rows:
            logging.warning(message)

    def _labels(self) -> dict[Any, int]:
        """Returns the label of each value of the last column: percents of scores, or classes of inference."""
        *_, last = self.columns
        if self.kind == "similarity":
            scores = [score for score in self.dataset[last] if score is not None and math.isfinite(score)]
            return dict(zip(scores, percentages(scores), strict=True))
        # Names, or numbers: -1 if the annotators did not agree.
        names = getattr(self.dataset.features[last], "names", NLI_LABELS)
        numbers = {name: NLI_LABELS.index(name) for name in names if name in NLI_LABELS}
        return numbers | {n: numbers[name] for n, name in enumerate(names) if name in numbers}


def read_source(spec: str, languages: Sequence[str], *, target_inference: bool = False) -> list[HubCorpus]:
    """Makes a corpus of each useful split of a data set, which is downloaded the first time.

    The names of its columns say what it holds, see `_COLUMNS`; "hf:OWNER/NAME[:CONFIG] source=COLUMN
    target=COLUMN" names them. Columns with the codes of languages are translations. The languages of others
    are those of the config, as "es" or "en-es"; else a pair is in the only two languages of
    the model, and anything else is in English.

    Inference is read in the source, the first of the languages, and with `target_inference` in the others
    too; translations are read between the source and another, and other types in any of the languages.
    """
    place, *words = spec.split() or [""]
    name, _, config = place.removeprefix(_PREFIX).partition(":")
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if not spec.startswith(_PREFIX) or name.count("/") != 1 or len(given) < len(words):
        raise UserError(f"expected a source as {_PREFIX}OWNER/NAME[:CONFIG] [FIELD=COLUMN ...], got {spec!r}")
    splits = {split: dataset.flatten() for split, dataset in _load(spec, name, config).items()}
    columns = next(iter(splits.values())).column_names
    by_language: dict[str, tuple[str, ...]]
    by_language = {column.removeprefix("translation."): (column,) for column in columns}
    source, *targets = languages
    if not given and (len({*languages} & {*by_language}) > 1 or "translation." in "".join(columns)):
        kind = "parallel"  # "id" alone is no Indonesian
    else:
        kind, chosen = _kind(spec, columns, given)
        named = _languages(config, 1 + RECORD_TYPES[kind].is_bilingual)
        if kind != "parallel":
            by_language = dict.fromkeys(named or ["en"], chosen)
        else:
            named = named or ([*languages] if len(languages) == 2 else [])
            by_language = {code: (column,) for code, column in zip(named, chosen, strict=False)}
    if kind == "parallel":
        pairs = [(source, target) for target in targets if {source, target} <= {*by_language}]
        used = {f"{a}-{b}": by_language[a] + by_language[b] for a, b in pairs}
    else:
        known = languages if kind != "nli" or target_inference else [source]
        used = {code: by_language[code] for code in known if code in by_language}
    if not used:
        raise UserError(
            f"{spec} must be in languages of the model ({', '.join(languages)}), but is in "
            f"{', '.join(by_language)}; choose a config with {_PREFIX}{name}:CONFIG"
        )
    splits_used = _NLI_SPLITS if kind == "nli" else {"train": ""}
    return [
        HubCorpus(
            name=name.replace("/", "_"),
            kind=kind,
            languages=codes,
            split=splits_used[split],
            dataset=dataset,
            columns=chosen,
        )
        for codes, chosen in used.items()
        for split, dataset in splits.items()
        if split in splits_used
    ]


def _kind(spec: str, columns: Sequence[str], given: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Returns the kind of a data set, and its columns."""
    for kind, fields in _COLUMNS.items():
        places = find_columns(columns, [given.get(field, field) for field in fields])
        if places and {*given} <= {*fields}:
            return kind, tuple(columns[place] for place in places if place is not None)
    expected = "; ".join(", ".join(fields) for fields in _COLUMNS.values())
    raise UserError(
        f"{spec} must have the columns of a kind ({expected}), but has {', '.join(columns)}; choose another "
        'config, or name its columns, as in "hf:OWNER/NAME source=COLUMN target=COLUMN"'
    )


def _load(spec: str, name: str, config: str) -> Mapping[str, Any]:
    datasets = library("datasets", "datasets", "datasets")
    try:
        return dict(datasets.load_dataset(name, config or None))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{spec} must be a data set of the hub, with a config that it has, but: {reason}; correct it, or "
            "load it on a machine with a network and set HF_HOME"
        ) from error


def _languages(config: str, number: int) -> list[str]:
    """Returns the languages that the name of a config states, if any: "en-zh-cn" is English and Chinese."""
    codes = config.split("-", number - 1)
    codes = [{"zh-cn": "zh"}.get(code, re.sub("-(.+)", lambda m: f"_{m[1].upper()}", code)) for code in codes]
    return codes if len(codes) == number and all(re.fullmatch(LANGUAGE, code) for code in codes) else []
