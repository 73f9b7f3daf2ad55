"""A transaction's view of the store, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.txn import Txn

KEYS = st.sampled_from([b"a", b"a\0", b"b", b"c", b"d"])
OPS = st.tuples(st.sampled_from(["put", "delete", "scan", "get"]), KEYS, KEYS)
TRANSACTIONS = st.lists(st.tuples(st.lists(OPS, max_size=8), st.booleans()), max_size=4)
GROUPS = st.lists(TRANSACTIONS, max_size=4)


@given(groups=GROUPS)
def test_a_transaction_sees_the_store_the_group_before_it_and_itself(
    groups: list[list[tuple[list[tuple[str, bytes, bytes]], bool]]],
) -> None:
    engine, model = MemoryEngine(), dict[bytes, bytes]()
    for transactions in groups:
        group: dict[bytes, bytes | None] = {}
        for ops, fails in transactions:
            writes: dict[bytes, bytes | None] = {}
            txn, mine = Txn(engine, writes, before=group), dict(model)
            for op, key, other in ops:
                if op == "put":
                    txn.put(key, other)
                    mine[key] = other
                elif op == "delete":
                    txn.delete(key)
                    mine.pop(key, None)
                elif op == "get":
                    assert txn.get(key) == mine.get(key)
                else:
                    assert list(txn.scan(key, other)) == sorted((k, v) for k, v in mine.items() if key <= k < other)
            if not fails:
                group |= writes
                model = mine
            assert dict(Txn(engine, group).scan(b"", b"\xff")) == model
        engine.write(group, sync=False)
    assert dict(engine.scan(b"", b"\xff")) == model


@given(stored=st.sets(KEYS), written=st.dictionaries(KEYS, st.none() | st.just(b"")))
def test_a_scan_may_delete_what_it_yields(stored: set[bytes], written: dict[bytes, bytes | None]) -> None:
    engine = MemoryEngine()
    engine.write(dict.fromkeys(stored, b""), sync=False)
    txn = Txn(engine, written)
    there = [key for key, _ in txn.scan(b"", b"\xff")]
    seen = []
    for key, _ in txn.scan(b"", b"\xff"):
        txn.delete(key)
        seen.append(key)
    assert seen == there == sorted(set(there))
    assert list(txn.scan(b"", b"\xff")) == []
