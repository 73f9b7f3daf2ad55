"""The table of calls: values come over as they were, nonsense is refused by name, all is served and documented."""

from __future__ import annotations

import ast
import importlib.util
import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dhtcrawl
from dhtcrawl.node.api import Api
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.rpc.tasks.frame import HEADER, LIST_ITEMS_MAX
from dhtcrawl.rpc.tasks.messages import Call, decode, encode
from dhtcrawl.rpc.tasks.schema import BadArguments, CallArgs, WireMap
from dhtcrawl.storage.collect.limits import ROWS_MAX
from dhtcrawl.storage.store import ranges
from dhtcrawl.swarm.calls import BY_NAME, CALLS
from dhtcrawl.swarm.calls.bodies import Adopt
from dhtcrawl.swarm.calls.hosts import HOST_ROWS_MAX, AskHosts, GrantedRow, HostAnswers
from dhtcrawl.swarm.calls.lifecycle import CRAWLS_A_LIST, GetCrawl
from dhtcrawl.swarm.calls.membership import Activate, HeldRow
from dhtcrawl.swarm.calls.records import HASH_BYTES
from dhtcrawl.swarm.calls.words import HELD_KEYS_MAX, KEYS_MAX

from .story import a_world

ROOT = Path(__file__).parents[2]
CRAWL, NODE, K1, K2 = bytes(16), b"n" * 20, b"a" * 20, b"b" * 20
LEASE, BEQUEST = bytes(8), bytes(104)
PLACE = ("ab" * 20, "x.warc.gz", 7, 9)
OBSTACLE = ("retry-after", "a.example", "429", 0, None, 27_000)
REPORT: dict[str, Any] = {
    "incarnation": 1, "knows": True, "idle": False, "activity": 7, "view": bytes(16), "record": bytes(8),
    "state_version": 2, "waiting": {"in_flight": 3}, "counters": {"seconds": 1.5, "bytes": 2**40},
    "obstacle": OBSTACLE, "awaited": (OBSTACLE,),
}  # fmt: skip

