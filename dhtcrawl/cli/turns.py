"""How long the nodes of one machine use a core in turn, where they share it: on Linux; elsewhere nothing changes."""

from __future__ import annotations

import os
import struct
import sys
from typing import Final

TURN_NS: Final = 40_000_000
# sched_setattr(2); its number, which libraries of C name from glibc 2.41 on, by the machine as uname(2) calls it.
_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
# Its `struct sched_attr`: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")


def take_long_turns() -> bool:
    """Have the kernel let this process and its threads work for up to `TURN_NS` once it is their turn; whether it will.

    A node that loses the core to each packet for another one finds the core's caches cold when it goes on, and a few
    packets behind which it could have handled together. So nodes that share a core say that they are batch work
    (sched(7), `SCHED_BATCH`: what wakes up does not interrupt others), and ask for longer turns than the usual 3 ms,
    which kernels before Linux 6.12 do not know and ignore. Shares stay as they are, and so does `nice`.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:  # a sandbox does not allow it: the kernel's usual turns do, too
        return False
    number = _SETATTR.get(os.uname().machine)
    if number is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_BATCH, 0, nice, 0, TURN_NS, 0, 0), _ATTRIBUTES.size
    )
    return bool(ctypes.CDLL(None).syscall(number, 0, wanted, 0) == 0)
