"""The same load without a server: threads that call a model in their own process."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xling_tf.load_testing.wrk import Measured


def call(
    encode: Callable[[list[str]], object],
    batches: Sequence[list[str]],
    clients: int,
    seconds: float,
) -> Measured:
    """Calls a function with batches in turn, in so many threads.

    Args:
        encode: Takes a list of sentences.
        batches: What it takes, in turn.
        clients: Threads, each of which calls again as soon as its call is over.
        seconds: For how long.

    Example:
        >>> call(lambda batch: time.sleep(0.01), [["a"]], clients=2, seconds=0.1).requests > 2
        True
    """
    start = threading.Barrier(clients)

    def work(client: int) -> list[float]:
        latencies: list[float] = []
        start.wait()
        now = time.perf_counter()
        end = now + seconds
        while now < end:
            encode(batches[(client + len(latencies)) % len(batches)])
            before, now = now, time.perf_counter()
            latencies.append(now - before)
        return latencies

    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        latencies = np.concatenate(list(pool.map(work, range(clients)))) * 1e3
    taken = time.perf_counter() - begin
    p50, p99 = np.percentile(latencies, (50, 99))
    return Measured(len(latencies), taken, float(p50), float(p99), float(latencies.max()))
