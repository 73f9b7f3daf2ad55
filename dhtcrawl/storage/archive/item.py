"""What is archived of one request and its response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple


class ArchiveItem(NamedTuple):
    """An exchange to be archived, with its record ids and instants.

    Heads end with their blank line. `chunks` can be called again and yields
    `body_size` bytes each time; `body` holds the same bytes if they are in
    memory, else it is None. Ids are `urn:uuid:…`, without angle brackets.
    """

    url: str
    date: datetime
    remote_ip: str
    request_head: bytes
    response_head: bytes
    body_size: int
    chunks: Callable[[], Iterable[bytes]]
    body: bytes | None
    truncated: str | None  # WARC-Truncated: length, time, disconnect
    response_id: str
    request_id: str
