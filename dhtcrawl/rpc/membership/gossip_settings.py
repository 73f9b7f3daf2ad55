"""How often membership is checked, how long it waits, how much it keeps.

A node that is killed is DEAD for every member after about 9 s: it is asked within
a `period_s` or two, does not answer for `probe_timeout_s` + `indirect_s` = 2.2 s,
and is SUSPECTED for `suspicion_s`; gossip takes a second. So a node that stalls
for 2 s is not even suspected, and one that stalls for 6 s can still refute.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """The same on all nodes of a swarm, or it is the most impatient one that decides."""

    period_s: float = 0.5  # one member is asked; a tenth more or less, so that nodes do not march in step
    probe_timeout_s: float = 0.4  # then it is asked once more, and `relays` others are asked to ask
    indirect_s: float = 1.8  # for that: their 0.4 and 0.8 s, and the ways there and back
    relays: int = 3  # SWIM's k; memberlist's default
    connection_s: float = 20.0  # of a member that cannot be asked: its connection tells of it every 15 s, used or not
    suspicion_s: float = 5.0  # from SUSPECTED to DEAD
    fanout: int = 2  # while there is news, so many more are told in each period

    exchange_s: float = 20.0  # all records with a random member; more rarely in swarms of more than 32
    exchange_retry_s: float = 2.0  # as long as none succeeded
    dead_probe_s: float = 30.0  # one of those taken for dead is asked: a partition may have ended
    lost_probe_s: float = 1.0  # where more are dead than there, each is asked so often by all together
    stranger_timeout_s: float = 0.4
    stranger_s: float = 300.0  # a contact of the routing table that does not answer `hello` is not asked again
    strangers_max: int = 1024
    leave_s: float = 2.0  # what leaving may take

    tick_s_max: float = 1.0  # a longer gap between ticks is time in which we could not hear others
    members_max: int = 4096  # more are refused and counted
    gone_max: int = 1024  # LEFT and DEAD; the one gone first gives way
    told_s: float = 3600.0  # for so long the exchange of all records names them
    kept_s: float = 86_400.0  # for so long old gossip does not bring them back, and DEAD ones are asked
    activation_s: float = 120.0  # a newcomer that said `activate` confirms it by gossip within this time

    def lost_every_s(self, members: int, lost: int) -> float:
        """How long a member waits before it asks another of those that are `lost`.

        All of them together ask each every `lost_probe_s`; in a large swarm each member asks each every `dead_probe_s`.
        """
        return min(self.dead_probe_s, members * self.lost_probe_s) / lost
