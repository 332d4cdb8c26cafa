"""Scores the pairs of noisy bitexts, and keeps the translations."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xling_tf.client.batches import Encode
from xling_tf.client.neighbours import nearest, unit_vectors
from xling_tf.client.search import NUM_NEIGHBOURS, margins, mean_scores
from xling_tf.corpora.cleaning import (
    are_swapped,
    bitext_fault,
    language_of_texts,
    normalise,
    require_known,
)
from xling_tf.corpora.line_files import require_name_of_lines, write_lines
from xling_tf.corpora.readers import read_parallel
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.files import require_writable_file

# Pairs among which neighbours are searched; this takes as long as averaging their words.
_PAIRS_AT_ONCE = 8192


def clean_bitext(
    encode: Encode,
    path: Path,
    output: Path,
    *,
    source: str,
    target: str,
    threshold: float,
    report: Callable[[str], None] = lambda state: None,
) -> dict[str, int]:
    """Copies the pairs of a file that look like translations, in their order.

    A pair must look like two sentences of the expected languages, with lengths and numbers that
    agree, and its margin (Artetxe and Schwenk 2019, eq. 2) must reach a threshold. The margin's
    neighbours are searched among 8,192 pairs of the file.

    Args:
        encode: Returns the vectors `[texts, dim]` of texts.
        path: A table of sources and targets, such as TSV.
        output: File of the pairs that are kept.
        source: Language of the sources.
        target: Language of the targets.
        threshold: Smallest margin.
        report: Called with the state, for logs.

    Returns:
        The numbers of pairs that are "kept" and "dropped: ...", by the reason.

    Raises:
        UserError: The file has no pairs, a language is unknown, or the sides are swapped.
    """
    for language in (source, target):
        require_known(language)
    require_name_of_lines(output)
    require_writable_file(output, "choose another file")
    reading, counts = read_parallel(path, (source, target)), Counter(kept=0)

    def kept() -> Iterator[str]:
        pairs = (pair for pair, _ in reading)
        while part := list(islice(pairs, _PAIRS_AT_ONCE)):
            if not counts.total():
                _require_sides(path, part, source, target)
            normal = [TranslationPair(normalise(p.source), normalise(p.target)) for p in part]
            faults = [bitext_fault(pair, source, target) for pair in normal]
            sound = [pair for pair, fault in zip(part, faults, strict=True) if not fault]
            counts.update(f"dropped: {fault}" for fault in faults if fault)
            is_kept = _margins(encode, sound) >= threshold
            counts.update(
                {"kept": int(is_kept.sum()), "dropped: low margin": int((~is_kept).sum())}
            )
            for pair in compress(sound, is_kept):
                yield f"{pair.source}\t{pair.target}"
            report(f"{reading.num_records:,} pairs")
        if not reading.num_records:
            raise reading.nothing_usable()

    write_lines(output, kept())
    counts.update({f"dropped: {reason}": number for reason, number in reading.malformed.items()})
    return dict(counts)


def _require_sides(path: Path, pairs: Sequence[TranslationPair], source: str, target: str) -> None:
    """Raises a `UserError` if the sides of the first pairs are swapped: none would be kept."""
    sides = ([pair.source for pair in pairs], [pair.target for pair in pairs])
    first, second = (language_of_texts(side, (source, target)) for side in sides)
    if are_swapped((source, target), (first, second)):
        raise UserError(
            f"expected {source} and {target}, but {path} seems to have {first} in the first column "
            f"and {second} in the second; give {first} as `source` and {second} as `target`"
        )


def _margins(encode: Encode, pairs: Sequence[TranslationPair]) -> NDArray[np.float64]:
    if not pairs:
        return np.zeros(0)
    sides = []
    for field in ("source", "target"):
        texts, positions = np.unique([getattr(pair, field) for pair in pairs], return_inverse=True)
        sides.append((unit_vectors(encode(texts.tolist()), "vectors"), positions))
    (sources, first), (targets, second) = sides
    means = [
        mean_scores(nearest(a, b, min(NUM_NEIGHBOURS, len(b)), kind="flat"))
        for a, b in ((sources, targets), (targets, sources))
    ]
    cosines = np.einsum("ij,ij->i", sources[first], targets[second], dtype=np.float64)
    return margins(cosines, means[0][first], means[1][second], NUM_NEIGHBOURS)
