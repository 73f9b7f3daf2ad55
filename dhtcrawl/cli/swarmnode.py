"""Running a node of a swarm on this machine, from its data directory to its exit code."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.admin_tls import server_context
from dhtcrawl.cli.admin_token import token_of
from dhtcrawl.cli.client import ADMIN_FILE
from dhtcrawl.cli.disk import disk_watch
from dhtcrawl.cli.main import fail, nothing_held, say, tell
from dhtcrawl.cli.new_keys import make_key
from dhtcrawl.cli.own_hosts import OwnHosts
from dhtcrawl.cli.places import CRAWLS_DIR
from dhtcrawl.cli.reach import NetworkReach
from dhtcrawl.cli.runtime import locked, real_node, run_loop
from dhtcrawl.cli.service import ServiceManager
from dhtcrawl.cli.signals import orderly_end
from dhtcrawl.closed.secret import Ring, parse_ring
from dhtcrawl.config import Config
from dhtcrawl.errors import BootstrapUnreachable, Exit, NotReachable, UsageError
from dhtcrawl.identity import FILE_NAME, has_key, public_key
from dhtcrawl.node.api import Api
from dhtcrawl.node.planes import NetworkConfig
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.units import Address, format_address, ip_of, is_loopback
from dhtcrawl.web.admin import Access, serve

if TYPE_CHECKING:
    from dhtcrawl.closed.tls import SwarmTls


def run_node(config: Config, join: JoinOptions) -> int:
    """Take part in a swarm until stopped; the exit code.

    Raises:
        BootstrapUnreachable: none of the nodes to join through answered.
        NotReachable: other nodes tried the address that they are told, and do not reach it, or nobody knows its name.
        SecretRefused: the same, for want of the right secret.
        UsageError: an address is taken, its name is of no use, or another process holds the data directory.
        AdminRefused: others can read the admin port's token or key.
        ConfigError: the file with one of them holds none.
        IdentityError, StorageError: the data directory cannot be used.
    """
    data_dir = Path(config.node.data_dir)
    ring = parse_ring(join.secrets, "secrets") if join.secrets else None
    access = Access(token_of(config), server_context(config))
    with locked(data_dir):
        with nothing_held():
            if not (has_key(data_dir) or make_key(data_dir, join, ring)):
                return Exit.COMPLETE
            # Before the loop, which spares the garbage collector what was imported until then.
            tls = None if ring is None else _tls_of(data_dir, ring)
        try:
            return run_loop(lambda: _run(config, join, data_dir, access, NodeSeal(ring, tls)))
        except BootstrapUnreachable as error:
            from dhtcrawl.cli.no_way_in import why_refused, why_unanswered

            refusal = why_refused(join.bootstrap, tls, "" if ring is None else ring.used.name)
            raise refusal or (None if error.unknown else why_unanswered(join)) or error from error


class NodeSeal(NamedTuple):
    """What closes a node's swarm; nothing in an open one."""

    ring: Ring | None
    tls: SwarmTls | None


def _tls_of(data_dir: Path, ring: Ring) -> SwarmTls:
    """What a member's connections speak.

    Raises:
        StorageError: its certificate cannot be written.
    """
    from dhtcrawl.closed.tls import SwarmTls

    try:
        return SwarmTls.of(ring, data_dir, data_dir / FILE_NAME, public_key(data_dir))
    except OSError as error:
        raise storage_error(error, f"cannot write a certificate to {data_dir}") from error


class _Leaving:
    """That a signal has asked the node to leave, which may be before there is one."""

    def __init__(self) -> None:
        self._asked = False
        self._swarm: SwarmNode | None = None

    def ask(self) -> None:
        tell("leaving; handing over what this node holds (again: at once)")
        self._asked = True
        if self._swarm is not None:
            self._swarm.leave()

    def is_for(self, swarm: SwarmNode) -> None:
        self._swarm = swarm
        if self._asked:
            swarm.leave()


async def _run(config: Config, join: JoinOptions, data_dir: Path, access: Access, seal: NodeSeal) -> int:
    leaving = _Leaving()
    at_once = "stopped at once; the other nodes take over from what is on their disks"
    # First of all: to open a large store takes a while.
    with orderly_end(leaving.ask, at_once=at_once):
        return await _run_until_left(config, join, data_dir, access, seal, leaving)


