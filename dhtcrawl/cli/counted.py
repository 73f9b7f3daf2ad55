"""Where several nodes of a swarm on one machine listen, and keep their data: counted up from what one node is given.

    node   --listen          --admin           --data-dir
    1      127.0.0.1:8468    127.0.0.1:8469    DIR
    2      127.0.0.1:8470    127.0.0.1:8471    DIR-2
    3      127.0.0.1:8472    127.0.0.1:8473    DIR-3

Ports are counted up by the smallest step with which no two nodes share one. Port 0 stays 0: the system chooses. The
first node is the one that runs without `--nodes`, so that it keeps its id.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.config import Config, is_file
from dhtcrawl.errors import UsageError
from dhtcrawl.identity import FILE_NAME
from dhtcrawl.units import Address, format_address, is_wildcard

PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class NodePlace:
    """One of the nodes."""

    number: int  # from 1 on
    join: JoinOptions
    data_dir: Path


def counted(nodes: int, join: JoinOptions, data_dir: Path) -> list[NodePlace]:
    """The places of so many nodes.

    Raises:
        UsageError: there are not so many ports, or `data_dir` has no room beside it.
    """
    step = _step(nodes, join.listen, join.admin)

    def up(option: str, address: Address, number: int) -> Address:
        host, port = address
        if port and port + (nodes - 1) * step > PORT_MAX:
            raise UsageError(
                f"{option} {format_address(address)}: for {nodes} nodes ports are counted up from there, "
                f"and {PORT_MAX} is the last; use a lower port, or fewer --nodes"
            )
        return host, port and port + (number - 1) * step

    return [
        NodePlace(
            number,
            replace(
                join,
                listen=up("--listen", join.listen, number),
                admin=up("--admin", join.admin, number),
                advertise=None if join.advertise is None else up("--advertise", join.advertise, number),
            ),
            directory,
        )
        for number, directory in zip(range(1, nodes + 1), _directories(data_dir), strict=False)
    ]


def command_of(place: NodePlace, config: Config) -> str:
    """What starts one of the nodes again alone; `config` is what the command of all was given, besides variables."""
    join = place.join
    places = [("--listen", join.listen), ("--admin", join.admin)]
    if join.advertise is not None and not join.follows:
        places.append(("--advertise", join.advertise))
    words = ["dhtcrawl", "join", "--data-dir", str(place.data_dir)]
    for option, address in places:
        words += [option, format_address(address)] if address[1] else []
    words += ["--secret-file", join.secret_file] if join.secret_file else []
    file = next((origin for origin in config.origins.values() if is_file(origin)), None)
    words += ["--config", file] if file is not None else []
    return shlex.join([*words, *(word for key in _repeated(config, join) for word in _said(config, key))])


def _repeated(config: Config, join: JoinOptions) -> list[str]:
    """The settings that the command line gave, but for those that are each node's own."""
    own = {"node.data_dir", "node.listen", "node.admin", "node.advertise"} | (
        {"node.secret_file"} if join.secret_file else set()
    )
    return [key for key, origin in config.origins.items() if origin == "flag" and key not in own]


def _said(config: Config, key: str) -> Iterator[str]:
    """A setting as a command line gives it."""
    section, _, name = key.partition(".")
    value, option = getattr(getattr(config, section), name), config.options.get(key)
    for each in value if isinstance(value, tuple) else (value,):
        if option is None:
            yield from ("--set", f"{key}={('off', 'on')[each] if isinstance(each, bool) else each}")
        else:
            yield from (option,) if isinstance(each, bool) else (option, str(each))


def not_run(nodes: int, data_dir: Path) -> list[Path]:
    """The data directories that a run with more than `nodes` nodes has left."""
    left = []
    for number, directory in enumerate(_directories(data_dir), 1):
        if number > nodes:
            if not (directory / FILE_NAME).exists():
                break
            left.append(directory)
    return left


def _step(nodes: int, listen: Address, admin: Address) -> int:
    apart = abs(listen[1] - admin[1])
    shared = listen[0] == admin[0] or is_wildcard(listen[0]) or is_wildcard(admin[0])
    if not shared or not apart or not listen[1] or not admin[1]:
        return 1
    return next(step for step in count(1) if apart % step or apart // step >= nodes)


def _directories(data_dir: Path) -> Iterator[Path]:
    yield data_dir
    first = data_dir.resolve() if data_dir.name in ("", "..") else data_dir
    for number in count(2):
        if not first.name:
            raise UsageError(f"--data-dir {data_dir}: the other nodes' data lies beside it; name a directory below it")
        yield first.with_name(f"{first.name}-{number}")
