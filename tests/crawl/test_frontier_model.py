"""The frontier with its shell around it: nobody is forgotten or asked twice, in whatever order things happen."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl import frontier as module

from .stored import Shell, task

HOSTS = [f"h{number}" for number in range(5)]
ACTIONS = ["find"] * 6 + [
    "round",
    "deliver",
    "deliver",
    "refill",
    "start",
    "start",
    "finish",
    "retry",
    "later",
    "assign",
    "lend",
    "give back",
]


@given(
    desk=st.booleans(),
    tasks_max=st.integers(1, 12),
    hosts_max=st.integers(1, 4),
    delays=st.lists(st.sampled_from([0.0, 1.0]), min_size=len(HOSTS), max_size=len(HOSTS)),
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 59), st.integers(0, 3)), max_size=120),
)
def test_every_task_is_started_once_in_whatever_order_things_happen(
    desk: bool, tasks_max: int, hosts_max: int, delays: list[float], actions: list[tuple[str, int, int]]
) -> None:
    with patch.object(module, "FRONT_MIN", 2):
        shell = Shell(dict(zip(HOSTS, delays, strict=True)), tasks_max=tasks_max, hosts_max=hosts_max, desk=desk)
        for order, (action, number, depth) in enumerate(actions):
            act(shell, action, number, depth, order)
            fronts_max = max(tasks_max, 2 * 2 * hosts_max)
            waiting = sum(shell.retried.values())
            assert len(shell.frontier) <= 2 * fronts_max + waiting
            assert sum(shell.frontier.load(host) > 0 for host in HOSTS) <= hosts_max
        shell.run_to_the_end()
    assert shell.book.violations == 0
    assert not any(shell.store.queues.values())
    for key, accepted in shell.store.accepted.items():
        times = shell.started[key] - shell.retried[key]
        assert times == 1, accepted.url
    assert all(times == 1 for times in shell.robots_started.values())


def act(shell: Shell, action: str, number: int, depth: int, order: int) -> None:
    host = HOSTS[number % len(HOSTS)]
    match action:
        case "find":
            scheme = "https" if number % 7 == 0 else "http"
            shell.find(task(f"{scheme}://{host}/{number}", order, depth))
        case "round":
            shell.commit_round()
        case "deliver":
            shell.deliver()
        case "refill":
            shell.refill()
        case "start":
            shell.start()
        case "finish" | "retry" if shell.jobs:
            job = shell.jobs[number % len(shell.jobs)]
            shell.finish(job, retry_in_s=depth if action == "retry" else None)
        case "assign":
            shell.assign(number % 5)
        case "lend":
            shell.lend(number % 5)
        case "give back":
            shell.give_back()
        case "later":
            shell.now += number / 20
        case _:
            pass