async def _run_until_left(
    config: Config, join: JoinOptions, data_dir: Path, access: Access, seal: NodeSeal, leaving: _Leaving
) -> int:
    reach = NetworkReach(config, on_loopback=join.on_loopback)
    own_hosts, advertise = await _own_place(config, join)
    async with real_node(config, data_dir, reach) as node:
        # A crawl's outputs are made where they are first written to.
        made: dict[bytes, OutputDirs] = {}

        def outputs(crawl: bytes) -> OutputDirs:
            if crawl not in made:
                made[crawl] = OutputDirs.on_disk(data_dir / CRAWLS_DIR / crawl.hex(), gathered=join.gathered)
            return made[crawl]

        # Of the nodes of one command the first looks at what all of them have: the limit is theirs together.
        disk_limit = disk_watch(config.storage.disk_limit, [data_dir.parent if join.gathered else data_dir])

        ring = seal.ring
        network = NetworkConfig(
            join.listen,
            advertise,
            join.bootstrap,
            ring=ring,
            tls=seal.tls,
            met=reach.met,
            own_hosts=own_hosts,
            tried=not (join.on_loopback or join.outbound_only),
            outbound_only=join.outbound_only,
            commanded_anywhere=join.on_loopback and not access.token,
        )
        swarm = SwarmNode(node, network, outputs=outputs, disk_used=disk_limit, boottime=_boottime)
        api = Api(swarm, swarm.registry)
        admin_port = serve(api, *join.admin, access=access, is_open=swarm.opened.is_set)
        async with admin_port as admin, asyncio.TaskGroup() as group:
            beside = [group.create_task(_announce(swarm, admin, join, encrypted=access.tls is not None))]
            manager = ServiceManager({} if join.as_soon else os.environ)  # one of several is not the service
            beside.append(group.create_task(manager.follow(lambda: swarm.state)))
            if ring is not None and seal.tls is not None:
                from dhtcrawl.cli.secret_watch import SecretWatch

                watch = SecretWatch.of_node(ring, seal.tls, join.secret_file, data_dir, swarm.use_secrets)
                beside.append(group.create_task(watch.run()))
            leaving.is_for(swarm)
            with _admin_file(data_dir, admin):
                try:
                    handed_over = await swarm.run()
                except* OSError as errors:
                    reason = _cannot_listen(errors)
                    if reason is None:
                        raise
                    raise UsageError(
                        f"--listen {format_address(join.listen)}: {reason}; name another with --listen"
                    ) from errors
                finally:
                    for task in beside:
                        task.cancel()
    if not handed_over:
        fail(f"{swarm.handed.refused} records were not handed over; start the node again with the same --data-dir")
        return Exit.LEFT_WORK
    return Exit.COMPLETE


async def _own_place(config: Config, join: JoinOptions) -> tuple[OwnHosts | None, Address | None]:
    """What looks up this node's own addresses, None where they do not change, and the address that others are told.

    Raises:
        NotReachable: that is a name which no name server knows now.
        UsageError, ConfigError: it is one that others cannot use; by whether an option gave it.
    """
    if join.advertise is None or not (join.follows or ip_of(join.advertise[0]) is None):
        return None, join.advertise
    if join.follows:
        return OwnHosts(join.listen[0], None), join.advertise
    host, port = join.advertise
    own_hosts = OwnHosts(join.listen[0], host)
    found = await own_hosts(())
    if not own_hosts.is_known:  # which may be otherwise in a moment: a service tries again
        raise NotReachable(
            f"--advertise {format_address(join.advertise)}: the name was not found; check it, and that a name server "
            "answers, or use an IP address"
        )
    if not found:
        raise config.refusal(
            "node.advertise",
            f" {format_address(join.advertise)}: the name stands for no address that others can use"
            " (this machine's /etc/hosts may have it as 127.0.1.1); correct that, or use an IP address",
        )
    return own_hosts, (found[0], port)


def _cannot_listen(errors: BaseExceptionGroup[OSError]) -> str | None:
    """Why an address could not be listened on, in the system's words; None where it was something else."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
        return os.strerror(error.errno).lower()
    return None


@contextmanager
def _admin_file(data_dir: Path, admin: Address) -> Iterator[None]:
    """Let commands that are pointed at the data directory find the running node."""
    path = data_dir / ADMIN_FILE
    try:
        path.write_text(format_address(admin) + "\n")
        yield
    except OSError as error:
        raise storage_error(error, f"cannot write {path}") from error
    finally:
        path.unlink(missing_ok=True)


# Seconds, also those for which the machine slept; asked for before each request, so it is no function of ours.
_boottime: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


async def _announce(swarm: SwarmNode, admin: Address, join: JoinOptions, *, encrypted: bool) -> None:
    if join.as_soon:
        await swarm.opened.wait()
        say(format_address(swarm.address))
    await swarm.ready.wait()
    where = {
        "node": swarm.id.hex(),
        "address": format_address(swarm.address),
        "admin": format_address(admin),
        "pid": os.getpid(),
    }
    if not (encrypted or is_loopback(admin[0])):
        tell(f"the admin port {where['admin']} is not encrypted: name a certificate with --admin-cert, or use a tunnel")
    if join.as_json:
        say(json.dumps(where))
        return
    if join.open_swarm:
        tell("this swarm is open: whoever reaches its ports takes part; keep them inside networks you trust")
    browsers = f"{'https' if encrypted else 'http'}://{where['admin']}/"
    say(f"node {swarm.id.hex()[:12]} at {where['address']}; commands and browsers: {browsers}")
