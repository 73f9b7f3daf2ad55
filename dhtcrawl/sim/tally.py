"""What the task plane of a simulated swarm carries: frames, task records and bytes, by kind of message.

A message counts where it arrives, once each time it does, and only between
different nodes. Answers do not count, but for the records that REFRESH_TASK
brings: a task record that moves is counted, also when it was asked for. What never
arrives (its node is gone) is not counted.
"""

from __future__ import annotations

from collections import Counter

from dhtcrawl.rpc.tasks.messages import Records, Reply, Request, encode

# What moves task records without being asked for them; each item of one is a record.
RECORD_KINDS = ("STORE_TASK", "STORE_BACKUP", "DELETE_BACKUP")
PULLED = "REFRESH_TASK"  # its answer holds records


class MessageTally:
    """Counts the messages of a swarm. Kinds are the names of `dhtcrawl.rpc.tasks.frame.Kind`."""

    def __init__(self) -> None:
        self.frames: Counter[str] = Counter()  # requests
        self.records: Counter[str] = Counter()  # links, records and tombstones
        self.bytes: Counter[str] = Counter()  # of the requests' frames, and of answers with records

    def asked(self, node: bytes, asker: bytes, message: Request) -> None:
        if asker == node:
            return
        self.count(message.kind.name, message.items, len(encode(0, message)))

    def answered(self, node: bytes, asker: bytes, reply: Reply) -> None:
        if asker != node and isinstance(reply, Records) and reply.records:
            self.records[PULLED] += len(reply.records)
            self.bytes[PULLED] += len(encode(0, reply))

    def count(self, kind: str, records: int, length: int) -> None:
        self.frames[kind] += 1
        self.records[kind] += records
        self.bytes[kind] += length

    @property
    def records_moved(self) -> int:
        return sum(self.records.values())

    @property
    def record_frames(self) -> int:
        return sum(self.frames[kind] for kind in RECORD_KINDS) + self.frames[PULLED]
