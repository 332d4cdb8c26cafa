from collections.abc import Iterator
from concurrent.futures import Future
from threading import Event

import numpy as np
import pytest

from xling_tf.serving.batches import Tensors
from xling_tf.serving.batching import BatchingParameters, BatchScheduler, Lane
from xling_tf.serving.errors import ServingError
from xling_tf.serving.metrics import Metrics

SOON = 30  # Seconds; far more than any answer here takes.


class Doubling:
    """A model that doubles numbers, cannot bear 13, and answers when it is let."""

    def __init__(self, batched: bool = True) -> None:
        self.calls: list[list[float]] = []
        self.begun = Event()
        self.let = Event()
        self.lane = Lane("m", self.run, batched)

    def run(self, inputs: Tensors) -> Tensors:
        self.calls.append(np.asarray(inputs["x"]).tolist())
        self.begun.set()
        assert self.let.wait(SOON)
        if np.any(inputs["x"] == 13):
            raise ServingError.invalid_argument("13")
        return {"y": 2 * inputs["x"]}


@pytest.fixture
def model() -> Doubling:
    return Doubling()


@pytest.fixture
def make_scheduler() -> Iterator[type]:
    schedulers = []

    def make(**parameters: int) -> BatchScheduler:
        parameters = {"num_batch_threads": 1, **parameters}
        schedulers.append(BatchScheduler(BatchingParameters(**parameters), Metrics()))
        return schedulers[-1]

    yield make
    for scheduler in schedulers:
        assert scheduler.close()


def submit(scheduler: BatchScheduler, model: Doubling, *numbers: float) -> "Future[Tensors]":
    return scheduler.submit(model.lane, {"x": np.array(numbers, np.float64)})


def busy(scheduler: BatchScheduler, model: Doubling) -> "Future[Tensors]":
    """A request that keeps the one thread, so that those after it wait together."""
    future = submit(scheduler, model, 0)
    assert model.begun.wait(SOON)
    return future


def answer(future: "Future[Tensors]") -> list[float]:
    return future.result(SOON)["y"].tolist()


def test_requests_that_wait_share_a_call_and_get_their_own_rows(make_scheduler, model) -> None:
    scheduler = make_scheduler()
    first = busy(scheduler, model)
    others = [
        submit(scheduler, model, 1, 2),
        submit(scheduler, model, 3),
        submit(scheduler, model, 4),
    ]
    model.let.set()
    assert [answer(each) for each in [first, *others]] == [[0], [2, 4], [6], [8]]
    assert model.calls == [[0], [1, 2, 3, 4]]


def test_a_lane_without_batching_calls_for_each_request(make_scheduler) -> None:
    model = Doubling(batched=False)
    scheduler = make_scheduler(max_enqueued_batches=1)
    first = busy(scheduler, model)
    others = [submit(scheduler, model, number) for number in (1, 2)]
    model.let.set()
    assert [answer(each) for each in [first, *others]] == [[0], [2], [4]]
    assert model.calls == [[0], [1], [2]]


def test_a_large_request_is_split_and_fills_the_open_batch(make_scheduler, model) -> None:
    scheduler = make_scheduler(max_batch_size=3)
    first = busy(scheduler, model)
    small, large = submit(scheduler, model, 1), submit(scheduler, model, 2, 3, 4, 5, 6, 7)
    model.let.set()
    assert [answer(each) for each in (first, small, large)] == [[0], [2], [4, 6, 8, 10, 12, 14]]
    # 1 has room for two; the other four are a full batch and one more.
    assert model.calls == [[0], [1, 2, 3], [4, 5, 6], [7]]


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(make_scheduler, model) -> None:
    scheduler = make_scheduler(max_batch_size=2, max_enqueued_batches=2)
    first = busy(scheduler, model)
    # Two batches of two may wait: 3 rows fit, 1 is left, so 2 do not.
    waiting = submit(scheduler, model, 1, 2, 3)
    with pytest.raises(ServingError, match=r"queue .* is full; task size is 2 .* only 1") as error:
        submit(scheduler, model, 4, 5)
    assert error.value.status == 429
    last = submit(scheduler, model, 4)
    model.let.set()
    assert [answer(each) for each in (first, waiting, last)] == [[0], [2, 4, 6], [8]]
    assert answer(submit(scheduler, model, 9)) == [18]


def test_those_who_have_gone_keep_no_place_from_others(make_scheduler, model) -> None:
    scheduler = make_scheduler(max_batch_size=2, max_enqueued_batches=2)
    first = busy(scheduler, model)
    gone, stays = submit(scheduler, model, 1, 2, 3), submit(scheduler, model, 4)
    assert gone.cancel()
    # A batch of [4], which has room for one row more, and one for two.
    came = submit(scheduler, model, 5, 6, 7)
    with pytest.raises(ServingError, match="scheduling capacity is only 0"):
        submit(scheduler, model, 8)
    assert came.cancel()
    assert stays.cancel()
    with pytest.raises(ServingError, match="task size is 5 but scheduling capacity is only 4"):
        submit(scheduler, model, 1, 2, 3, 4, 5)
    queued = scheduler._metrics.queued_rows.labels("m")._value
    assert queued.get() == 0
    last = submit(scheduler, model, 9)
    model.let.set()
    assert [answer(each) for each in (first, last)] == [[0], [18]]
    assert model.calls == [[0], [9]]
    assert queued.get() == 0


