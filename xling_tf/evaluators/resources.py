"""Resource usage: time and memory against sentence length and batch size."""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Suite
from xling_tf.evaluators.encoding import Encode, encode_checked
from xling_tf.evaluators.system import as_system

# Yang et al. 2019, sec. 7 and figure 2, plot against the length; a batch has one length here too.
LENGTHS = (1, 4, 16, 64, 256)
BATCHES = (1, 4, 16, 64, 256)
# After one call to warm up, a batch is encoded until it took both of the first or one of the second.
_MIN_CALLS, _MIN_SECONDS = 3, 0.3
_MAX_CALLS, _MAX_SECONDS = 20, 4.0
_SAMPLING_SECONDS = 0.002
_MIB = 2**20
# Common words, so that most systems have an own token for each.
_WORDS = (
    "a about after again all also and another any are as at back be because been before between book "
    "both but by call came can change children city come country day did different do does down each "
    "earth end even every example eye face family far father few find first follow food for form found "
    "from game get give go good government great group grow had hand hard has have he head help her here "
    "high him his home house how idea if important in into is it its just keep kind know land large last "
    "learn leave left letter life light like line list little live long look made make man many may me "
    "mean men might more most mother mountain move much must my name near need never new next night no "
    "not now number of off often old on once one only open or other our out over own page paper part "
    "people picture place plant play point put question read really right river run said same saw say "
    "school sea second see sentence set she should show side small so some something song soon sound "
    "spell state still stop story study such take talk tell than that the their them then there these "
    "they thing think this those thought three through time to together too took tree try turn two under "
    "until up us use very walk want was watch water way we well went were what when where which while "
    "white who why will with without word work world would write year you young your"
)


class ResourceUsage:
    """Time and memory of encoding batches of equal sentences, by their length and number.

    The system must be one that encodes whatever it is given: every sentence ends in a number that was
    not used before, so that none is found in a cache of whole texts. The figures are not reproducible:
    they are of this machine and what else it does.

    Args:
        name: What results call this evaluator.
        lengths: Of sentences in words.
        batches: Sentences in one call.
        seed: Of the words.

    Example:
        >>> evaluator = ResourceUsage(name="short", lengths=(2,), batches=(1,))
        >>> sorted(evaluator(lambda texts: np.ones([len(texts), 1])))[0]
        'length_2/batch_1/memory_growth_mib'
    """

    def __init__(
        self,
        *,
        name: str,
        lengths: Sequence[int] = LENGTHS,
        batches: Sequence[int] = BATCHES,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "reproducible": False,
            "lengths_in_words": tuple(lengths),
            "batches": tuple(batches),
            "warm_up_calls": 1,
            "calls": (_MIN_CALLS, _MAX_CALLS),
            "seconds": (_MIN_SECONDS, _MAX_SECONDS),
            "seed": seed,
        }
        # From few words to many: what a system keeps after a large batch would hide a small one's.
        self._cells = sorted(
            itertools.product(lengths, batches), key=lambda cell: cell[0] * cell[1]
        )
        self._rng = np.random.default_rng(seed)
        self._numbers = itertools.count(1000)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encodes batches of each length and size: once to warm up, then several times.

        The protocol then tells the device that the system's description names.

        Args:
            encode: The system.

        Returns:
            "length_<n>/batch_<m>/sentences_per_second" and ".../milliseconds" of the median call, and
            ".../memory_growth_mib", how far the resident memory of this process rose in the first
            call above where it was before any. That is left out where the system runs elsewhere, as
            one that is asked over REST.

        Raises:
            UserError: The system gave something else than a finite vector for each text, or psutil is
                not installed.
        """
        description = as_system(encode).description
        self.protocol = {**self.protocol, "device": description.get("device", "not told")}
        encode_checked(encode, self._compose(1, 1))  # what is loaded or compiled once is no growth
        memory = None if "url" in description else _ResidentMemory()
        scores: dict[str, float] = {}
        for length, batch in self._cells:
            compose = partial(self._compose, length, batch)
            cell = f"length_{length}/batch_{batch}"
            growth = _warm_up(encode, compose(), memory)
            seconds = _median_seconds(encode, compose)
            scores[f"{cell}/sentences_per_second"] = batch / seconds
            scores[f"{cell}/milliseconds"] = 1000 * seconds
            if growth is not None:
                scores[f"{cell}/memory_growth_mib"] = growth / _MIB
        return scores

    def _compose(self, length: int, batch: int) -> list[str]:
        words = self._rng.choice(_WORDS.split(), [batch, length - 1])
        return [" ".join([*row, str(next(self._numbers))]) for row in words.tolist()]


class _ResidentMemory:
    """The memory of this process that is in use, and its peak during a call."""

    def __init__(self) -> None:
        try:
            import psutil
        except ModuleNotFoundError:
            raise UserError(
                "memory is measured by psutil, which is not installed; install it by "
                "pip install 'xling_tf[evaluation]'"
            ) from None
        self._process = psutil.Process()
        self._before = self._now()

    def peak_growth(self, call: Callable[[], object]) -> int:
        """Calls and returns the peak meanwhile, in bytes above where it was at the beginning."""
        peak, is_over = self._now(), threading.Event()

        def watch() -> None:
            nonlocal peak
            while not is_over.wait(_SAMPLING_SECONDS):
                peak = max(peak, self._now())

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            call()
        finally:
            is_over.set()
            watcher.join()
        return max(0, max(peak, self._now()) - self._before)

    def _now(self) -> int:
        return int(self._process.memory_info().rss)


def _warm_up(encode: Encode, texts: list[str], memory: _ResidentMemory | None) -> int | None:
    call = partial(encode_checked, encode, texts)
    if memory is None:
        call()
        return None
    return memory.peak_growth(call)


def _median_seconds(encode: Encode, compose: Callable[[], list[str]]) -> float:
    seconds: list[float] = []
    while not _is_enough(seconds):
        texts = compose()
        start = time.perf_counter()
        encode(texts)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _is_enough(seconds: list[float]) -> bool:
    total = sum(seconds)
    if len(seconds) >= _MAX_CALLS or total >= _MAX_SECONDS:
        return True
    return len(seconds) >= _MIN_CALLS and total >= _MIN_SECONDS


def _find(folder: Path, seed: int) -> Iterator[Dataset]:
    del folder  # it needs no data
    name = "figure2"
    yield Dataset(name=name, files=(), load=partial(ResourceUsage, name=name, seed=seed))


SUITE = Suite(
    name="resources",
    title="Time and memory by sentence length and batch size",
    source="Yang et al. 2019, sec. 7, figure 2",
    find=_find,
    uncached=True,
)
