"""`python -m dhtcrawl.cli.child …`: a node process of `dhtcrawl crawl --nodes`, which ends when its parent does.

The parent holds the other end of our stdin. When that closes, however the
parent ended, this process ends at once: what it acknowledged is on disk, and
the same command goes on from there.
"""

from __future__ import annotations

import os
import signal
import threading

from dhtcrawl.cli.main import main
from dhtcrawl.errors import Exit


def _watch_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(Exit.FORCED)


if __name__ == "__main__":
    # A terminal's Ctrl-C reaches all processes, and so does what ends a service; the parent decides what it means.
    # Blocked and not ignored: the command that runs here sets handlers for both.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    threading.Thread(target=_watch_parent, daemon=True).start()
    main()