def test_a_request_beyond_the_whole_queue_is_refused_and_leaves_nothing(
    make_scheduler, model
) -> None:
    scheduler = make_scheduler(max_batch_size=2, max_enqueued_batches=2)
    model.let.set()
    with pytest.raises(ServingError, match="task size is 5 but scheduling capacity is only 4"):
        submit(scheduler, model, 1, 2, 3, 4, 5)
    assert answer(submit(scheduler, model, 1)) == [2]


def test_one_bad_request_fails_alone(make_scheduler, model) -> None:
    scheduler = make_scheduler()
    first = busy(scheduler, model)
    others = [submit(scheduler, model, number) for number in (1, 2, 13, 4)]
    model.let.set()
    with pytest.raises(ServingError, match="13"):
        others[2].result(SOON)
    assert [answer(each) for each in (first, *others[:2], others[3])] == [[0], [2], [4], [8]]
    # Halves: the half without it is whole again, the other is halved once more.
    assert model.calls == [[0], [1, 2, 13, 4], [1, 2], [13, 4], [13], [4]]


def test_a_bad_part_fails_its_request_once(make_scheduler, model) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    model.let.set()
    with pytest.raises(ServingError, match="13"):
        submit(scheduler, model, 13, 13, 1).result(SOON)
    assert answer(submit(scheduler, model, 1)) == [2]


def test_a_cancelled_request_is_not_run(make_scheduler, model) -> None:
    scheduler = make_scheduler()
    first = busy(scheduler, model)
    cancelled, other = submit(scheduler, model, 1), submit(scheduler, model, 2)
    assert cancelled.cancel()
    model.let.set()
    assert [answer(first), answer(other)] == [[0], [4]]
    assert model.calls == [[0], [2]]


def test_rows_of_other_shapes_do_not_share_a_call(make_scheduler, model) -> None:
    scheduler = make_scheduler()
    first = busy(scheduler, model)
    flat = submit(scheduler, model, 1)
    pairs = scheduler.submit(model.lane, {"x": np.array([[1.0, 2.0]])})
    model.let.set()
    assert [answer(first), answer(flat), answer(pairs)] == [[0], [2], [[2, 4]]]
    assert model.calls == [[0], [1], [[1, 2]]]


@pytest.mark.parametrize(
    "inputs",
    [{"x": np.float64(3)}, {"x": np.zeros(0)}, {"x": np.ones(2), "other": np.ones(3)}],
    ids=["scalar", "no rows", "different rows"],
)
def test_what_has_no_common_rows_is_run_alone(make_scheduler, model, inputs: Tensors) -> None:
    model.let.set()
    outputs = make_scheduler().submit(model.lane, inputs).result(SOON)
    np.testing.assert_array_equal(outputs["y"], 2 * inputs["x"])


def test_outputs_that_are_no_rows_are_told_apart_by_running_alone(make_scheduler) -> None:
    begun, let = Event(), Event()

    def total(inputs: Tensors) -> Tensors:
        begun.set()
        assert let.wait(SOON)
        return {"y": np.sum(inputs["x"], keepdims=True)}

    lane = Lane("m", total, True)
    scheduler = make_scheduler()
    futures = [scheduler.submit(lane, {"x": np.array([1.0])})]
    assert begun.wait(SOON)
    futures += [scheduler.submit(lane, {"x": np.array([number, 1.0])}) for number in (2, 3)]
    let.set()
    assert [answer(future) for future in futures] == [[1], [3], [4]]


def test_a_batch_waits_for_rows_until_it_is_full(make_scheduler, model) -> None:
    scheduler = make_scheduler(max_batch_size=2, batch_timeout_micros=SOON * 1_000_000)
    model.let.set()
    first = submit(scheduler, model, 1)
    assert not first.done()
    second = submit(scheduler, model, 2)
    assert [answer(first), answer(second)] == [[2], [4]]
    assert model.calls == [[1, 2]]


def test_a_batch_that_is_not_full_is_run_after_its_timeout(make_scheduler, model) -> None:
    model.let.set()
    scheduler = make_scheduler(max_batch_size=2, batch_timeout_micros=1000)
    assert answer(submit(scheduler, model, 1)) == [2]


def test_lanes_take_turns(make_scheduler, model) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    other = Doubling()
    other.let.set()
    first = busy(scheduler, model)
    many = [submit(scheduler, model, number) for number in (1, 2, 3)]
    few = submit(scheduler, other, 7)
    few.add_done_callback(lambda done: model.calls.append(["other"]))
    model.let.set()
    assert [answer(each) for each in (first, *many, few)] == [[0], [2], [4], [6], [14]]
    assert model.calls.index(["other"]) == 2
