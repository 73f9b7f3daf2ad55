"""What `explain-host` prints is for people; `--json` keeps the names that scripts read."""

from __future__ import annotations

from dhtcrawl.cli.look import host_in_words

LEASE: dict[str, object] = {"holder": None, "lease_left_s": 0.0, "waiting": [], "delay_s": 1.0}


def test_a_host_that_no_node_asks_says_so_in_words() -> None:
    text = host_in_words({"host": "a.example", "as_gatekeeper": LEASE}, 200)
    assert "holder no node" in text
    assert "waiting no node" in text
    assert "None" not in text


def test_a_robots_txt_that_is_not_there_is_told_in_words() -> None:
    robots = {"http://a.example": {"dhtcrawl": "unavailable"}, "https://a.example": {}}
    text = host_in_words({"host": "a.example", "robots": robots}, 200)
    assert "http://a.example dhtcrawl there is none, so all pages are allowed" in text
    assert "unavailable" not in text
    assert "https://" not in text


def test_an_answer_of_another_shape_is_shown_as_it_is() -> None:
    assert "verdict known" in host_in_words({"robots": {"verdict": "known"}, "as_gatekeeper": None}, 200)
