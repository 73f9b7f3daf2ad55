"""dhtcrawl: a distributed web crawler on a Kademlia DHT, without a master."""

import os

__version__ = "0.1.0"

if os.environ.get("DHTCRAWL_CHECK_THREADS") == "1":
    from dhtcrawl.loop_state import check_loop_state

    check_loop_state()
