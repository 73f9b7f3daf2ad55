"""nginx as a judge: its log says what a crawler asked for, how often and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import web_server


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of the log; instants in seconds since 1970, to the millisecond."""

    ended_at: float
    took_s: float
    status: int
    sent_bytes: int
    uri: str
    user_agent: str

    @property
    def began_at(self) -> float:
        return self.ended_at - self.took_s


class Nginx(web_server.Nginx):
    """A server whose requests are counted."""

    def hit_count(self) -> int:
        """How many requests were answered (or given up) so far; cheap enough to poll."""
        return self.log.read_bytes().count(b"\n")

    def hits(self) -> list[Hit]:
        """Every request so far, in the order in which they ended."""
        return [_parse(line) for line in self.log.read_text().splitlines()]

    def requests(self) -> Counter[str]:
        """How often each URI was asked for, robots.txt left out."""
        return Counter(hit.uri for hit in self.hits() if hit.uri != "/robots.txt")


class Throttled(Nginx):
    """A server that answers `rate` requests a second, each in its turn, until it is held or opened."""

    def __init__(self, home: Path, root: Path, rate: int) -> None:
        self._held, self._open = home / "held", home / "open"
        # A request with an empty key passes its zone without waiting.
        keys = 'set $throttle on; set $held "";'
        keys += f" if (-f {self._held}) {{ set $held on; }}"
        keys += f' if (-f {self._open}) {{ set $throttle ""; set $held ""; }}'
        zones = f"limit_req_zone $throttle zone=all:1m rate={rate}r/s; limit_req_zone $held zone=held:1m rate=3r/s;"
        super().__init__(home, root, f"{keys} limit_req zone=all burst=2000; limit_req zone=held burst=2000;", zones)

    def hold(self) -> None:
        """From now on it answers three requests a second: a crawl lasts minutes, and no request waits for 30 s."""
        self._held.touch()

    def open(self) -> None:
        """From now on it answers at once."""
        self._open.touch()


def _parse(line: str) -> Hit:
    ended, took, status, sent, rest = line.split(" ", 4)
    uri, agent = rest[:-1].rsplit(' "', 1)
    return Hit(float(ended), float(took), int(status), int(sent), uri, agent)