# By call: arguments and an answer, both as maps.
GOOD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "members": ({"rows": ((b"x", "h"),), "cursor": NODE}, {"rows": (), "cursor": b"", "sees": 3}),
    "activate": (
        {"incarnation": 3},
        {
            "held": ((CRAWL, (K1, K2), None), (CRAWL, (), NODE)),
            "hosts": (("h", NODE, LEASE, 9_000, 200, 0), ("h:81", b"", b"", 0, 200, 0)),
        },
    ),
    "try_me": ({"host": "2001:db8::1", "port": 8468}, {"datagram": True, "connection": False}),
    "here": ({"node": NODE}, {}),
    "crawl_list": ({"after": b""}, {"crawls": ((CRAWL, bytes(8)),)}),
    "crawl_get": ({"crawl": CRAWL}, {"record": b"x"}),
    "crawl_tell": ({"record": b"x", "crawl": CRAWL, "view": bytes(16)}, {}),
    "crawl_report": ({"crawl": CRAWL, "gone": ((NODE, 900, {"pages": 2}),)}, REPORT),
    "crawl_progress": (
        {"crawl": CRAWL, "here": True, "nodes": True},
        {
            "counters": {"pages": -1},
            "waiting": {},
            "heard_ms": 7,
            "obstacle": OBSTACLE,
            "nodes_total": 1,
            "nodes": ((NODE, 900, True, {"pages": 1}, {"links": 1}, OBSTACLE),),
        },
    ),
    "crawl_audit": ({"crawl": CRAWL, "still": bytes(16)}, {"missing": 1, "resent": 0}),
    "audit_keys": ({"crawl": CRAWL, "keys": (K1, K1 + K2)}, {"missing": (K1,)}),
    "pages_claim": ({"crawl": CRAWL, "epoch": 5}, {"epoch": 5, "out": 1, "serial": 2, "book": bytes(88)}),
    "pages_note": ({"crawl": CRAWL, "rows": bytes(44)}, {"rows": 1}),
    "pages_ask": ({"crawl": CRAWL, "epoch": 5, "serial": 2, "out": 1, "want": 3}, {"out": 4}),
    "lend": ({"crawl": CRAWL, "keys": (K1, K2), "patient": (K2,), "connect_s": {"h": 2.5}, "epoch": 2}, {}),
    "recall": ({"crawl": CRAWL, "keys": (K1, K2)}, {"keys": (K2,)}),
    "in_hand": ({"crawl": CRAWL, "keys": (K1,)}, {}),
    "release": ({"crawl": CRAWL, "keys": (K1,)}, {}),
    "lent_report": ({"crawl": CRAWL, "given": ((K1, "h", 0, 3, None, 9, ""), (K2, "h", 3, 0, 2, 0, "why"))}, {}),
    "crawl_plan": ({"crawl": CRAWL, "epoch": 0, "report": b"\x80", "news": True}, {"epoch": 1, "table": b"\x80"}),
    "places_want": ({"crawl": CRAWL, "rows": (("http://h", 3), ("https://h:81", 1))}, {}),
    "sites_time": ({"crawl": CRAWL, "origins": ("http://h", "https://h:81")}, {}),
    "host_ask": (
        {"asks": (("h", 200, 0, b""), ("h:81", 0, 1, LEASE), ("i", 0, 0, b""))},
        {"answers": ((0,), (1, LEASE, 9_000, 64, 5, 200), (2, 300))},
    ),
    "host_give_back": ({"backs": (("h", LEASE, None, 0), ("i", LEASE, 5, 7))}, {"taken": b"\1\0"}),
    "host_offer": ({"hosts": ("h", "i:81")}, {"unwanted": ("h",)}),
    "robots_ask": (
        {"origin": "http://h", "agent": "bot", "body_bytes_max": 9},
        {"verdict": "parse", "age_ms": 3, "size": 2, "body": b"hi"},
    ),
    "robots_tell": ({"origin": "https://h:81", "agent": "bot", "verdict": "", "body": b"hi"}, {"moved": True}),
    "have": ({"crawl": CRAWL, "keys": K1 + K2, "hashes": bytes(16)}, {"have": b"\0\1"}),
    "copy_pages": (
        {"crawl": CRAWL, "pages": ((K1, b"r", K2, b"abc", 3, False), (K2, b"r", None, None, 3, True))},
        {"codes": b"\0\3"},
    ),
    "stand_in_pages": ({"crawl": CRAWL, "keys": (K1, K2)}, {"found": ((K2, PLACE),)}),
    "held_pages": ({"crawl": CRAWL, "keys": (K1, K2)}, {"held": b"\0\1"}),
    "adopt": ({"crawl": CRAWL, "bequest": BEQUEST, "copies": True}, {}),
    "export_facts": ({"crawl": CRAWL}, {"counters": {"pages": 1}, "rss_bytes_max": 5}),
    "export_rows": ({"crawl": CRAWL, "kind": b"p", "cursor": b""}, {"rows": ((K1, b"x"),), "cursor": None}),
    "export_files": ({"crawl": CRAWL, "after": ""}, {"files": (("x.warc.gz", 9),)}),
    "export_chunk": ({"crawl": CRAWL, "name": "x", "offset": 0, "limit": 4}, {"data": b"abcd"}),
    "crawl_fetched": ({"crawl": CRAWL, "key": K1, "node": NODE}, {"fetched": True}),
    "crawl_wish": ({"crawl": CRAWL, "action": "resume", "settings": "{}"}, {"error": "it has ended"}),
    "given_up": ({"crawl": CRAWL, "cursor": K1}, {"rows": ((K1, "http://a.test/", 0, 1, "why"),), "cursor": K2}),
    "given_up_decide": ({"crawl": CRAWL, "action": "drop", "urls": ("http://a.test/",)}, {"count": 1}),
    "why": ({"crawl": CRAWL, "url": "http://a.test/"}, {"whatever": ("there", {"is": 1})}),
    "explain_host": ({"host": "h"}, {"whatever": None}),
}


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


LEAVES: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
LEAVES |= st.binary(max_size=45) | st.text(max_size=9)
LEAVES |= st.sampled_from([CRAWL, K1, LEASE, bytes(16), "http://a.test/", "http://h", "parse", 0, 1, ()])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=6).map(tuple)
        | st.dictionaries(st.text(max_size=8) | inner.filter(_hashable), inner, max_size=3)
    ),
    max_leaves=10,
)


def across(value: dict[str, Any]) -> dict[str, Any]:
    """A map as it comes out at the other end of the wire."""
    frame = encode(1, Call("x", value))
    _, back = decode(frame[HEADER.size - 1], frame[HEADER.size :])
    assert isinstance(back, Call)
    return back.args


def test_there_is_an_example_of_every_call() -> None:
    assert set(GOOD) == set(BY_NAME)


