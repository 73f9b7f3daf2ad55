"""Who is asked for a task, and who is waited for: whoever is not to be asked now may be the one that reaches a host."""

from __future__ import annotations

from functools import partial
from math import inf

from dhtcrawl.keyspace import distance
from dhtcrawl.policy.seam import PolicyTask, Settings
from dhtcrawl.policy.xor import Xor
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.swarm.assignment.candidates import PATIENCE_S, REFUSED_LEAST_S, REFUSED_MOST_S, Candidates
from swarm.fake_peers import node, view_of

KEY = bytes(20)
OWN, B, C = node(0), node(1), node(2)
NOW = 100.0


ALL = view_of([0, 1, 2])


def make() -> Candidates:
    return Candidates(Xor(Settings(OWN)), {})


def test_a_host_of_one_type_is_asked_by_nodes_of_that_type_once_they_are_known() -> None:
    candidates, any_host = Candidates(Xor(Settings(OWN)), {"a": "meta"}), PolicyTask(KEY, "b")
    assert asked(candidates) == may_be(candidates, NOW) == []
    assert list(candidates.willing([any_host], ALL, NOW)(any_host)) == [OWN, B, C]
    candidates.know({B: "meta", C: "blog", node(7): "meta", OWN: 3})
    assert asked(candidates) == may_be(candidates, NOW) == [B]
    candidates.avoid(B, NOW + 5)
    assert asked(candidates) == [], "who is not asked now is waited for"


def test_of_many_nodes_of_a_type_those_near_the_key_are_asked() -> None:
    many, policy = view_of([*range(16)]), Xor(Settings(OWN))
    candidates = Candidates(policy, {"a": "meta", "c": "blog"})
    meta = [node(number) for number in range(4, 16)]
    candidates.know(dict.fromkeys(meta, "meta"))
    tasks = [PolicyTask(node(number), host) for number in range(16) for host in "abc"]
    found = candidates.willing(tasks, many, NOW)
    for task in tasks:
        near = sorted(meta, key=partial(distance, task.key))[: policy.candidates_max]
        if task.host == "a":
            assert sorted(found(task)) == sorted(near)
            assert sorted(candidates.of(task.key, "a", many, NOW)) == sorted(near)
        assert (task.host == "c") is (found(task) == [])
    assert {each for task in tasks if task.host == "a" for each in found(task)} == set(meta)


def asked(candidates: Candidates, *failed: bytes, now: float = NOW, view: View = ALL) -> list[bytes]:
    task = PolicyTask(KEY, "a", failed)
    return list(candidates.willing([task], view, now)(task))


def may_be(candidates: Candidates, now: float, view: View = ALL) -> list[bytes]:
    return list(candidates.of(KEY, "a", view, now))


def test_who_refused_is_not_asked_for_a_while() -> None:
    candidates = make()
    assert asked(candidates) == [OWN, B, C]
    candidates.avoid(B, NOW + 5)
    assert asked(candidates) == asked(candidates, OWN) == [OWN, C]
    assert asked(candidates, now=NOW + 5) == [OWN, B, C]


def test_who_refused_is_waited_for_where_all_others_have_failed() -> None:
    candidates = make()
    candidates.avoid(B, NOW + 5)
    assert asked(candidates, OWN, C) == []
    assert asked(candidates, OWN, B, C) == [OWN, C], "it has failed, too"
    assert asked(candidates, OWN, C, now=NOW + 5) == [OWN, B, C]


def test_who_does_not_answer_now_is_waited_for_where_all_others_have_failed() -> None:
    candidates = make()
    states = {OWN: MemberState.ACTIVE, B: MemberState.ACTIVE, C: MemberState.SUSPECTED}
    view = View(Member(each, ("10.0.0.1", 1), state) for each, state in states.items())
    assert asked(candidates, view=view) == [OWN, B]
    assert asked(candidates, OWN, B, view=view) == []
    assert may_be(candidates, NOW, view) == [OWN, B, C]


def test_who_refuses_for_a_minute_on_end_is_not_waited_for() -> None:
    candidates = make()
    for second in range(0, int(PATIENCE_S) + 1, 5):
        assert B in may_be(candidates, NOW + second)
        candidates.refused(B, NOW + second)
    now = NOW + PATIENCE_S
    assert asked(candidates, OWN, C, now=now + 1) == [OWN, C]
    assert B not in may_be(candidates, now)
    candidates.took(B)
    candidates.refused(B, now)
    assert asked(candidates, OWN, C, now=now + 1) == []
    assert B in may_be(candidates, now)


def test_that_many_loans_were_refused_at_once_says_no_more_than_one() -> None:
    candidates = make()
    for _ in range(50):
        candidates.refused(B, NOW)
    assert B in may_be(candidates, NOW)
    assert asked(candidates, OWN, C, now=NOW) == []
    assert asked(candidates, OWN, C, now=NOW + REFUSED_LEAST_S) == [OWN, B, C]


def test_who_does_not_run_the_crawl_yet_is_asked_soon_and_who_goes_on_refusing_less_often() -> None:
    candidates, now, pauses = make(), NOW, []
    while now < NOW + 18:
        candidates.refused(B, now)
        pauses.append(next(pause for pause in (0.25, 0.5, 1, 2, 4, 5, 10) if B in asked(candidates, now=now + pause)))
        now += pauses[-1]
    assert pauses == [REFUSED_LEAST_S, REFUSED_LEAST_S, 0.5, 1, 2, 4, REFUSED_MOST_S, REFUSED_MOST_S]


def test_who_takes_and_refuses_in_turns_is_asked_no_more_often_than_who_refuses() -> None:
    candidates = make()
    for second in range(0, 30, int(REFUSED_MOST_S)):
        assert B in asked(candidates, now=NOW + second)
        candidates.took(B)
        candidates.refused(B, NOW + second)
        assert B not in asked(candidates, now=NOW + second + REFUSED_MOST_S - 0.1)


def test_what_a_node_refused_some_time_ago_is_forgotten() -> None:
    candidates = make()
    for second in (0, 30, 60):
        candidates.refused(B, NOW + second)
    assert B not in may_be(candidates, NOW + 60 + PATIENCE_S - 1)
    assert B in may_be(candidates, NOW + 60 + PATIENCE_S)
    assert B in asked(candidates, now=NOW + 60 + PATIENCE_S)
    candidates.refused(B, NOW + 60 + PATIENCE_S)
    assert B in may_be(candidates, NOW + 60 + PATIENCE_S), "it began to refuse just now"


def test_who_is_to_be_left_alone_is_asked_no_sooner_for_having_refused() -> None:
    candidates = make()
    candidates.avoid(B, inf)
    candidates.refused(B, NOW)
    assert B not in asked(candidates, now=NOW + 1000)
    candidates.avoid(B, NOW + 1000)
    assert B in asked(candidates, now=NOW + 1000)


def test_who_cannot_be_reached_is_asked_too_and_in_a_large_swarm_a_few_of_them() -> None:
    hidden = [Member(bytes([n]) + bytes(19), ("10.0.0.1", n), MemberState.OUTBOUND) for n in (1, 2, 3)]
    assert asked(make(), view=View([*ALL.members, *hidden])) == [OWN, B, C, *(member.id for member in hidden)]
    large = View([*view_of(range(16)).members, *hidden])
    found = asked(make(), view=large)
    assert len(found) == Xor.candidates_max
    assert found[:6] == [node(n) for n in range(6)]
    assert found[6:] == [hidden[0].id, hidden[1].id], "the closest to the key"
