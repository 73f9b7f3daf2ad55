"""When a crawl is over, told from what its nodes report. Pure.

The coordinator asks every member for a report: a *wave*. A wave is *still*
when all answered, all are idle, and all agree with the coordinator on who the
members are and on the crawl's record.

               still            the same           nothing missing       the same
    MOVING ──────────▶ ONCE ──────────────▶ AUDIT ────────────────▶ AUDITED ─────▶ COMPLETE
       ▲                 │                    │                        │
       └─────────────────┴────────────────────┴────────────────────────┘  anything else

*The same* is: each node's incarnation and activity counter, the members and
the record are what they were in the wave before. A wave begins when the one
before is over. This is Mattern's double counting (1987, "Algorithms for
distributed termination detection") with one counter in place of
two: since every hand-over is acked, no message is ever under way whose sender
is idle, and nothing has to be said about channels.

Why it is never early. What the nodes owe:

 1. Work is a task, a link or a record that a node still has to handle. At
    every moment it is held by a node that is not idle: a sender holds it until
    the ack, and a receiver stops being idle before it acks.
 2. A node that is idle gets work only from one that is not, or by being
    restarted, which raises its incarnation. It raises its activity before it is
    busy, and whenever its view changes; activity never falls within an
    incarnation.
 3. A node that left handed its work over first; of one that is dead, the
    backups hold the work, and report `repair` until they have taken it up.

Let the first still wave end at the instant T, and node i report at t1(i) <= T
in it and at t2(i) > T in the second. By 2 and the equal counters node i was
idle from t1(i) to t2(i), so at T all members were idle at once. A node that is
no member of these equal views at T and holds work has it from a member that
knew it, and then by 3 it is a member's work again, or brought it along from its
own past, in which case the crawl is opened again when it comes. So at T no work
exists (1), and none can come from nothing (2): termination, once true, stays
true. A coordinator may therefore be slow, paused, or one of two at once, and
its verdict is late but right. The audit looks for links that were *lost*,
which are no node's work; the last wave shows that it looked at a crawl
that stood still.

Why it always comes: after the work has ended, nothing raises a counter. Once
views and records agree and every member answers, two waves, the audit and one
more wave lead to COMPLETE; with one wave that was under way at the end, four.

FROZEN is the other way to stand still: all that is left may not be started,
for the crawl is paused, stopping, or has no page left to spend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.standing import FROZEN, OWED
from dhtcrawl.swarm.calls.lifecycle import STILL_BYTES, VIEW_BYTES, CrawlStanding

REASONS_MAX: Final = 8

# A crawl that is being stopped does not wait for these: nothing is fetched for their sake any more.
STANDING: Final = frozenset({FROZEN, "queued", "backups", "repair", "bodies", "copies", "joining"})


def view_fingerprint(view: View) -> bytes:
    """Equal for two views with the same members of which the same own. Suspicion moves no key and is left out."""
    return view.fingerprint[:VIEW_BYTES]


class WaveVerdict(Enum):
    """What follows from a wave."""

    GO_ON = "go on"
    FROZEN = "frozen"  # nothing moves, and what is left may not be started
    AUDIT = "audit"  # nothing is left: look for lost links, then tell `Waves.audited`
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict; `reasons` are for people, and `still` says that the next wave may be the deciding one."""

    verdict: WaveVerdict
    reasons: tuple[str, ...] = ()
    still: bool = True


@loop_state
class Waves:
    """Judges waves, one after the other; see the top of this file."""

    def __init__(self) -> None:
        self._still = b""
        self._seen = 0
        self._audited = False

    @property
    def still(self) -> bytes:
        """Names the state that the last wave found everything still in; empty while things move.

        The same state has the same name at every node, and never comes again
        once anything has changed.
        """
        return self._still

    def start_over(self) -> None:
        """Forget the waves so far: something has changed."""
        self._still = b""
        self._seen = 0
        self._audited = False

    def judge(
        self,
        members: Iterable[bytes],
        view: bytes,
        record: bytes,
        reports: Mapping[bytes, CrawlStanding | None],
        *,
        stopping: bool = False,
    ) -> Judgement:
        """The verdict after a wave.

        `members` are those who were asked, `view` and `record` what the
        coordinator itself saw when it asked. A report of None is no answer. A crawl
        that is `stopping` waits only for what is on its way.
        """
        asked = list(members)
        allowed = STANDING if stopping else frozenset({FROZEN})
        reasons = list(_movement(asked, view, record, reports, allowed))
        answers = {node: report for node in asked if (report := reports.get(node)) is not None}
        if reasons or not answers:
            self.start_over()
            return Judgement(WaveVerdict.GO_ON, _shortened(reasons or ["there are no members"]), still=False)
        still = _name_of(view, record, answers)
        if still != self._still:
            self.start_over()
            self._still = still
        self._seen += 1
        if self._seen == 1:
            return Judgement(WaveVerdict.GO_ON, ("everything was still once, a second look has to agree",))
        left = [reason for node, report in answers.items() if not report.idle for reason in _waiting(node, report)]
        if left:
            return Judgement(WaveVerdict.FROZEN, _shortened(left))
        return Judgement(WaveVerdict.COMPLETE if self._audited else WaveVerdict.AUDIT)

    def audited(self, still: bytes, missing: int, resent: int) -> None:
        """Take the result of all nodes' audits of that state: links lost, and pages that sent theirs again."""
        if missing or resent:
            self.start_over()
        elif still and still == self._still:
            self._audited = True


def _movement(
    asked: list[bytes],
    view: bytes,
    record: bytes,
    reports: Mapping[bytes, CrawlStanding | None],
    allowed: frozenset[str],
) -> Iterator[str]:
    """Why a wave is not still."""
    for node in asked:
        report = reports.get(node)
        if report is None:
            yield f"no answer from {short(node)}"
        elif not report.knows:
            yield f"{short(node)} does not know the crawl yet"
        elif report.view != view:
            yield f"{short(node)} sees other members"
        elif report.record != record:
            yield f"{short(node)} has another record of the crawl"
        elif any(count and word not in allowed for word, count in report.waiting.items()):
            yield from _waiting(node, report)
        elif not report.idle and not any(report.waiting.values()):
            yield f"{short(node)} is busy"
        elif report.idle and any(report.waiting.values()):
            yield f"{short(node)} says that it is idle, and that it is not"


def _waiting(node: bytes, report: CrawlStanding) -> list[str]:
    waiting = sorted(report.waiting.items())
    return [f"{count} {OWED.get(word, word)} at {short(node)}" for word, count in waiting if count]


def _name_of(view: bytes, record: bytes, answers: Mapping[bytes, CrawlStanding]) -> bytes:
    told = [view, record]
    for node, report in answers.items():
        told += [node, report.incarnation.to_bytes(8, "big"), report.activity.to_bytes(8, "big")]
    return hashlib.sha256(b"".join(told)).digest()[:STILL_BYTES]


def short(node: bytes) -> str:
    """A node's name in a sentence."""
    return node.hex()[:4] + "…"


def _shortened(reasons: list[str]) -> tuple[str, ...]:
    if len(reasons) <= REASONS_MAX:
        return tuple(reasons)
    return (*reasons[:REASONS_MAX], f"and {len(reasons) - REASONS_MAX} more")
