"""The virtual loop: asyncio as ever, but hours pass at once and the same twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from harness.memory import entries

from dhtcrawl.fetch.deadline import Deadline
from dhtcrawl.sim.loop import Deadlock, VirtualClock, VirtualLoop, current_host, run


async def test_a_year_passes_at_once() -> None:
    await asyncio.sleep(365 * 86_400)
    result = asyncio.get_running_loop().time()
    assert result == 365 * 86_400


async def test_timers_fire_in_order_of_their_time_and_exactly_then() -> None:
    loop = asyncio.get_running_loop()
    fired: list[tuple[float, float]] = []

    def fire(when: float) -> None:
        fired.append((when, loop.time()))

    for when in (0.3, 0.1, 0.1 + 0.2, 1e6, 1e-7):
        loop.call_at(when, fire, when)
    await asyncio.sleep(1e6 + 1)
    assert all(abs(when - now) <= 1e-9 for when, now in fired)
    assert all(a[1] <= b[1] for a, b in pairwise(fired))
    assert len(fired) == 5


async def test_work_that_takes_no_time_takes_no_time() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    result = asyncio.get_running_loop().time()
    assert result == 0.0


async def test_timeouts_task_groups_queues_and_events_work() -> None:
    seen: list[str] = []
    queue: asyncio.Queue[str] = asyncio.Queue(1)
    done = asyncio.Event()

    async def produce() -> None:
        for name in ("a", "b", "c"):
            await asyncio.sleep(1)
            await queue.put(name)
        done.set()

    async def consume() -> None:
        for _ in range(3):
            seen.append(await queue.get())
        await done.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        group.create_task(consume())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5):
            await asyncio.Event().wait()
    seen.append(f"{asyncio.get_running_loop().time():g}")
    assert seen == ["a", "b", "c", "5.5"]


async def test_a_failing_task_cancels_its_group() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("one")

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.sleep(1e9))
    assert [str(error) for error in caught.value.exceptions] == ["one"]


def test_waiting_for_what_never_happens_is_a_deadlock_that_names_it() -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="wait_for_godot"):
        run(wait_for_godot())


def test_a_deadlock_names_the_other_tasks_too() -> None:
    async def vladimir() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(vladimir())

    with pytest.raises(Deadlock, match="vladimir"):
        run(main())


async def test_an_executor_runs_inline() -> None:
    def fail() -> None:
        raise OSError("no")

    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(None, divmod, 7, 3)
    assert future.done()
    assert await future == (2, 1)
    assert await asyncio.to_thread(divmod, 7, 3) == (2, 1)
    with pytest.raises(OSError, match="no"):
        await loop.run_in_executor(None, fail)


async def test_there_are_no_sockets() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(NotImplementedError):
        await loop.create_connection(asyncio.Protocol, "127.0.0.1", 80)
    with pytest.raises(NotImplementedError):
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    with pytest.raises(NotImplementedError):
        await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    with pytest.raises(NotImplementedError):
        await loop.getaddrinfo("localhost", 80)


async def test_the_clocks_follow_the_loop() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    assert clock.wall() == datetime(2026, 1, 1, tzinfo=UTC)
    await asyncio.sleep(90.5)
    assert clock.monotonic() == 90.5
    assert clock.wall() == datetime(2026, 1, 1, 0, 1, 30, 500_000, tzinfo=UTC)


def test_a_loop_can_be_used_again_after_a_run() -> None:
    loop = VirtualLoop()
    assert loop.run_until_complete(asyncio.sleep(1, "a")) == "a"
    assert loop.run_until_complete(asyncio.sleep(1, "b")) == "b"
    assert loop.time() == 2.0
    loop.close()


# The client's deadline, on a clock that makes its times exact


async def test_a_deadline_ends_its_block() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError), Deadline(loop, 5.0):
        await asyncio.sleep(6)
    assert loop.time() == 5.0
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_deadline_moves_both_ways() -> None:
    loop = asyncio.get_running_loop()
    with Deadline(loop, 5.0) as deadline:
        deadline.move(20.0)
        await asyncio.sleep(10)
        deadline.move(float("inf"))
        await asyncio.sleep(90)
        deadline.move(200.0)
        await asyncio.sleep(50)
        deadline.move(150.5)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(10)
        raised_at = loop.time()
        task = asyncio.current_task()
        assert task is not None
    assert raised_at == 150.5
    assert task.cancelling() == 0


async def test_a_deadline_leaves_the_cancellation_of_others_alone() -> None:
    async def wait() -> None:
        with Deadline(asyncio.get_running_loop(), 5.0):
            await asyncio.sleep(10)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_at_the_deadline_is_still_a_cancellation() -> None:
    async def wait() -> None:
        with Deadline(asyncio.get_running_loop(), 5.0):
            await asyncio.sleep(10)

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(wait())
    loop.call_at(5.0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


# Hosts that stand still


async def test_a_host_that_stands_still_runs_nothing_and_then_all_of_it_in_order() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    ran: list[str] = []

    async def count(name: str) -> None:
        for second in range(1, 6):
            await asyncio.sleep(1)
            ran.append(f"{name} {second} at {loop.time():.0f}")

    tasks = []
    for host in ("10.0.0.1", "10.0.0.2"):
        token = current_host.set(host)
        tasks.append(loop.create_task(count(host)))
        current_host.reset(token)
    await asyncio.sleep(1.5)
    loop.pause("10.0.0.1")
    await asyncio.sleep(10)
    before = list(ran)
    loop.resume("10.0.0.1")
    await asyncio.gather(*tasks)
    after = ran[len(before) :]
    assert [line for line in before if line.startswith("10.0.0.1")] == ["10.0.0.1 1 at 1"]
    assert len([line for line in before if line.startswith("10.0.0.2")]) == 5
    # The sleep that had come due meanwhile is over at once, and the next one lasts a second again.
    assert after == [f"10.0.0.1 {second} at {second + 9.5:.0f}" for second in range(2, 6)]


def test_to_wait_for_a_host_that_nobody_wakes_is_a_deadlock() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        current_host.set("10.0.0.1")
        done = loop.create_future()
        loop.call_soon(done.set_result, None)
        loop.pause("10.0.0.1")
        await done

    with pytest.raises(Deadlock):
        run(main())


async def test_timers_of_one_moment_fire_in_the_order_in_which_they_were_set() -> None:
    fired: list[int] = []
    loop = asyncio.get_running_loop()
    for number in range(100):
        loop.call_at(1.0, fired.append, number)
    await asyncio.sleep(2)
    assert fired == list(range(100))


async def test_cancelled_timers_are_swept_out_and_the_others_fire() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    fired: list[int] = []
    timers = [loop.call_at(10.0 + number, fired.append, number) for number in range(1000)]
    for timer in timers[5:]:
        timer.cancel()
    await asyncio.sleep(1)
    waiting = entries(loop)
    await asyncio.sleep(2000)
    assert waiting < 200
    assert len(fired) == 5


async def test_a_clock_that_is_off_counts_from_elsewhere_and_its_wall_jumps() -> None:
    clock = VirtualClock(asyncio.get_running_loop(), started=500.0, off_s=3600.0, rate=1.001)
    began, wall = clock.monotonic(), clock.wall()
    await asyncio.sleep(1000)
    clock.off_s -= 7200
    result = clock.monotonic() - began, (clock.wall() - wall).total_seconds()
    counted, wall_s = result
    assert counted == pytest.approx(1001.0)
    assert wall_s == pytest.approx(1000 - 7200)
