"""What is wrong with a corpus, told from a sample of it before hours of training go into it."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from xling_tf.corpora.languages import is_recognisable, language_of, plain
from xling_tf.corpora.records import Corpus, Record, TranslationPair, columns_of

# Records, and texts of a side; the share of a fault in so many is known to 4%.
SAMPLE_SIZE = 250
# Of 345 corpora of manuals, menus, games, novels, subtitles and web pages that this was tried on,
# the one with the most text taken for another language had 3.5% of it.
_MAX_FOREIGN = 0.1
_MIN_RECOGNISED = 30  # texts; fewer say nothing of a corpus
_MAX_UNTRANSLATED = 0.1
_MIN_DIFFERENT = 0.5


class _Foreign(NamedTuple):
    share: float  # of the texts whose language can be told
    languages: str  # the most frequent ones


def warn_of_faults(corpus: Corpus, sample: Sequence[Record]) -> None:
    """Logs a warning for each thing that is wrong with a corpus, by a sample of its records."""
    for fault in corpus_faults(corpus.title, corpus.languages, sample):
        logging.warning("%s; correct the corpus or take it out, if that is not meant so", fault)


def corpus_faults(name: str, languages: str, records: Sequence[Record]) -> Iterator[str]:
    """What is wrong with a corpus.

    Args:
        name: What it is called in the messages, as "parallel/europarl.en-es".
        languages: "en-es" of translations, "en" of the others.
        records: A sample of its records, up to `SAMPLE_SIZE`.

    Yields:
        A message for each: sentences of another language, sides that are equal, or hardly
        anything but repeats.

    Example:
        >>> records = [TranslationPair("Good morning", "Buenos días")] * 4
        >>> list(corpus_faults("parallel/x.en-es", "en-es", records))
        ['parallel/x.en-es: only 1 of 4 records looked at differ']
    """
    codes = languages.split("-")
    for language, side in columns_of(languages):
        parts = (part for record in records for part in tuple(record)[side])
        texts = dict.fromkeys(part for part in parts if isinstance(part, str))
        if found := _foreign(list(texts)[:SAMPLE_SIZE], language, codes):
            yield f"{name}: {found.share:.0%} of the {language} side look like {found.languages}"
    pairs = [record for record in records if isinstance(record, TranslationPair)]
    equal = sum(pair.source.casefold() == pair.target.casefold() for pair in pairs)
    if equal > _MAX_UNTRANSLATED * len(pairs):
        yield f"{name}: {equal / len(pairs):.0%} of the pairs are the same text on both sides"
    different = len(set(records))
    if different < _MIN_DIFFERENT * len(records):
        yield f"{name}: only {different} of {len(records)} records looked at differ"


def _foreign(texts: Collection[str], language: str, expected: Collection[str]) -> _Foreign | None:
    if not is_recognisable(language):
        return None
    found = Counter(filter(None, (language_of(text, expected) for text in texts)))
    num_recognised = found.total()
    del found[plain(language)]
    if num_recognised < _MIN_RECOGNISED or found.total() <= _MAX_FOREIGN * num_recognised:
        return None
    often = [other for other, count in found.most_common() if count > found.total() / 4]
    return _Foreign(found.total() / num_recognised, " or ".join(often) or "others")
