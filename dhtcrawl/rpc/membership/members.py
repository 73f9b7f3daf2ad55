"""Who is in the swarm, as one node knows it: SWIM's membership (Das et al. 2002), without I/O.

               set_state             suspect            tick, suspicion_s later
    JOINING ─────────────▶ ACTIVE ───────────▶ SUSPECTED ──────────────────────▶ DEAD
       ▲                     │ ▲                  │                               │
       │            set_state│ └──────────────────┘ it hears so, and refutes      │
       │                     ▼                                                    │
       │                    LEFT                                                  │
       └──────────────────────────── it hears that it was declared dead ──────────┘

A JOINING node is suspected and refutes like an ACTIVE one. Only the node itself
raises its epoch, and with it every state but SUSPECTED and DEAD is its own
doing; these two are what others say, so of equal epochs the worse counts.

What is merged here may come in any order and any number of times. The shell is
`dhtcrawl.rpc.membership.gossip`. `now` is seconds on the caller's monotonic clock.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from dhtcrawl.chance import Chance
from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.health import LocalHealth
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, MemberRecord, NodeState, merge
from dhtcrawl.rpc.membership.member_parts import AskingOrder, LivedClock, ShownMembers
from dhtcrawl.rpc.membership.row_proofs import FORGED_A_MESSAGE_MAX, OwnNode, RowProofs
from dhtcrawl.rpc.membership.rumours import Rumours
from dhtcrawl.rpc.membership.view import Member, MemberState, View

FINGERPRINT_BYTES = 8
# So many members that have never answered us are believed in at a time on others' word, or as many as have answered.
HEARSAY_MAX = 8
# Who comes back from the dead and has owned all the time was on the other side of a cut, if as many were taken for
# dead as an eighth of those that are there. Sides of one size are meant; a member that plays dead stops no large swarm.
CUT_SHARE = 8


class Learned(NamedTuple):
    """What hearing records came to.

    `declared_dead`: the others took us for dead, and we are JOINING again. `reunited`: many were taken for dead, and
    one of them has owned all the time, on the other side of a cut.
    """

    changed: int = 0
    refuted: bool = False
    declared_dead: bool = False
    reunited: bool = False

    def plus(self, other: Learned) -> Learned:
        return Learned(
            self.changed + other.changed,
            self.refuted or other.refuted,
            self.declared_dead or other.declared_dead,
            self.reunited or other.reunited,
        )


class _HeardFrom(NamedTuple):
    """Whose words they are, how many others answer that node, and when they came; `sees` is None for what we found."""

    sender: bytes | None
    at: Address | None
    now: float
    news: bool
    sees: int | None

    @property
    def of_others(self) -> bool:
        return self.sees is not None


_NOTHING = Learned()
_id_of = attrgetter("id")


@loop_state
class Members:
    """The records of all nodes, our own among them, and what is to be told of them."""

    def __init__(self, me: OwnNode, rng: Chance, settings: GossipSettings | None = None) -> None:
        self._settings = settings or GossipSettings()
        self.health = LocalHealth()
        self.rumours = Rumours()
        self.rows = RowProofs(me.key)
        self._me = self.rows.signed(me.record)
        self._asking = AskingOrder(rng)
        self._lived = LivedClock(self.health, self._settings.tick_s_max)
        self._live: dict[bytes, MemberRecord] = {}
        self._gone: OrderedDict[bytes, tuple[float, MemberRecord]] = OrderedDict()  # since when
        self._suspected_at: dict[bytes, float] = {}  # in seconds lived
        self._activated: dict[bytes, tuple[int, float]] = {}  # in which incarnation, until when
        self._shown = ShownMembers()
        self._show(self._me.id)

    # What is known

    @property
    def me(self) -> MemberRecord:
        return self._me

    def __len__(self) -> int:
        """All that are in the swarm, ourselves included unless we left."""
        return len(self._live) + (not self._me.state.is_gone)

    def __iter__(self) -> Iterator[MemberRecord]:
        """The others in the swarm, those heard of first first."""
        return iter(self._live.values())

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._live

    def get(self, node_id: bytes) -> MemberRecord | None:
        """What is known of a node, also when it is gone."""
        if node_id == self._me.id:
            return self._me
        live = self._live.get(node_id)
        if live is not None:
            return live
        gone = self._gone.get(node_id)
        return None if gone is None else gone[1]

    def knows(self, node_id: bytes) -> bool:
        """Whether a node is, or was, in the swarm: one that is taken for dead may not know it yet."""
        return node_id in self._live or node_id in self._gone

    def records(self, now: float) -> list[MemberRecord]:
        """What the exchange of all records tells, by id."""
        told = (record for since, record in self._gone.values() if now - since <= self._settings.told_s)
        return sorted((self._me, *self._live.values(), *told), key=_id_of)

    def view(self) -> View:
        return self._shown.view()

    def fingerprint(self) -> bytes:
        """Equal where two nodes know the same members, in the same incarnation, joining or owning."""
        fingerprint = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
        for member in self.view().members:
            record = self.get(member.id)
            assert record is not None
            fingerprint.update(member.id + record.incarnation.to_bytes(8, "big") + bytes([member.owns]))
        return fingerprint.digest()

    def _face(self, node_id: bytes) -> Member | None:
        record = self.get(node_id)
        if record is None or record.state.is_gone:
            return None
        if record.is_outbound:
            return Member(node_id, record.address, MemberState.OUTBOUND)
        if not record.owns and node_id not in self._activated:
            return Member(node_id, record.address, MemberState.JOINING)
        suspected = record.state is NodeState.SUSPECTED
        return Member(node_id, record.address, MemberState.SUSPECTED if suspected else MemberState.ACTIVE)

    def _show(self, node_id: bytes) -> None:
        self._shown.put(node_id, self._face(node_id))

    # What we do ourselves

    def set_state(self, state: NodeState) -> bool:
        """We are JOINING, ACTIVE or LEFT from now on; False when we were already, or have left."""
        assert state in (NodeState.JOINING, NodeState.ACTIVE, NodeState.LEFT), "the others say the rest"
        if self._me.state in (state, NodeState.LEFT):
            return False
        self._become(state, *_beyond(*self._me.life))
        return True

    def move(self, address: Address) -> bool:
        """We are to be reached there from now on; False when that is where we are, or we have left."""
        if self._me.state is NodeState.LEFT or self._me.address == address:
            return False
        self._become(self._me.state, *_beyond(*self._me.life), address)
        return True

    def rejoin(self) -> None:
        """We did not run, so the others may have taken over: JOINING again, also if we were."""
        if self._me.state is not NodeState.LEFT:
            self._become(NodeState.JOINING, *_beyond(*self._me.life))

    def mark_active(self, node_id: bytes, incarnation: int, now: float) -> bool:
        """The newcomer says itself that it owns from now on; False when we know no such newcomer.

        Here only: its own gossip tells the others.
        """
        record = self._live.get(node_id)
        if record is None or record.incarnation != incarnation or record.is_outbound:
            return False
        if not record.owns:
            self._activated[node_id] = (incarnation, now + self._settings.activation_s)
            self._show(node_id)
        return True

    def _become(self, state: NodeState, incarnation: int, epoch: int, address: Address | None = None) -> None:
        before, started = self._face(self._me.id), self._me.incarnation
        host, port = address or self._me.address
        me = replace(self._me, host=host, port=port, incarnation=incarnation, epoch=epoch).turned(state)
        self._me = self.rows.signed(me)
        self.rumours.put(self._me)
        if self._face(self._me.id) != before or incarnation != started:
            self._show(self._me.id)

    # What we hear

    def learn(
        self,
        records: Iterable[MemberRecord],
        now: float,
        *,
        sender: bytes | None = None,
        sees: int | None = None,
        news: bool = True,
        at: Address | None = None,
    ) -> Learned:
        """Merge what `sender` says, which counts `sees` others that answer it; None: what we found ourselves.

        Without `news` it is not told on: every other member knows it. What others say counts as far as the nodes that
        it is about have signed it. `at` is where the sender was heard, if it could be heard from there alone.
        """
        doubtful = sees is not None and 2 * sees < max(self.sees(sender), self.health.seen_elsewhere(now))
        heard = _HeardFrom(sender, at, now, news, sees)
        learned, forged = Learned(), self.rows.unsigned + FORGED_A_MESSAGE_MAX
        live = self._live
        for record in records:
            # Rows that say the same are one record, and most say what is known.
            if live.get(record.id) is record:
                continue
            if record.id == self._me.id:
                learned = learned.plus(self._about_us(record, doubtful, heard))
            elif (credible := self._less_harsh(record) if doubtful else record) is not None:
                about = self._about_other(credible, heard)
                if about is not _NOTHING:
                    learned = learned.plus(about)
            if self.rows.unsigned >= forged:
                break
        return learned

    def sees(self, exclude: bytes | None = None) -> int:
        """How many others answer, as far as we know."""
        answering = len(self._live) - len(self._suspected_at)
        return answering - (exclude in self._live and exclude not in self._suspected_at)

    def _less_harsh(self, record: MemberRecord) -> MemberRecord | None:
        """A sender that sees less than half of the members we see was cut off: its dead are at most suspects."""
        if record.state is not NodeState.DEAD:
            return record
        return record.turned(NodeState.SUSPECTED) if record.id in self._live else None

    def _about_us(self, record: MemberRecord, doubtful: bool, heard: _HeardFrom) -> Learned:
        """Only what is said of us as we are now, or as we shall be, needs an answer."""
        if self._me.state is NodeState.LEFT or record.life < self._me.life:
            return Learned()
        if heard.of_others and record.life > self._me.life and not self.rows.holds(record, None):
            return Learned()  # none of our numbers: we have not signed it
        if heard.of_others:
            self.rows.look_for_double(record, self._me)
        same_start = record.incarnation == self._me.incarnation
        if same_start and record.state < NodeState.SUSPECTED and record.epoch == self._me.epoch:
            return Learned()
        beyond = _beyond(*record.life)
        if beyond == record.life:
            return Learned()  # no number is left to answer: it took weeks of forgeries to come here
        if same_start and (doubtful or record.state <= NodeState.SUSPECTED):
            if not doubtful:
                self.health.was_suspected()
            self._become(self._me.state, *beyond)
            return Learned(1, refuted=True)
        # Gone for the others; or in another incarnation than we know of: our data are an old copy, or in use twice.
        self._become(NodeState.JOINING, *beyond)
        self._forget_verdicts(record.state, heard)
        return Learned(1, declared_dead=True)

    def _forget_verdicts(self, claim: NodeState, heard: _HeardFrom) -> None:
        """We were cut off, so whom we took for dead was only on the other side: the one that says so knows better."""
        if claim is NodeState.DEAD:
            for node_id in [node_id for node_id, (_, r) in self._gone.items() if r.state is NodeState.DEAD]:
                del self._gone[node_id]
                self.rumours.drop(node_id)
            self.health.was_cut_off(heard.sees or 0, heard.now, self._settings.suspicion_s)
        self._suspected_at = dict.fromkeys(self._suspected_at, self._lived.ticked_s)

    def _about_other(self, record: MemberRecord, heard: _HeardFrom) -> Learned:
        known = self.get(record.id)
        if known is not None and (record == known or merge(known, record) is known):
            return _NOTHING
        if heard.of_others and not (self._has_place(record, known, heard) and self.rows.holds(record, known)):
            return _NOTHING
        now, news = heard.now, heard.news
        before = self._face(record.id)
        if record.state.is_gone:
            self._bury(record, now)
            # Of a node that is unknown here that is no news: members that knew it tell it on.
            news = news and known is not None and not known.state.is_gone
        elif not self._admit(record, now):
            return _NOTHING
        if news:
            self.rumours.put(record)
        restarted = known is not None and known.incarnation != record.incarnation
        if self._face(record.id) != before or restarted:
            self._show(record.id)
        refuted = known is not None and known.state is NodeState.DEAD and not record.state.is_gone and not restarted
        if not (refuted and record.owns):
            return Learned(1)
        # It has refuted, so others heard it all the time: what we took for dead was on their side of a cut.
        dead = 1 + self.dead_count
        self._forget_verdicts(NodeState.DEAD, heard)
        return Learned(1, reunited=CUT_SHARE * dead >= len(self._side()))

    def _has_place(self, record: MemberRecord, known: MemberRecord | None, heard: _HeardFrom) -> bool:
        """Whether there is one for what another says of a node: identities are free, so not for any number of them."""
        if record.id in self._live or self._me.state is not NodeState.ACTIVE or self._is_there(record, heard):
            return True
        if record.state.is_gone:
            # The invented dead take no place of those that were there.
            return known is not None or len(self._gone) < self._settings.gone_max
        if self._asking.has_place(record.id, HEARSAY_MAX):
            return True
        self.rows.crowded += 1
        return False

    def _is_there(self, record: MemberRecord, heard: _HeardFrom) -> bool:
        """Whether a node speaks of itself, from where it says that it is; of several in one place only the first."""
        if record.id != heard.sender or record.address != heard.at:
            return False
        return all(self._live[node_id].address != record.address for node_id in self._asking.unmet)

    def _admit(self, record: MemberRecord, now: float) -> bool:
        before = self._live.get(record.id)
        if before is None:
            if len(self) >= self._settings.members_max:
                self.rows.full += 1
                return False
            self._asking.comes(record.id, reachable=not record.is_outbound)
            self._gone.pop(record.id, None)
        elif before.is_outbound is not record.is_outbound:
            self._asking.goes(record.id)
            self._asking.comes(record.id, reachable=not record.is_outbound)
        self._live[record.id] = record
        marked = self._activated.get(record.id)
        if marked is not None and (record.owns or marked[0] != record.incarnation):
            del self._activated[record.id]
        if record.state is not NodeState.SUSPECTED:
            self._suspected_at.pop(record.id, None)
        elif before is None or before.state is not NodeState.SUSPECTED or before.life != record.life:
            self._suspected_at[record.id] = self._lived.at(now)
        return True

    def _bury(self, record: MemberRecord, now: float) -> None:
        if self._live.pop(record.id, None) is not None:
            self._asking.goes(record.id)
        self._suspected_at.pop(record.id, None)
        self._activated.pop(record.id, None)
        self._gone[record.id] = (now, record)
        self._gone.move_to_end(record.id)
        if len(self._gone) > self._settings.gone_max:
            self._forget_first()

    def _forget_first(self) -> None:
        node_id, _ = self._gone.popitem(last=False)
        self.rumours.drop(node_id)

    # Whom to ask, and what comes of it

    def next_target(self, busy: Container[bytes] = (), *, new: bool = False) -> MemberRecord | None:
        """Whose turn it is; with `new`, out of turn, one that was not asked since it came."""
        return (self._asking.next_new if new else self._asking.next)(self._live, busy)

    def met(self, node_id: bytes) -> None:
        """A member has answered: it helps to ask others, and is told news, before those that were only named."""
        self._asking.met(node_id)

    def some(self, n: int, exclude: bytes | None = None) -> list[MemberRecord]:
        """Up to `n` random members that are not suspected, and can be reached."""
        all_answer = not self._suspected_at and exclude not in self._live
        without = () if all_answer else {*self._suspected_at, exclude}
        return [self._live[node_id] for node_id in self._asking.some(n, without)]

    def gone(self, now: float) -> list[tuple[MemberRecord, float]]:
        """Those that left or are taken for dead, with the seconds since that was heard; forgotten after a day."""
        return [(record, now - since) for since, record in self._gone.values()]

    @property
    def dead_count(self) -> int:
        """How many are taken for dead, and may be there, only out of sight; of those that never answered us few count.

        Else who makes up a thousand dead would have each side of a cut that is none wait for the others. Nor do those
        count that never own anything, and so are gatekeepers on no side: of these many come and go.
        """
        dead = [record.id for record in self._out_of_sight() if not record.is_outbound]
        return self._asking.counted(dead, HEARSAY_MAX)

    def dead(self, *, lost: bool = False) -> list[MemberRecord]:
        """Those taken for dead that can be reached: perhaps it was the network.

        With `lost` those of them that had answered, if the dead are more than those that are there, else none: there
        may be a cut, whose end is to be noticed soon. The smaller side asks, which joins anew when it hears of the
        other. Who makes up the dead has none of them asked.
        """
        if not lost:
            dead = (record for _, record in self._gone.values() if record.state is NodeState.DEAD)
            return [record for record in dead if not record.is_outbound]
        dead = (record for record in self._out_of_sight() if not record.is_outbound)
        met = [record for record in dead if self._asking.has_met(record.id)]
        return met if met and self._are_fewer_than(met) else []

    def _out_of_sight(self) -> list[MemberRecord]:
        """Those taken for dead in whose place no other node is: one that lost its disk is there with another key."""
        dead = [record for _, record in self._gone.values() if record.state is NodeState.DEAD]
        if not dead:
            return dead
        taken = {self._me.address, *(record.address for record in self._live.values())}
        return [record for record in dead if record.address not in taken]

    def _are_fewer_than(self, lost: list[MemberRecord]) -> bool:
        """Whether fewer are there than are dead; of as many, whether the lowest id is not here."""
        here, dead = self._side(), self.dead_count
        return len(here) < dead or (len(here) == dead and min(map(_id_of, lost)) < min(here))

    def _side(self) -> list[bytes]:
        """Those that are there, ourselves included, and that others can reach."""
        here = (self._me, *self._live.values())
        return [record.id for record in here if not (record.state.is_gone or record.is_outbound)]

    def suspect(self, asked: MemberRecord, now: float) -> bool:
        """Suspect a member that did not answer; False when it has refuted since, or is suspected already."""
        known = self._live.get(asked.id)
        if known is None or known.life != asked.life or known.state is NodeState.SUSPECTED:
            return False
        return self.learn([known.turned(NodeState.SUSPECTED)], now).changed > 0

    def tick(self, now: float) -> list[MemberRecord]:
        """Let time pass; whom we declare dead now. To be called about twice a second."""
        lived_s = self._lived.tick(now)
        due = [n for n, at in self._suspected_at.items() if lived_s - at >= self._settings.suspicion_s]
        dead = [self._live[node_id].turned(NodeState.DEAD) for node_id in due]
        self.learn(dead, now)
        for node_id in [node_id for node_id, (_, until) in self._activated.items() if until <= now]:
            del self._activated[node_id]
            self._show(node_id)
        while self._gone and now - next(iter(self._gone.values()))[0] > self._settings.kept_s:
            self._forget_first()
        return dead


def _beyond(incarnation: int, epoch: int) -> tuple[int, int]:
    """The next epoch; where no number is left for it, the next incarnation; the same where none is left at all."""
    if epoch < EPOCH_MAX:
        return incarnation, epoch + 1
    return (incarnation + 1, 0) if incarnation < INCARNATION_MAX else (incarnation, epoch)
