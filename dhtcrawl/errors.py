"""Every error a user can meet, and the exit code it ends a command with.

    DhtcrawlError                    1
    ├── UsageError                   2   wrong arguments, or a directory that holds another crawl
    │   └── StoreInUse               2   a running process holds the data directory
    ├── ConfigError                  4   a setting that is unknown or out of range, unless an option gave it (then 2)
    │   └── SettingError             4   the same, with the setting's name
    ├── StorageError                 1
    │   ├── StorageFull              3   the disk is full; what was acknowledged is safe
    │   └── StoreTooNew              4   written by a later version
    ├── NodeUnreachable              1   no node answers at the admin address
    ├── NotNow                       1   the node cannot say yet, or who could does not answer
    ├── NothingFetched               9   no seed brought content
    ├── BootstrapUnreachable        30   none of the given nodes answered
    ├── LeftWork                    31   a node left before others had all it held
    ├── NotReachable                33   the others do not reach a node at the address that it tells them
    ├── IdentityError               32   the node's key is unreadable or refused
    ├── SwarmRefused                32   other machines, and neither a secret nor an open swarm
    ├── SecretRefused               32   the swarm's secret is none, open to others, or another than the others have
    └── AdminRefused                32   the admin port's token or certificate is another, or its key open to others

Messages are one line, name the thing and say the remedy. Expected outcomes of
a fetch (a 404, a refused connection) are values, see `dhtcrawl.fetch.http`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class Exit(IntEnum):
    """What a command's exit status means; scripts rely on these numbers."""

    COMPLETE = 0
    FAILURE = 1
    USAGE = 2
    DISK_FULL = 3
    CONFIG = 4
    NOTHING_FETCHED = 9
    INTERRUPTED = 11
    FORCED = 13
    SIZE_LIMIT = 14
    TIME_LIMIT = 15
    DISK_LIMIT = 16
    PAGE_LIMIT = 21
    BOOTSTRAP = 30
    LEFT_WORK = 31
    IDENTITY = 32
    NOT_REACHABLE = 33


class DhtcrawlError(Exception):
    """The root of all errors that are ours to report."""

    exit_code: Exit = Exit.FAILURE


class UsageError(DhtcrawlError):
    """The command line does not fit, or does not fit what is on disk."""

    exit_code = Exit.USAGE


class StoreInUse(UsageError):
    """Another process holds the data directory."""


class ConfigError(DhtcrawlError):
    """A setting is unknown, malformed or out of range."""

    exit_code = Exit.CONFIG


class SettingError(ConfigError):
    """The value of the setting `key` is wrong; `problem` goes on behind its name: " is 0; use 1 or more"."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"config: {key}{problem}")
        self.key = key
        self.problem = problem


class StorageError(DhtcrawlError):
    """The store or an output file cannot be read or written."""


class StorageFull(StorageError):
    """No space is left; everything acknowledged before is on disk."""

    exit_code = Exit.DISK_FULL


class StoreTooNew(StorageError):
    """The store was written by a later version of dhtcrawl."""

    exit_code = Exit.CONFIG


class NodeUnreachable(DhtcrawlError):
    """No node answers where the command asked for one."""


class NotNow(DhtcrawlError):
    """A node answers, but has just been started, or waits for one that does not; asked again it may know."""


class NothingFetched(DhtcrawlError):
    """A crawl ended without a page, or with nothing but redirects and errors."""

    exit_code = Exit.NOTHING_FETCHED


class BootstrapUnreachable(DhtcrawlError):
    """None of the nodes through which to join answered."""

    exit_code = Exit.BOOTSTRAP
    unknown: Mapping[tuple[str, int], str] = MappingProxyType({})  # those whose names were not found, and why
    also: str = ""  # what the message ends with: what else is known of them


class NotReachable(DhtcrawlError):
    """Other nodes tried the address that this one tells them, and did not reach it."""

    exit_code = Exit.NOT_REACHABLE


class LeftWork(DhtcrawlError):
    """A node left, and something it held is on no other node."""

    exit_code = Exit.LEFT_WORK


class IdentityError(DhtcrawlError):
    """The node's private key is unreadable, malformed or open to others."""

    exit_code = Exit.IDENTITY


class SwarmRefused(DhtcrawlError):
    """To talk with other machines it takes a secret, or a word that the swarm is open."""

    exit_code = Exit.IDENTITY


class SecretRefused(DhtcrawlError):
    """The swarm's secret is malformed or open to others, or the nodes to join through have another."""

    exit_code = Exit.IDENTITY


class AdminRefused(DhtcrawlError):
    """A node's admin port asks for another token, or shows another certificate; or others can read what is secret."""

    exit_code = Exit.IDENTITY


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that explains a group of them: a disk failure before what it caused."""
    leaves: list[BaseException] = []
    todo: list[BaseException] = [group]
    while todo:
        error = todo.pop(0)
        if isinstance(error, BaseExceptionGroup):
            todo.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((error for error in leaves if isinstance(error, StorageError)), leaves[0])
