"""Which nodes are asked to take a copy of a page, decided without a network."""

from __future__ import annotations

from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.bodies.copy_tracker import FULL_S, SILENT_S, Ask, CopyCode, CopyTicket, CopyTracker, targets

from .fake_peers import node, view_of

OWN, PAGE = node(0), bytes([0x21]) * 20
VIEW = view_of(range(5))
BEST = targets(VIEW, PAGE, [OWN], 4)
HAS_IT, FULL, LACKS_IT, REFUSED = CopyCode


class Tracked:
    """A tracker that wants two further copies, whom it asks, and who has the page in the end."""

    def __init__(self, view: View = VIEW) -> None:
        self.view = view
        self.now = 0.0
        self.tracker = CopyTracker(OWN, 2)
        self.asked: list[bytes] = []
        self.tickets: list[CopyTicket] = []
        self.over: list[tuple[bytes, ...]] = []

    def copy(self, *, again: bool = False, has_it: tuple[bytes, ...] = ()) -> None:
        then = lambda page, holders: self.over.append(holders)  # noqa: E731
        self.tracker.copy(self.view, self.now, [PAGE], then, again=again, has_it=has_it)
        self.act()

    def act(self) -> None:
        for effect in self.tracker.take_effects():
            self.tickets.append(effect.ticket)
            if isinstance(effect, Ask):
                self.asked.append(effect.node)
            else:
                effect.ticket.then(effect.ticket.key, tuple(effect.ticket.has_it))

    def answers(self, to: bytes, code: CopyCode) -> None:
        self.tracker.answered(self.view, self.now, to, self.tickets[-1], code)
        self.act()


def test_as_many_of_the_closest_as_are_needed_are_asked() -> None:
    tracked = Tracked()
    tracked.copy()
    assert tracked.asked == BEST[:2]
    tracked.answers(BEST[0], HAS_IT)
    assert tracked.over == []
    tracked.answers(BEST[1], HAS_IT)
    assert tracked.over == [(BEST[0], BEST[1])]


def test_nodes_that_have_it_count_and_are_not_asked() -> None:
    tracked = Tracked()
    tracked.copy(has_it=(BEST[1],))
    assert tracked.asked == BEST[:1]
    tracked.copy(has_it=(BEST[1], BEST[3]))
    assert tracked.over == [(BEST[1], BEST[3])]


def test_whoever_refuses_is_followed_by_the_next_and_nobody_is_asked_twice() -> None:
    tracked = Tracked()
    tracked.copy()
    for number, code in enumerate((REFUSED, FULL, REFUSED, HAS_IT)):
        tracked.answers(BEST[number], code)
    assert tracked.asked == BEST
    assert tracked.over == [(BEST[3],)], "with too few copies, as nobody is left"


def test_a_node_that_lacks_the_body_is_asked_once_more_and_only_once() -> None:
    tracked = Tracked(view_of([0, 1]))
    tracked.copy(again=True)
    tracked.answers(node(1), LACKS_IT)
    assert tracked.asked == [node(1), node(1)]
    tracked.answers(node(1), LACKS_IT)
    assert tracked.over == [()]


def test_a_full_node_and_a_silent_one_are_left_alone_for_a_while() -> None:
    tracked = Tracked(view_of([0, 1, 2]))
    tracked.copy()
    [ticket, _] = tracked.tickets
    tracked.answers(node(1), FULL)
    tracked.tracker.silent(tracked.view, 0.0, node(2), [ticket])
    tracked.act()
    assert tracked.over == [()]
    tracked.asked.clear()
    for now, asked in ((0.0, []), (SILENT_S, [node(2)]), (FULL_S, sorted([node(1), node(2)]))):
        tracked.now = now
        tracked.copy()
        assert sorted(tracked.asked) == asked
        tracked.asked.clear()


def test_a_page_that_is_lost_is_over_once() -> None:
    tracked = Tracked()
    tracked.copy()
    tracked.tracker.lost(tracked.tickets[0])
    tracked.act()
    tracked.answers(BEST[1], HAS_IT)
    assert tracked.over == [()]
