"""The keyed work queue, on fake time."""

import asyncio
import itertools

from tests.support.fake_time import run_in_fake_time

from runyard_operator.workqueue import BACKOFF, Key, WorkQueue
from runyard_operator.workqueue import Worked as Told

A, B, C = Key("ns", "a"), Key("ns", "b"), Key("ns", "c")


class Worked:
    """A handler that takes `seconds` per key and notes when it began; raises for keys in `failing`."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.began: list[tuple[str, float]] = []
        self.running: list[Key] = []
        self.most = 0
        self.failing: set[Key] = set()
        self.after: dict[Key, float] = {}

    async def __call__(self, key: Key) -> float | None:
        assert key not in self.running, "one key worked twice at once"
        self.began.append((key.name, asyncio.get_running_loop().time()))
        self.running.append(key)
        self.most = max(self.most, len(self.running))
        await asyncio.sleep(self.seconds)
        self.running.remove(key)
        if key in self.failing:
            raise ValueError("no")
        return self.after.pop(key, None)


def started(worked: Worked, workers: int = 8, told: Told = lambda seconds, failed: None) -> WorkQueue:
    queue = WorkQueue("test", worked, workers=workers, worked=told)
    queue.start()
    return queue


def test_a_key_added_twice_before_it_is_worked_is_worked_once() -> None:
    worked = Worked()

    async def scenario() -> None:
        queue = started(worked, workers=1)
        queue.add(B)
        queue.add(A)
        queue.add(A)
        await asyncio.sleep(10)

    run_in_fake_time(scenario())
    assert worked.began == [("b", 0), ("a", 1)]


def test_keys_added_while_the_queue_is_closed_are_dropped() -> None:
    worked = Worked()

    async def scenario() -> None:
        queue = WorkQueue("test", worked, workers=8)
        queue.add(A)
        queue.add_after(B, 1)
        queue.start()
        queue.add(C)
        await asyncio.sleep(10)

    run_in_fake_time(scenario())
    assert worked.began == [("c", 0)]


def test_a_key_added_while_it_is_worked_is_worked_once_more_and_never_at_once() -> None:
    worked = Worked()

    async def scenario() -> None:
        queue = started(worked)
        queue.add(A)
        await asyncio.sleep(0.5)
        queue.add(A)
        queue.add(A)
        await asyncio.sleep(10)

    run_in_fake_time(scenario())
    assert worked.began == [("a", 0), ("a", 1)]


def test_no_more_keys_are_worked_at_once_than_there_are_workers_and_in_the_order_they_came() -> None:
    worked = Worked()

    async def scenario() -> None:
        queue = started(worked, workers=2)
        for key in (A, B, C):
            queue.add(key)
        await asyncio.sleep(10)

    run_in_fake_time(scenario())
    assert worked.began == [("a", 0), ("b", 0), ("c", 1)]
    assert worked.most == 2


def test_a_key_comes_back_after_the_seconds_its_handler_asked_for() -> None:
    worked = Worked(seconds=0)
    worked.after[A] = 30

    async def scenario() -> None:
        started(worked).add(A)
        await asyncio.sleep(100)

    run_in_fake_time(scenario())
    assert worked.began == [("a", 0), ("a", 30)]


def test_a_key_that_is_worked_earlier_than_asked_for_is_not_worked_again_at_the_old_time() -> None:
    worked = Worked(seconds=0)
    worked.after[A] = 30

    async def scenario() -> None:
        queue = started(worked)
        queue.add(A)
        await asyncio.sleep(10)
        queue.add(A)
        await asyncio.sleep(100)

    run_in_fake_time(scenario())
    assert worked.began == [("a", 0), ("a", 10)]


def test_of_two_later_times_the_earlier_one_counts() -> None:
    worked = Worked(seconds=0)

    async def scenario() -> None:
        queue = started(worked)
        queue.add_after(A, 20)
        queue.add_after(A, 50)
        queue.add_after(A, 5)
        await asyncio.sleep(100)

    run_in_fake_time(scenario())
    assert worked.began == [("a", 5)]


def test_a_key_whose_handler_raises_comes_back_ever_later_and_at_most_a_minute_later() -> None:
    worked = Worked(seconds=0)
    worked.failing.add(A)

    async def scenario() -> int:
        told: list[bool] = []
        queue = started(worked, told=lambda seconds, failed: told.append(failed))
        queue.add(A)
        await asyncio.sleep(sum(BACKOFF) + 130)
        return sum(told)

    errors = run_in_fake_time(scenario())
    times = [at for _, at in worked.began]
    gaps = [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)]
    assert gaps == [*BACKOFF, 60, 60]
    assert errors == len(times)


def test_success_forgets_earlier_failures() -> None:
    worked = Worked(seconds=0)
    worked.failing.add(A)

    async def scenario() -> None:
        queue = started(worked)
        queue.add(A)
        await asyncio.sleep(0.05)
        worked.failing.clear()
        await asyncio.sleep(5)
        worked.failing.add(A)
        queue.add(A)
        await asyncio.sleep(0.15)

    run_in_fake_time(scenario())
    assert [round(at, 3) for _, at in worked.began] == [0, 0.1, 5.05, 5.15]


def test_the_age_is_that_of_the_oldest_key_waiting_or_worked() -> None:
    worked = Worked(seconds=100)

    async def scenario() -> tuple[float, float, float]:
        queue = started(worked, workers=1)
        idle = queue.oldest_age()
        queue.add(A)
        await asyncio.sleep(30)
        queue.add(B)
        busy = queue.oldest_age()
        await asyncio.sleep(75)
        return idle, busy, queue.oldest_age()

    assert run_in_fake_time(scenario()) == (0, 30, 5)


def test_a_key_that_is_due_later_has_no_age() -> None:
    worked = Worked()

    async def scenario() -> float:
        queue = started(worked)
        queue.add_after(A, 500)
        await asyncio.sleep(400)
        return queue.oldest_age()

    assert run_in_fake_time(scenario()) == 0


def test_stopping_waits_for_running_handlers_but_not_for_ever_and_begins_none() -> None:
    worked = Worked(seconds=100)

    async def scenario() -> float:
        queue = started(worked, workers=1)
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(1)
        await queue.stop(grace=5)
        return asyncio.get_running_loop().time()

    assert run_in_fake_time(scenario()) == 6
    assert [name for name, _ in worked.began] == ["a"]
