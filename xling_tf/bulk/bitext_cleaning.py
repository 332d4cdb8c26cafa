"""Scores the pairs of noisy bitexts, and keeps the translations."""

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.cleaning import bitext_fault, normalise, require_known
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.readers import read_parallel
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.files import require_writable_file
from xling_tf.search.neighbours import nearest, require_positive, unit_vectors
from xling_tf.search.search import NUM_NEIGHBOURS, margins

# Number of pairs among which neighbours are searched; this takes as long as encoding by the average of words.
_PAIRS_AT_ONCE = 8192


def clean_bitext(
    encode: Callable[[list[str]], NDArray[Any]],
    path: Path,
    output: Path,
    *,
    source: str,
    target: str,
    threshold: float,
    best: int | None = None,
    scores: Path | None = None,
    report: Callable[[str], None] = lambda state: None,
) -> dict[str, int]:
    """Copies the pairs of a file that look like translations, in their order.

    A pair must look like two sentences of the expected languages, with lengths and numbers that agree. Its
    margin (Artetxe and Schwenk 2019, eq. 2) must reach a threshold, or be among the best. The margin's
    neighbours are searched among 8,192 pairs of the file.

    Args:
        encode: Returns the vectors `[texts, dim]` of texts.
        path: A table of sources and targets, such as TSV.
        output: File of the pairs that are kept.
        source: Language of the sources.
        target: Language of the targets.
        threshold: Smallest margin.
        best: Largest number of pairs, those with the highest margins; None: all.
        scores: File for every pair: the margin, the fault if any, the source and the target.
        report: Called with the state, for logs.

    Returns:
        The numbers of pairs that are "kept" and "dropped: ...", by the reason.

    Raises:
        UserError: The file has no pairs, or a language is unknown.
    """
    for language in (source, target):
        require_known(language)
    if best is not None:
        require_positive(best, "best")
    for file in filter(None, (output, scores)):
        require_writable_file(file, "choose another file")
    if scores and scores.resolve() in (path.resolve(), output.resolve()):
        raise UserError(f"expected a file for the scores besides the input and the output, got {scores}")
    reading, all_margins, counts = read_parallel(path, (source, target)), array("d"), Counter[str]()

    def score_lines() -> Iterator[str]:
        pairs = (pair for pair, _ in reading)
        while part := list(islice(pairs, _PAIRS_AT_ONCE)):
            faults = [_fault(pair, source, target) for pair in part]
            part_margins = _margins(encode, part, faults)
            all_margins.extend(part_margins.tolist())
            counts.update(f"dropped: {fault}" for fault in faults if fault)
            report(f"{len(all_margins):,} pairs")
            for pair, margin, fault in zip(part, part_margins, faults, strict=True):
                yield f"{margin:.6f}\t{fault or ''}\t{pair.source}\t{pair.target}"

    if scores:
        write_lines(scores, score_lines())
    else:
        deque(score_lines(), maxlen=0)
    if not all_margins:
        raise reading.nothing_usable()
    scored = np.asarray(all_margins)
    is_kept = np.zeros(len(scored), bool)
    is_kept[np.argsort(-scored, kind="stable")[:best]] = True  # of equal margins, the first are kept
    is_kept &= np.isfinite(scored) & (scored >= threshold)
    rows = zip(read_parallel(path, (source, target)), is_kept, strict=True)
    write_lines(output, (f"{pair.source}\t{pair.target}" for (pair, _), keep in rows if keep))
    num_kept = int(is_kept.sum())
    num_low = len(scored) - num_kept - counts.total()
    counts.update({f"dropped: {reason}": number for reason, number in reading.malformed.items()})
    return {"kept": num_kept, "dropped: low margin": num_low, **dict(counts.most_common())}


def _fault(pair: TranslationPair, source: str, target: str) -> str | None:
    pair = pair._replace(source=normalise(pair.source), target=normalise(pair.target))
    return bitext_fault(pair, source, target)


def _margins(
    encode: Callable[[list[str]], NDArray[Any]],
    pairs: Sequence[TranslationPair],
    faults: Sequence[str | None],
) -> NDArray[np.float64]:
    """Returns the margins of the pairs without a fault, and -inf for others."""
    result = np.full(len(pairs), -np.inf)
    rows = [row for row, fault in enumerate(faults) if not fault]
    if not rows:
        return result
    sides = []
    for field in ("source", "target"):
        texts, positions = np.unique([getattr(pairs[row], field) for row in rows], return_inverse=True)
        sides.append((unit_vectors(encode(texts.tolist()), "vectors"), positions))
    (sources, first), (targets, second) = sides
    means = [
        nearest(a, b, min(NUM_NEIGHBOURS, len(b)), kind="flat").scores.mean(axis=1, dtype=np.float64)
        for a, b in ((sources, targets), (targets, sources))
    ]
    cosines = np.einsum("ij,ij->i", sources[first], targets[second], dtype=np.float64)
    result[rows] = margins(cosines, means[0][first], means[1][second])
    return result
