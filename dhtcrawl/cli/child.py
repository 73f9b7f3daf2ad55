"""A node process of a command that runs several: it is told on stdin what to run, and ends when its parent does.

The first line of stdin is an order, a map in JSON:

    settings   `section.key` → value, of settings that are not the defaults
    join       where the node listens and whom it joins: the fields of `JoinOptions`
    log        the file to which stderr goes; null: where the parent's goes
    label      what stands before the text of each line on stderr, such as "node 2"
    quiet      as `-q`
    signals    whether SIGINT, SIGTERM and SIGHUP are for this process; if not, the parent decides what they mean

After that a line `leave` means what the first SIGTERM does. When stdin closes, however the parent ended, this process
ends at once: what it acknowledged is on disk, and the same command goes on from there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.main import main, outcome
from dhtcrawl.cli.signals import ENDING, end_in_order
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.cli.turns import take_long_turns
from dhtcrawl.config import Config, changed, load
from dhtcrawl.errors import Exit

LEAVE: Final = b"leave"
# A terminal's Ctrl-C and its end reach all processes of a command, and so does what ends a service. Blocked and not
# ignored: the node that runs here sets handlers for them.
SIGNALS: Final = (*ENDING, signal.SIGHUP)


def order_of(
    config: Config, join: JoinOptions, *, log: Path | None = None, label: str = "", quiet: bool = False, signals: bool
) -> dict[str, Any]:
    """What to tell a child."""
    return {
        "settings": changed(config),
        "join": join.to_json(),
        "log": None if log is None else str(log.absolute()),
        "label": label,
        "quiet": quiet,
        "signals": signals,
    }


def attend() -> NoReturn:
    """Wait for the order, run the node, and exit as it did."""
    words = _lines(0)
    said = next(words, None)
    if said is None or said == LEAVE:
        sys.exit(Exit.COMPLETE)
    order = json.loads(said)
    take_long_turns()  # before there is another thread, so that all have it
    threading.Thread(target=_heed_parent, args=(words,), daemon=True).start()
    if order["log"] is not None:
        fd = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(fd, 2)
        os.close(fd)
    main(partial(outcome, partial(_run, order)))


def _run(order: Mapping[str, Any]) -> int:
    from dhtcrawl.cli.swarmnode import run_node

    if order["signals"]:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    config = load(flags=order["settings"])
    STDERR.set_up(config.node.log_level, config.node.log_format, quiet=order["quiet"], label=order["label"])
    return run_node(config, JoinOptions.from_json(order["join"]))


def _heed_parent(words: Iterator[bytes]) -> None:
    for word in words:
        if word == LEAVE:
            end_in_order()
    os._exit(Exit.FORCED)


def _lines(fd: int) -> Iterator[bytes]:
    """Lines as they come; nothing is read ahead through Python's own buffers, which a daemon thread may not hold."""
    rest = b""
    while data := os.read(fd, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


if __name__ == "__main__":
    attend()
