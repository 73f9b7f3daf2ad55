"""A running node of a closed swarm: it takes up the secrets of its file when that changes, and renews its certificate.

Looking once a second costs a `stat`. A file that cannot be used is told of
once, and the node goes on with the secrets that it has; so does one that cannot
write its certificate, which tries again each second.
"""

from __future__ import annotations

import asyncio
import logging
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from dhtcrawl.cli.secret_file import read_secrets
from dhtcrawl.closed.secret import Ring, parse_ring
from dhtcrawl.closed.tls import RENEW_S, SwarmTls
from dhtcrawl.errors import DhtcrawlError
from dhtcrawl.identity import FILE_NAME, public_key

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0


class SecretWatch:
    """Tells `use` of new secrets and certificates, for as long as it runs."""

    def __init__(
        self,
        ring: Ring,
        file: str,
        make_tls: Callable[[Ring], SwarmTls],
        use: Callable[[Ring, SwarmTls], None],
        made_at: float,
        clock: Callable[[], float],
    ) -> None:
        """`file` is where the secrets stand; "" where they cannot change.

        `make_tls` raises OSError where it can write no certificate; the one that is used was `made_at` this time of
        the `clock`. That is the clock by which others judge certificates: it goes on while the machine sleeps, and may
        be set.
        """
        self._ring = self._wanted = ring
        self._told = False  # that the certificate which is wanted cannot be written
        self._file = file
        self._make_tls = make_tls
        self._use = use
        self._made_at = made_at
        self._clock = clock
        self._seen: tuple[int, ...] = ()  # read once more: a node may take long from its first look to here

    @classmethod
    def of_node(
        cls, ring: Ring, tls: SwarmTls, file: str, data_dir: Path, use: Callable[[Ring, SwarmTls], None]
    ) -> Self:
        """The watch of the node that has this data directory, and begins with `tls`.

        Raises:
            IdentityError: its key cannot be read.
        """
        key_file, own_key = data_dir / FILE_NAME, public_key(data_dir)
        return cls(
            ring,
            file,
            lambda wanted: SwarmTls.of(wanted, data_dir, key_file, own_key),
            use,
            made_at=tls.made_at,
            clock=time.time,
        )

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Take up what has changed, once there is a certificate for it."""
        ring = self._wanted = self._changed() or self._wanted
        if ring == self._ring and 0 <= self._clock() - self._made_at < RENEW_S:
            return
        try:
            tls = self._make_tls(ring)
        except OSError as error:
            if not self._told:
                log.warning("the node's new certificate cannot be written (%s); the old one serves on", error.strerror)
            self._told = True
            return
        self._told = False
        if ring.banned != self._ring.banned:
            log.warning("%s: %d nodes are banned from here on", self._file, len(ring.banned))
        if ring.secrets != self._ring.secrets:
            accepted = ", ".join(keys.name for keys in ring.keys[1:]) or "none"
            log.warning(
                "%s: secret %s is used from here on; accepted besides: %s", self._file, ring.used.name, accepted
            )
        self._ring = ring
        self._made_at = self._clock()
        self._use(ring, tls)

    def _changed(self) -> Ring | None:
        if not self._file:
            return None
        seen = self._look()
        if seen == self._seen:
            return None
        self._seen = seen
        try:
            return parse_ring(read_secrets(self._file), self._file)
        except OSError as error:
            log.warning("%s: cannot be read (%s); the secrets stay as they were", self._file, error.strerror)
        except DhtcrawlError as error:
            log.warning("%s; the secrets stay as they were", error)
        return None

    def _look(self) -> tuple[int, ...]:
        if not self._file:
            return ()
        try:
            found = Path(self._file).stat()
        except OSError:
            return ()
        if not stat.S_ISREG(found.st_mode):
            return ()  # a pipe is read once, and to open it again would wait for a writer
        return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode
