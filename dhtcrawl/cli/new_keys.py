"""The keys of nodes that have none yet: of several each the one whose id splits the largest section of the keys.

    joins a swarm               asks it who is there, under a key that is made for the question and thrown away
    begins one, by itself       any key
    `--nodes N` of one command  drawn together by the command, which tells each process its own

What a node that comes at the same time takes is not known to it: both may split the same section.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.main import tell
from dhtcrawl.cli.signals import orderly_end
from dhtcrawl.closed.secret import Ring
from dhtcrawl.identity import FILE_NAME, NodeIdentity, has_key, keep, load_or_create, new_keys, node_key, public_key
from dhtcrawl.node.stopping import Stopping
from dhtcrawl.rpc.contact import Address
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.swarm.membership.sections import best_of, together, tries_of

_id_of = attrgetter("node_id")


def make_key(data_dir: Path, join: JoinOptions, ring: Ring | None) -> bool:
    """Make the key of a node that has none: the one it was told, or the best of several for the swarm that it joins.

    Returns:
        False where a signal came meanwhile: then there is none, and nothing to hand over.

    Raises:
        IdentityError, StorageError: it cannot be written.
    """
    if join.key:
        keep(data_dir, join.key.encode("ascii"))
    elif join.bootstrap and not join.outbound_only:
        members = asyncio.run(_members_unless_stopped(data_dir, join.bootstrap, ring))
        if members is None:
            return False
        keep(data_dir, best_of(new_keys(), _id_of, members, tries_of(members)).pem)
    return True


async def _members_unless_stopped(
    data_dir: Path, bootstrap: Sequence[Address], ring: Ring | None
) -> list[bytes] | None:
    stopping = Stopping()

    def ask() -> None:
        tell("leaving; this node has not joined yet, and holds nothing (again: at once)")
        stopping.ask()

    members = None
    with orderly_end(ask, at_once="stopped at once"):
        async with stopping.breaks_off():
            members = await _members(data_dir, bootstrap, ring)
    return None if stopping.asked else members


async def keys_for(data_dirs: Sequence[Path], bootstrap: Sequence[Address], ring: Ring | None) -> list[str]:
    """Keys for the nodes of one command, as PEM; "" for those that have one.

    Raises:
        IdentityError, StorageError: a key that is there cannot be read, or nothing be written.
    """
    nodes = [load_or_create(path) for path in data_dirs if has_key(path)]
    missing = len(data_dirs) - len(nodes)
    if missing and bootstrap:
        data_dirs[0].mkdir(parents=True, exist_ok=True)
        nodes += await _members(data_dirs[0], bootstrap, ring)
    drawn = iter(together(missing, new_keys(), _id_of, nodes))
    return ["" if has_key(path) else next(drawn).pem.decode("ascii") for path in data_dirs]


async def _members(data_dir: Path, bootstrap: Sequence[Address], ring: Ring | None) -> list[bytes]:
    from dhtcrawl.node.scout import member_ids

    if ring is None:
        return await member_ids(bootstrap, NodeIdentity.drawn())
    from dhtcrawl.closed.tls import SwarmTls

    try:
        with tempfile.TemporaryDirectory(prefix="stranger-", dir=data_dir) as name:
            own = Path(name)
            tls = SwarmTls.of(ring, own, own / FILE_NAME, public_key(own))
            return await member_ids(bootstrap, node_key(own), tls)
    except OSError as error:
        raise storage_error(error, f"cannot write a certificate to {data_dir}") from error
