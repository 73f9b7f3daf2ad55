"""What lies between the regions of a lab: delay, loss, rate, cuts; on values, and once with packets."""

from __future__ import annotations

import socket
import time
from random import Random

import pytest
from wan_lab.regions import Regions
from wan_lab.ways import QUEUE_S, Distance, Way

from .netns import Unavailable


def arrivals(distance: Distance, packets: int, every_s: float = 0.01, size_bytes: int = 1000) -> list[float | None]:
    way = Way(distance, Random(1))
    return [way.arrival(number * every_s, size_bytes) for number in range(packets)]


def test_a_packet_takes_its_time_and_none_overtakes_another() -> None:
    assert arrivals(Distance(0.02), 3) == pytest.approx([0.02, 0.03, 0.04])
    late = [at for at in arrivals(Distance(0.02, jitter_s=0.05), 500) if at is not None]
    assert late == sorted(late)
    assert 0.02 < max(at - 0.01 * number for number, at in enumerate(late)) < 0.07


def test_packets_are_lost_by_themselves_and_the_same_ones_each_time() -> None:
    lost = [at is None for at in arrivals(Distance(loss=0.1), 2000)]
    assert 150 < sum(lost) < 250
    assert lost == [at is None for at in arrivals(Distance(loss=0.1), 2000)]


def test_a_line_lets_through_its_rate_and_drops_what_would_wait_too_long() -> None:
    # 1,000 bytes take 10 ms at 0.8 Mbit/s, and one comes every 5 ms.
    got = arrivals(Distance(rate_bps=800_000), 400, every_s=0.005)
    arrived = [at for at in got if at is not None]
    assert arrived[:3] == pytest.approx([0.01, 0.02, 0.03])
    assert arrived[-1] - arrived[-199] == pytest.approx(1.98)
    assert max(at - 0.005 * number for number, at in enumerate(got) if at is not None) <= QUEUE_S + 0.011


def test_a_way_that_is_cut_lets_nothing_through_and_changes_nothing_for_later() -> None:
    cut, whole = Way(Distance(loss=0.5), Random(1)), Way(Distance(loss=0.5), Random(1))
    for number in range(100):
        cut.cut = 20 <= number < 50
        there, here = cut.arrival(number, 100), whole.arrival(number, 100)
        assert there == (None if cut.cut else here)


@pytest.mark.needs_root
def test_packets_cross_the_regions_late_and_not_where_they_are_cut() -> None:
    between = {("a", "b"): Distance(0.05), ("b", "a"): Distance(0.03)}
    try:
        with Regions({"here": "a", "there": "b"}, between) as hosts:
            with hosts.on("there"):
                there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                there.bind((hosts.address("there"), 9))
            with hosts.on("here"):
                here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with there, here:
                for end in (there, here):
                    end.settimeout(10.0)
                began_at = time.monotonic()
                here.sendto(b"there", (hosts.address("there"), 9))
                data, sender = there.recvfrom(100)
                there.sendto(data + b" and back", sender)
                assert here.recv(100) == b"there and back"
                assert time.monotonic() - began_at >= 0.08, "not sooner than the distance allows"
                hosts.cut(["here"], ["there"])
                there.sendto(b"open", sender)
                assert here.recv(100) == b"open", "the cut is known by now: the router takes one thing after the other"
                here.sendto(b"lost", (hosts.address("there"), 9))
                hosts.heal()
                there.sendto(b"healed", sender)
                assert here.recv(100) == b"healed"
                here.sendto(b"last", (hosts.address("there"), 9))
                assert there.recv(100) == b"last", "and not what was sent before"
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.needs_root
def test_a_hidden_host_hears_answers_alone_by_either_family() -> None:
    near = {(here, there): Distance() for here in "ab" for there in "ab"}
    try:
        with Regions({"here": "a", "there": "b"}, near, family="dual") as hosts:
            hosts.hide("there")
            for version, family in enumerate((socket.AF_INET, socket.AF_INET6)):
                places = {name: (hosts.addresses(name)[version], 9) for name in hosts.names}
                ends: dict[str, socket.socket] = {}
                for name in hosts.names:
                    with hosts.on(name):
                        ends[name] = socket.socket(family, socket.SOCK_DGRAM)
                    ends[name].bind(places[name])
                    ends[name].settimeout(10.0)
                with hosts.on("here"):
                    stranger = socket.socket(family, socket.SOCK_DGRAM)
                with ends["here"], ends["there"], stranger:
                    stranger.sendto(b"unasked", places["there"])
                    ends["there"].sendto(b"asked", places["here"])
                    assert ends["here"].recv(100) == b"asked"
                    ends["here"].sendto(b"answer", places["there"])
                    assert ends["there"].recv(100) == b"answer"
    except Unavailable as error:
        pytest.skip(str(error))