@pytest.mark.parametrize("call", CALLS, ids=BY_NAME)
def test_arguments_and_answers_come_over_as_they_were(call: type[CallArgs[Any]]) -> None:
    args, answer = GOOD[call.terms.name]
    asked = call.parse(across(args))
    assert asked.to_map() == args
    assert call.parse(across(asked.to_map())) == asked
    told = asked.answered(across(answer))
    assert told.to_map() == answer
    assert type(told) is call.reply
    assert asked.answered(across(told.to_map())) == told


@pytest.mark.parametrize("call", CALLS, ids=BY_NAME)
def test_fields_of_later_versions_are_kept_and_go_out_again(call: type[CallArgs[Any]]) -> None:
    for kind, good in zip((call, call.reply), GOOD[call.terms.name], strict=True):
        later = {**good, "of_later": (1, {"x": b"y"}), "extra": 7}
        parsed = kind.parse(across(later))
        assert parsed.to_map() == later
        assert {"of_later", "extra"} <= set(parsed.extra)


@settings(max_examples=300)
@given(data=st.data())
def test_nonsense_is_refused_by_the_name_of_the_field(data: st.DataObject) -> None:
    """One field of good arguments, or of a good answer, becomes anything; it may still be good."""
    name = data.draw(st.sampled_from(sorted(GOOD)))
    call = BY_NAME[name]
    args, answer = GOOD[name]
    asked = call.parse(args)
    for good, read in ((args, call.parse), (answer, asked.answered)):
        if not good:
            continue
        field = data.draw(st.sampled_from(sorted(good)))
        bad = {**good, field: data.draw(VALUES)}
        assert _wrong(partial(read, bad)) in {"", *_names(call), *_names(call.reply)}


@settings(max_examples=300)
@given(value=VALUES, call=st.sampled_from(CALLS))
def test_anything_at_all_is_arguments_or_bad_arguments(value: Any, call: type[CallArgs[Any]]) -> None:
    for kind in (call, call.reply):
        try:
            kind.parse(value)
        except BadArguments:
            continue


@pytest.mark.parametrize("call", CALLS, ids=BY_NAME)
def test_a_field_without_a_default_has_to_be_there(call: type[CallArgs[Any]]) -> None:
    args, _ = GOOD[call.terms.name]
    optional = {field.name for field in call.wire_fields if not field.required}
    for name in args:
        rest = {other: value for other, value in args.items() if other != name}
        assert _wrong(partial(call.parse, rest)) == ("" if name in optional else name)


def _wrong(read: Callable[[], WireMap]) -> str:
    """The field that is refused; empty where none is."""
    try:
        read()
    except BadArguments as error:
        return error.field
    return ""


def _names(kind: type[WireMap]) -> set[str]:
    return {field.name for field in kind.wire_fields}


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("lend", {"connect_s": 3}, "connect_s"),
    ("lend", {"connect_s": {"h": -1}}, "connect_s"),
    ("lend", {"connect_s": {"h": math.nan}}, "connect_s"),
    ("lend", {"connect_s": {5: 1.0}}, "connect_s"),
    ("lend", {"patient": None}, "patient"),
    ("lend", {"keys": (b"short",)}, "keys"),
    ("lend", {"keys": [K1]}, "keys"),
    ("lend", {"keys": (K1, K1)}, "keys"),
    ("lend", {"keys": tuple(n.to_bytes(20, "big") for n in range(501))}, "keys"),
    ("lend", {"epoch": True}, "epoch"),
    ("lent_report", {"given": ((K1, "a", len(TaskResult), 0, None, 0, ""),)}, "given"),
    ("lent_report", {"given": ((K1, "a", 0, -1, None, 0, ""),)}, "given"),
    ("lent_report", {"given": ((K1, "a", 0, 0.5, None, 0, ""),)}, "given"),
    ("lent_report", {"given": ((),)}, "given"),
    ("host_ask", {"asks": (("h", 1, 1, b""),) * 257}, "asks"),
    ("host_ask", {"asks": (("h", 1, 1, bytes(7)),)}, "asks"),
    ("host_ask", {"asks": (("h", 1.0, 1, b""),)}, "asks"),
    ("host_ask", {"asks": (("h\u00fc", 1, 1, b""),)}, "asks"),
    ("host_ask", {"asks": (("h", 86_400_001, 1, b""),)}, "asks"),
    ("host_give_back", {"backs": (("h", b"", 1, 1),)}, "backs"),
    ("robots_ask", {"origin": "ftp://h"}, "origin"),
    ("robots_ask", {"origin": "http://h/"}, "origin"),
    ("robots_tell", {"verdict": "perhaps"}, "verdict"),
    ("robots_tell", {"body": bytes(512_001)}, "body"),
    ("have", {"keys": bytes(19)}, "keys"),
    ("have", {"keys": bytes(60)}, "keys"),
    ("have", {"hashes": b""}, "hashes"),
    ("have", {"hashes": bytes(9)}, "hashes"),
    ("copy_pages", {"pages": ()}, "pages"),
    ("copy_pages", {"pages": ((K1, b"r", b"x", None, 3, True),)}, "pages"),
    ("copy_pages", {"pages": ((K1, b"r", None, b"ab", 3, True),)}, "pages"),
    ("pages_claim", {"epoch": 0}, "epoch"),
    ("pages_note", {"rows": bytes(45)}, "rows"),
    ("crawl_wish", {"action": "forget"}, "action"),
    ("given_up_decide", {"action": "destroy"}, "action"),
    ("given_up_decide", {"urls": ("no address",)}, "urls"),
    ("given_up_decide", {"urls": ("http://a.test/",) * 51}, "urls"),
    ("crawl_audit", {"crawl": b"short"}, "crawl"),
]


