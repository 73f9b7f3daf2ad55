"""The file with a swarm's secrets: a line each, open to its owner alone, the first of them is used."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from dhtcrawl.closed.secret import Ring, parse_ring
from dhtcrawl.errors import SecretRefused, StorageFull, UsageError
from dhtcrawl.storage.store.files import write_private

STDIN: Final = "-"
_READ_MAX: Final = 131_072  # as many secrets and bans as there may be, and what a rotation says of them


def read_secrets(path: str) -> str:
    """What stands in a file of secrets, or on stdin where the path is `-`.

    Raises:
        OSError: it cannot be read.
        SecretRefused: others can read it, or what comes on stdin is no text.
    """
    if path == STDIN:
        try:
            return sys.stdin.read(_READ_MAX)
        except UnicodeDecodeError as error:
            raise SecretRefused("standard input: is no text; give it what 'dhtcrawl secret new' made") from error
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        text = file.read(_READ_MAX)
    if mode & 0o077:
        raise SecretRefused(f"{path} can be read by others; run: chmod 600 {path}")
    return text.decode("latin-1")


def ring_in(path: str) -> tuple[Ring, str]:
    """The secrets of a file that a command names, and the file's text.

    Raises:
        UsageError: it cannot be read.
        SecretRefused: others can read it, or it holds no secret.
    """
    try:
        text = read_secrets(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    return parse_ring(text, "standard input" if path == STDIN else path), text


def write_secrets(path: Path, text: str, *, anew: bool) -> None:
    """Write a file of secrets, readable by its owner only; whole, or not at all. One that is there stays its owner's.

    Raises:
        UsageError: it cannot be written, or is there and was to be made.
        StorageFull: its disk is full.
    """
    try:
        if anew and path.exists():
            raise UsageError(f"{path} is there; 'dhtcrawl secret rotate' changes it, or name another file")
        # Where it is a link, that is what stays, and the file changes that nodes and copies read.
        write_private(path.resolve(), text.encode("ascii"), keep_owner=not anew)
    except OSError as error:
        from dhtcrawl.storage.store.engine import storage_error  # needs LevelDB

        told = storage_error(error, f"cannot write {path}")
        if isinstance(told, StorageFull):
            raise told from error
        raise UsageError(f"{path}: cannot be written ({error.strerror}); name another file") from error
