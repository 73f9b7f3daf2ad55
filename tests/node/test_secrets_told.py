"""What a node of a closed swarm tells of the secrets that its members use."""

from __future__ import annotations

import pytest
from closed.members import RING
from swarm.story import a_world

from dhtcrawl.node.api import Api


async def test_a_member_that_was_not_heard_yet_is_counted_as_one_whose_secret_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_world(nodes=3, ring=RING) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        api, used = Api(swarm, swarm.registry), RING.used.name
        assert (await api.status())["secrets"] == {used: 3}
        sealed = swarm.routing.plane.sealed
        assert sealed is not None
        heard = sealed.sealer.secrets_used()
        silent = next(member.id for member in swarm.gossip.view.members if member.id != swarm.id)
        del heard[silent]  # as at a node that was started a moment ago
        monkeypatch.setattr(sealed.sealer, "secrets_used", lambda: heard)
        assert (await api.status())["secrets"] == {used: 2, "unknown": 1}