@pytest.mark.parametrize(("name", "change", "field"), BAD)
def test_what_is_out_of_bounds_is_refused_by_its_name(name: str, change: dict[str, Any], field: str) -> None:
    with pytest.raises(BadArguments) as caught:
        BY_NAME[name].parse({**GOOD[name][0], **change})
    assert caught.value.field == field


MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("host_ask", {"answers": ((0,),)}, "answers"),
    ("host_ask", {"answers": ((3,), (0,), (0,))}, "answers"),
    ("host_ask", {"answers": ((True,), (0,), (0,))}, "answers"),
    ("host_give_back", {"taken": b"\1"}, "taken"),
    ("have", {"have": b"\1"}, "have"),
    ("copy_pages", {"codes": b"\0"}, "codes"),
    ("copy_pages", {"codes": b"\0\4"}, "codes"),
    ("stand_in_pages", {"found": ((b"c" * 20, PLACE),)}, "found"),
    ("held_pages", {"held": b"\1"}, "held"),
    ("stand_in_pages", {"found": ((K1, (*PLACE[:3], 0)),)}, "found"),
    ("stand_in_pages", {"found": ((K1, ("AB" * 20, *PLACE[1:])),)}, "found"),
    ("stand_in_pages", {"found": ((K1, (PLACE[0], "../x", 0, 9)),)}, "found"),
    ("recall", {"keys": (b"c" * 20,)}, "keys"),
    ("audit_keys", {"missing": (b"c" * 20,)}, "missing"),
    ("pages_claim", {"epoch": 4, "out": 1, "serial": 2, "book": b""}, "epoch"),
    ("pages_claim", {"epoch": 5}, "epoch"),
    ("pages_claim", {"epoch": 5, "out": 1}, "out"),
    ("crawl_audit", {"missing": 1}, "resent"),
    ("crawl_audit", {}, "missing"),
    ("robots_ask", {"verdict": "parse", "size": 3}, "age_ms"),
    ("robots_ask", {}, "verdict"),
    ("export_chunk", {"data": b"abcde"}, "data"),
    ("activate", {"held": (), "hosts": (("h", b"", LEASE, 0, 1, 0),)}, "hosts"),
    ("activate", {"held": (), "hosts": (("h", NODE, b"", 0, 1, 0),)}, "hosts"),
    *[("crawl_report", {**REPORT, name: value}, name) for name, value in (
        ("incarnation", -1), ("activity", True), ("idle", 1), ("knows", None), ("view", bytes(15)), ("record", b""),
        ("waiting", None), ("waiting", {"a": -1}), ("waiting", {"a": 1.5}), ("waiting", {"a": True}),
        ("waiting", {"A!": 1}), ("waiting", {b"a": 1}), ("waiting", {"a" * 33: 1}),
        ("waiting", {first + "x" * n: 1 for first in "abc" for n in range(31)}),
        ("counters", {"seconds": math.nan}), ("counters", {"seconds": math.inf}), ("counters", {"a": "1"}),
        ("counters", {"a\x1b": 1}),
    )],
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "field"), MISFITS)
def test_an_answer_that_does_not_answer_is_none(name: str, answer: dict[str, Any], field: str) -> None:
    with pytest.raises(BadArguments) as caught:
        BY_NAME[name].parse(GOOD[name][0]).answered(answer)
    assert caught.value.field == field


