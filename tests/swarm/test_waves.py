"""The end of a crawl: told from two waves, an audit and one more wave; never early, and soon after."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.standing import FROZEN, OWED
from dhtcrawl.swarm.calls.lifecycle import CrawlStanding
from dhtcrawl.swarm.lifecycle.waves import (
    REASONS_MAX,
    Waves,
    WaveVerdict,
    view_fingerprint,
)

VIEW, RECORD = b"v" * 16, b"r" * 8
NODES = [bytes([number]) * 20 for number in (0xA1, 0xB2, 0xC3)]


def report(**fields: Any) -> CrawlStanding:
    known: dict[str, Any] = {"incarnation": 1, "knows": True, "idle": True, "activity": 7, "view": VIEW}
    return CrawlStanding(**{**known, "record": RECORD, "state_version": 0, "waiting": {}, "counters": {}, **fields})


def wave(**changes: CrawlStanding | None) -> dict[bytes, CrawlStanding | None]:
    """All three idle, but for the changes: a=…, b=…, c=…"""
    names = dict(zip("abc", NODES, strict=True))
    return {node: changes.get(name, report()) for name, node in names.items()}


def verdicts(waves: Waves, *seen: dict[bytes, CrawlStanding | None], stopping: bool = False) -> list[WaveVerdict]:
    return [waves.judge(NODES, VIEW, RECORD, reports, stopping=stopping).verdict for reports in seen]


# The rule


def test_two_waves_an_audit_and_one_more_wave_make_an_end() -> None:
    waves = Waves()
    assert verdicts(waves, wave(), wave()) == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]
    waves.audited(waves.still, 0, 0)
    assert verdicts(waves, wave()) == [WaveVerdict.COMPLETE]


def test_where_nobody_was_asked_nothing_ends() -> None:
    waves = Waves()
    for _ in range(3):
        judged = waves.judge([], VIEW, RECORD, {})
        assert (judged.verdict, judged.reasons) == (WaveVerdict.GO_ON, ("there are no members",))
        waves.audited(waves.still, 0, 0)


def test_a_count_of_none_is_nothing_to_wait_for() -> None:
    idle = wave(a=report(waiting={"in_flight": 0}))
    assert verdicts(Waves(), idle, idle) == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]
    frozen = wave(a=report(idle=False, waiting={FROZEN: 2, "queued": 0}))
    waves = Waves()
    assert verdicts(waves, frozen, frozen) == [WaveVerdict.GO_ON, WaveVerdict.FROZEN]
    assert len(waves.judge(NODES, VIEW, RECORD, frozen).reasons) == 1


def test_without_the_audit_it_never_ends() -> None:
    assert set(verdicts(Waves(), *[wave()] * 9)[1:]) == {WaveVerdict.AUDIT}


@pytest.mark.parametrize(("missing", "resent"), [(1, 1), (1, 0), (0, 1)])
def test_a_link_that_was_missing_or_sent_again_starts_the_waves_over(missing: int, resent: int) -> None:
    waves = Waves()
    verdicts(waves, wave(), wave())
    waves.audited(waves.still, missing, resent)
    assert verdicts(waves, wave(), wave()) == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]


def test_an_audit_of_another_stillness_says_nothing() -> None:
    waves = Waves()
    verdicts(waves, wave(), wave())
    before = waves.still
    verdicts(waves, *[wave(b=report(activity=8))] * 2)
    waves.audited(before, 0, 0)
    assert verdicts(waves, wave(b=report(activity=8))) == [WaveVerdict.AUDIT]


A = NODES[0]
BREAKS = [
    (None, f"no answer from {A.hex()[:4]}…"),
    (report(knows=False), "does not know the crawl"),
    (report(view=b"w" * 16), "sees other members"),
    (report(record=b"s" * 8), "another record"),
    (report(idle=False), "is busy"),
    (report(idle=False, waiting={"in_flight": 3}), "3 pages in flight at a1a1…"),
    (report(idle=False, waiting={"held": 1}), "1 tasks that a former owner is fetching"),
    (report(idle=False, waiting={"bodies": 2, FROZEN: 1}), "2 pages without a body"),
    (report(idle=False, waiting={"of_a_later_version": 2}), "2 of_a_later_version at a1a1…"),
    (report(waiting={FROZEN: 1}), "and that it is not"),
]


@pytest.mark.parametrize(("change", "reason"), BREAKS)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_whatever_one_node_says_instead_starts_everything_over(
    change: CrawlStanding | None, reason: str, at: int
) -> None:
    waves = Waves()
    for number in range(at):
        verdicts(waves, wave())
        if number == 1:
            waves.audited(waves.still, 0, 0)
    judged = waves.judge(NODES, VIEW, RECORD, wave(a=change))
    assert judged.verdict is WaveVerdict.GO_ON
    assert not judged.still
    assert any(reason in said for said in judged.reasons)
    assert verdicts(waves, wave(), wave()) == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]


@pytest.mark.parametrize("change", [{"activity": 8}, {"incarnation": 2}, {"activity": 0, "incarnation": 2}])
@pytest.mark.parametrize("audited", [False, True])
def test_a_node_that_moved_or_started_anew_between_two_still_waves_is_a_new_first_wave(
    change: dict[str, int], audited: bool
) -> None:
    waves = Waves()
    verdicts(waves, wave(), wave())
    if audited:
        waves.audited(waves.still, 0, 0)
    moved = wave(c=report(**change))
    assert verdicts(waves, moved, moved) == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]


@pytest.mark.parametrize("seen", [(NODES[:2], VIEW, RECORD), (NODES, b"w" * 16, RECORD), (NODES, VIEW, b"s" * 8)])
def test_other_members_another_view_or_record_of_the_coordinator_start_over(
    seen: tuple[list[bytes], bytes, bytes],
) -> None:
    waves = Waves()
    verdicts(waves, wave(), wave())
    members, view, record = seen
    agreed = {node: report(view=view, record=record) for node in members}
    assert waves.judge(members, view, record, agreed).verdict is WaveVerdict.GO_ON


def test_who_was_not_asked_does_not_count_and_who_was_has_to_answer() -> None:
    assert Waves().judge([], VIEW, RECORD, wave()).verdict is WaveVerdict.GO_ON
    waves = Waves()
    one = dict(list(wave().items())[:1])
    assert waves.judge(NODES, VIEW, RECORD, one).reasons == ("no answer from b2b2…", "no answer from c3c3…")


def test_what_may_not_be_started_is_frozen_and_not_over() -> None:
    frozen = wave(a=report(idle=False, waiting={FROZEN: 4}))
    waves = Waves()
    assert verdicts(waves, frozen, frozen, frozen) == [WaveVerdict.GO_ON, WaveVerdict.FROZEN, WaveVerdict.FROZEN]
    told = "4 tasks that another node has begun, or that may not be started at a1a1…"
    assert waves.judge(NODES, VIEW, RECORD, frozen).reasons == (told,)
    waves.audited(waves.still, 0, 0)
    assert verdicts(waves, frozen) == [WaveVerdict.FROZEN]


def test_a_crawl_that_is_stopping_waits_for_what_is_on_its_way_and_for_nothing_else() -> None:
    standing = wave(a=report(idle=False, waiting={"queued": 4, "bodies": 1, "repair": 2}))
    moving = wave(a=report(idle=False, waiting={"queued": 4, "links": 1}))
    assert verdicts(Waves(), standing, standing) == [WaveVerdict.GO_ON, WaveVerdict.GO_ON]
    assert verdicts(Waves(), standing, standing, stopping=True) == [WaveVerdict.GO_ON, WaveVerdict.FROZEN]
    assert verdicts(Waves(), moving, moving, stopping=True) == [WaveVerdict.GO_ON, WaveVerdict.GO_ON]
    assert verdicts(Waves(), wave(), wave(), stopping=True) == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]


def test_of_many_reasons_a_few_are_told() -> None:
    many = [bytes([number]) * 20 for number in range(100)]
    reasons = Waves().judge(many, VIEW, RECORD, {}).reasons
    assert len(reasons) == REASONS_MAX + 1
    assert reasons[-1] == f"and {100 - REASONS_MAX} more"


def test_the_same_stillness_has_one_name_everywhere_and_another_one_another() -> None:
    here, there, later = Waves(), Waves(), Waves()
    verdicts(here, wave())
    verdicts(there, wave(a=None), wave())
    verdicts(later, wave(a=report(activity=8)))
    assert here.still == there.still != later.still
    assert Waves().still == b""


def test_suspicion_changes_no_view_and_all_else_does() -> None:
    def seen(*states: MemberState) -> bytes:
        members = zip(NODES, states, strict=False)
        return view_fingerprint(View(Member(node, ("10.0.0.1", 1), state) for node, state in members))

    active, suspected, joining = MemberState.ACTIVE, MemberState.SUSPECTED, MemberState.JOINING
    assert seen(active, active, active) == seen(active, suspected, active)
    assert len({seen(active, active), seen(active, active, active), seen(active, active, joining), seen()}) == 4


# The wire


def test_a_report_survives_the_wire() -> None:
    told = report(idle=False, waiting=dict.fromkeys(OWED, 1), counters={"seconds": 1.5, "bytes": 2**40})
    assert CrawlStanding.parse(told.to_map()) == told


DOC = Path(__file__).parents[2] / "docs" / "protocol-crawls.md"


def test_the_protocols_page_has_every_word() -> None:
    table = DOC.read_text("utf-8").split("| word of `waiting` |", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(OWED)


# A model: items that wander between nodes, while waves go round


@dataclass(slots=True)
class Knot:
    """A node of the model. It holds work in `items` and, until it is acked, in `outbox`."""

    name: int
    view: set[int]
    items: list[int] = field(default_factory=list)
    outbox: dict[int, int] = field(default_factory=dict)  # item → to whom
    seen: set[int] = field(default_factory=set)
    incarnation: int = 1
    activity: int = 0

    @property
    def idle(self) -> bool:
        return not self.items and not self.outbox

    def report(self) -> CrawlStanding:
        view = view_of(self.view)
        return report(incarnation=self.incarnation, idle=self.idle, activity=self.activity, view=view)


def name_of(number: int) -> bytes:
    return bytes([number]) * 20


def view_of(numbers: Iterable[int]) -> bytes:
    return bytes(sorted(numbers)).ljust(16, b"\xff")


class Model:
    """Work moves, messages get lost and doubled, nodes start anew and join; one step at a time."""

    def __init__(self, rng: random.Random, knots: int, budget: int, *, chain: bool = False) -> None:
        """`budget` is how many items may still come to be; in a `chain` each leads to exactly one."""
        self.rng = rng
        self.chain = chain
        everybody = set(range(knots))
        self.knots = [Knot(name, set(everybody)) for name in range(knots)]
        self.messages: list[tuple[str, int, int, int]] = []  # kind, from, to, item
        self.budget = budget
        self.fresh = 0
        self.joins = 2
        self.over = False
        self.spawn(self.knots[rng.randrange(knots)])

    @property
    def work(self) -> bool:
        return not all(knot.idle for knot in self.knots)

    def spawn(self, knot: Knot) -> None:
        self.fresh += 1
        knot.seen.add(self.fresh)
        knot.activity += 1
        knot.items.append(self.fresh)

    def step(self) -> None:
        if self.over:
            return
        knot = self.rng.choice(self.knots)
        self.rng.choice([self.handle, self.handle, self.deliver, self.deliver, self.send, self.restart, self.join])(
            knot
        )

    def handle(self, knot: Knot) -> None:
        """An item is done, and leads to others."""
        if knot.items:
            knot.items.pop()
            knot.activity += 1
            for _ in range(min(self.budget, 1 if self.chain else self.rng.randrange(3))):
                self.budget -= 1
                self.fresh += 1
                knot.outbox[self.fresh] = self.rng.choice(sorted(knot.view))

    def send(self, knot: Knot) -> None:
        messages = [("item", knot.name, to, item) for item, to in knot.outbox.items()]
        self.messages += [message for message in messages if message not in self.messages]

    def deliver(self, _: Knot) -> None:
        if not self.messages:
            return
        index = self.rng.randrange(len(self.messages))
        kind, sender, to, item = self.messages[index]
        fate = self.rng.random()
        if fate > 0.1:  # else it comes twice
            self.messages.pop(index)
        if fate > 0.9:
            return
        knot = self.knots[to]
        if kind == "ack":
            knot.outbox.pop(item, None)
            return
        if item not in knot.seen:
            knot.seen.add(item)
            knot.activity += 1
            knot.items.append(item)
        self.messages.append(("ack", to, sender, item))

    def restart(self, knot: Knot) -> None:
        """What it holds is on its disk; what it counted is not."""
        if self.rng.random() < 0.1:
            knot.incarnation += 1
            knot.activity = 0

    def join(self, knot: Knot) -> None:
        """A node comes, or one more hears of it."""
        if self.joins and self.rng.random() < 0.05:
            self.joins -= 1
            name = len(self.knots)
            self.knots.append(Knot(name, set(range(name + 1))))
        newer = set(range(len(self.knots))) - knot.view
        if newer and self.rng.random() < 0.1:
            knot.view.add(min(newer))
            knot.activity += 1

    def wave(self, judge: Judge, steps_max: int) -> WaveVerdict:
        """The coordinator asks those it knows, in any order, while things go on between the answers."""
        coordinator = self.knots[0]
        members, view = sorted(coordinator.view), view_of(coordinator.view)
        reports: dict[bytes, CrawlStanding | None] = {}
        for name in self.rng.sample(members, len(members)):
            for _ in range(self.rng.randint(0, steps_max)):
                self.step()
            lost = steps_max and self.rng.random() < 0.02
            reports[name_of(name)] = None if lost else self.knots[name].report()
        return judge(list(map(name_of, members)), view, RECORD, reports)

    def finish(self) -> None:
        """Nothing new comes to be, and what there is gets done."""
        self.budget, self.over = 0, True
        while self.work or any(knot.view != self.knots[0].view for knot in self.knots):
            for knot in self.knots:
                knot.view = set(range(len(self.knots)))
                self.handle(knot)
                self.send(knot)
            for _ in range(len(self.messages)):
                self.deliver(self.knots[0])


Judge = Callable[[Iterable[bytes], bytes, bytes, dict[bytes, CrawlStanding | None]], WaveVerdict]


def by_the_rule(model: Model, waves: Waves) -> Judge:
    def judge(
        members: Iterable[bytes], view: bytes, record: bytes, reports: dict[bytes, CrawlStanding | None]
    ) -> WaveVerdict:
        verdict = waves.judge(members, view, record, reports).verdict
        if verdict is WaveVerdict.AUDIT:
            for _ in range(model.rng.randint(0, 6)):
                model.step()
            waves.audited(waves.still, 0, 0)
        return verdict

    return judge


@settings(max_examples=80)
@given(
    rng=st.randoms(use_true_random=False),
    knots=st.integers(1, 4),
    budget=st.integers(0, 25),
    steps_max=st.integers(1, 8),
)
def test_it_is_never_complete_while_work_exists_and_soon_after(
    rng: random.Random, knots: int, budget: int, steps_max: int
) -> None:
    model = Model(rng, knots, budget)
    judge = by_the_rule(model, Waves())
    for _ in range(20):
        if model.wave(judge, steps_max) is WaveVerdict.COMPLETE:
            assert not model.work
            return
    model.finish()
    assert WaveVerdict.COMPLETE in [model.wave(judge, 0) for _ in range(4)]


def early(judge_of: Callable[[Model], Judge], steps_max: int) -> int:
    """In how many of the model's runs a judge says COMPLETE while there is work."""
    found = 0
    for seed in range(25):
        model = Model(random.Random(seed), 2, 10_000, chain=True)
        judge = judge_of(model)
        for _ in range(150):
            if model.wave(judge, steps_max) is WaveVerdict.COMPLETE:
                found += model.work
                break
    return found


def test_the_model_would_show_a_verdict_that_is_early() -> None:
    def one_wave(_: Model) -> Judge:
        def judge(members: Any, view: bytes, record: bytes, reports: dict[bytes, CrawlStanding | None]) -> WaveVerdict:
            still = all(report is not None and report.idle for report in reports.values())
            return WaveVerdict.COMPLETE if still else WaveVerdict.GO_ON

        return judge

    def blind(changed: dict[str, Any]) -> Callable[[Model], Judge]:
        """The rule, but for what it does not look at."""

        def judge_of(model: Model) -> Judge:
            rule = by_the_rule(model, Waves())

            def judge(
                members: Any, view: bytes, record: bytes, reports: dict[bytes, CrawlStanding | None]
            ) -> WaveVerdict:
                seen = {
                    node: report and CrawlStanding(**{**vars(report), **changed}) for node, report in reports.items()
                }
                return rule(members, changed.get("view", view), record, seen)

            return judge

        return judge_of

    assert early(one_wave, 8) > 0
    assert early(blind({"activity": 0, "incarnation": 1}), 40) > 0
    assert early(blind({"view": VIEW}), 8) > 0
    assert early(lambda model: by_the_rule(model, Waves()), 8) == 0
