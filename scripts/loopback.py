"""Ports and addresses of this machine for benches and tests."""

from __future__ import annotations

import itertools
import os
import socket

_ADDRESSES = itertools.count(1)


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_address() -> str:
    """Any port of a loopback address that nobody else has (Linux answers to all of 127.0.0.0/8), as host:port.

    What is started again there finds its port free: of 127.0.0.1 the system
    gives it meanwhile to any connection that goes out.
    """
    number = next(_ADDRESSES)
    return f"127.{64 + os.getpid() % 128}.{number // 250 % 250}.{1 + number % 250}:0"