def test_a_call_that_is_not_a_map_is_refused_as_such() -> None:
    for value in (None, (), 3, {b"crawl": CRAWL}, {"crawl": CRAWL, 3: 4}):
        with pytest.raises(BadArguments):
            GetCrawl.parse(value)


def test_a_default_is_left_out_and_a_default_that_is_sent_is_taken() -> None:
    assert Adopt(CRAWL, BEQUEST).to_map() == {"crawl": CRAWL, "bequest": BEQUEST}
    assert Adopt.parse({"crawl": CRAWL, "bequest": BEQUEST, "copies": False}) == Adopt(CRAWL, BEQUEST)


def test_the_longest_lists_fit_onto_the_wire_and_the_limits_are_those_of_the_store() -> None:
    assert max(KEYS_MAX, HOST_ROWS_MAX, ROWS_MAX, CRAWLS_A_LIST) <= LIST_ITEMS_MAX
    assert HASH_BYTES == ranges.DIGEST_BYTES
    rows = [HeldRow(CRAWL, (bytes(40),) * KEYS_MAX, NODE)] * (HELD_KEYS_MAX // KEYS_MAX)
    assert len(msgpack.packb(rows)) < Activate.terms.reply_bytes_max * 2 / 3
    biggest = GOOD["host_ask"][1]["answers"][1]
    answers = HostAnswers((GrantedRow(*biggest),) * HOST_ROWS_MAX)
    assert len(msgpack.packb(answers.to_map())) < AskHosts.terms.reply_bytes_max


def _serving() -> dict[str, list[str]]:
    """By class of call: the modules in which something like `registry.serve(calls.Lend, …)` stands."""
    places: dict[str, list[str]] = defaultdict(list)
    package = Path(dhtcrawl.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "serve":
                name = ast.unparse(node.args[0]).rpartition(".")[2] if len(node.args) == 2 else ""
                if name[:1].isupper():
                    places[name].append(path.relative_to(package).as_posix())
    return places


def test_every_call_is_served_in_one_place_and_nothing_else_is() -> None:
    places = _serving()
    assert set(places) == {call.__name__ for call in CALLS}
    assert {name: where for name, where in places.items() if len(where) != 1} == {}


async def test_a_node_of_a_swarm_serves_the_table() -> None:
    async with a_world(pages=10, nodes=1) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        Api(swarm, swarm.registry)  # as `dhtcrawl join` makes it, for people
        assert set(swarm.registry.served()) == set(BY_NAME)


def test_every_class_of_arguments_is_in_the_table() -> None:
    found = [call for call in CallArgs.__subclasses__() if call.__module__.startswith("dhtcrawl.")]
    assert set(found) == set(CALLS)


def test_a_call_is_made_like_a_frozen_dataclass() -> None:
    adopt = Adopt(CRAWL, BEQUEST, copies=True)
    assert (adopt.crawl, adopt.copies, Adopt(crawl=CRAWL, bequest=BEQUEST).copies) == (CRAWL, True, False)
    assert repr(adopt) == f"Adopt(crawl={CRAWL!r}, bequest={BEQUEST!r}, copies=True)"
    assert adopt != Adopt(CRAWL, BEQUEST)
    assert adopt != adopt.to_map()
    with pytest.raises(AttributeError):
        setattr(adopt, "copies", False)  # noqa: B010
    make: Callable[..., Adopt] = Adopt
    for values, named in (((), {}), ((CRAWL, BEQUEST, True, 3), {}), ((CRAWL,), {"other": 1}), ((), {"copies": True})):
        with pytest.raises(TypeError):
            make(*values, **named)


def test_every_field_has_a_kind_and_every_call_a_sentence() -> None:
    for call in CALLS:
        for kind in (call, call.reply):
            assert kind.__doc__
            assert all(field.kind.says for field in kind.wire_fields)


def test_the_page_about_calls_is_made_of_the_table() -> None:
    script = ROOT / "scripts" / "protocol_tables.py"
    spec = importlib.util.spec_from_file_location("protocol_tables", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "protocol-calls.md").read_text("utf-8")
    assert module.updated(page) == page, "run python scripts/protocol_tables.py"
