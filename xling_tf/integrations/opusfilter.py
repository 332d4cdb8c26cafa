"""Scores pairs of sentences in OpusFilter, in place of its filter by LASER.

A configuration of OpusFilter names this module:

    - type: filter
      parameters:
        inputs: [corpus.en.gz, corpus.es.gz]
        outputs: [clean.en.gz, clean.es.gz]
        filters:
          - SameMeaning: {model: exported/en-es, min_probability: 0.5}
            module: xling_tf.integrations.opusfilter
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from opusfilter import CLEAN_HIGH, FilterABC

from xling_tf.errors import UserError
from xling_tf.sentence_encoder import SentenceEncoder

_PAIRS = 4096  # encoded at once


class SameMeaning(FilterABC):
    """Accepts pairs that mean the same, by the probability that the model gives.

    Args:
        model: The exported model, as `load` takes it, with a probability.
        min_probability: Pairs below are left out.
        **options: Those of OpusFilter, `name` and `workdir`.
    """

    score_direction = CLEAN_HIGH
    accept_threshold = 0.0
    reject_threshold = 1.0 + 1e-6

    def __init__(self, model: str, min_probability: float = 0.5, **options: Any) -> None:
        if not 0 <= min_probability <= 1:
            raise UserError(f"`min_probability` must be from 0 to 1, but is {min_probability}")
        self._encoder, self._min_probability = SentenceEncoder(model), min_probability
        super().__init__(**options)

    def score(self, pairs: Iterable[Sequence[str]]) -> Iterator[float]:
        """Yields the probability of each pair that both sentences mean the same."""
        pairs = iter(pairs)
        while some := [*islice(pairs, _PAIRS)]:
            sides = ([*side] for side in zip(*some, strict=True))
            yield from map(float, self._encoder.probability(*sides))

    def accept(self, score: float) -> bool:
        """Returns True for a pair to keep."""
        return score >= self._min_probability
