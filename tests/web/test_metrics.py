"""/metrics by the rules of the text format, and the dashboard by the rules of a page that needs nobody."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.web.metrics import CONTENT_TYPE, render

from .fake import FakeNode
from .test_admin import ask

pytestmark = pytest.mark.loops("asyncio")

Samples = dict[str, tuple[str, dict[str, float]]]
LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*",?)+\})? (\S+)')


def parse(text: str) -> Samples:
    """Family → its type and samples; strict where the format and promtool's linter are.

    Each family stands in one piece: HELP, TYPE, samples. Counters, and only
    they, end in `_total`; names are lower case, and their units base units.
    """
    assert text.endswith("\n") or not text
    families: Samples = {}
    helped, current = "", ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, helped, words = line.split(" ", 3)
            assert words.strip(), f"{helped} has no help"
            assert helped not in families, f"{helped} stands in two places"
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current == helped, "TYPE follows its HELP"
            assert kind in ("counter", "gauge")
            assert (kind == "counter") is current.endswith("_total")
            assert re.fullmatch(r"[a-z][a-z0-9_]*", current)
            assert not re.search(r"_(ms|milliseconds|kb|mb|count|sum|bucket|gauge|counter)$", current)
            families[current] = (kind, {})
        else:
            match = LINE.fullmatch(line)
            assert match is not None, f"{line!r} is no sample"
            assert match[1] == current, f"{match[1]} stands under {current}"
            samples = families[current][1]
            assert (match[2] or "") not in samples, f"{line!r} stands there twice"
            samples[match[2] or ""] = float(match[3])
    return families


async def test_prometheus_gets_every_figure_with_help_and_type() -> None:
    answer = await ask(FakeNode(), "GET", "/metrics")
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert parse(answer.body.decode()) == {
        "dhtcrawl_pages_total": ("counter", {"": 7.0}),
        "dhtcrawl_members": ("gauge", {'{state="active"}': 2.0}),
        "dhtcrawl_uptime_seconds": ("gauge", {"": 1.5}),
    }


def test_samples_of_a_family_stand_together_in_whatever_order_they_come() -> None:
    text = render({'members{state="active"}': 2, "queued": 1, 'members{state="joining"}': 1})
    assert parse(text)["dhtcrawl_members"][1] == {'{state="active"}': 2.0, '{state="joining"}': 1.0}


@pytest.mark.parametrize(
    "name", ["", "Pages", "pages total", "pages{", "pages{a=b}", 'pages{a="\n"}', "pages\n# x", "7"]
)
def test_a_name_that_is_none_is_left_out(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert set(parse(render({name: 1, "queued": 2}))) == {"dhtcrawl_queued"}
    assert "is no name of a metric" in caplog.text


@given(
    st.dictionaries(
        st.from_regex(r'[a-z]{1,3}(_total)?(\{[a-z]="[^"\\\n]{0,3}"\})?', fullmatch=True) | st.text(max_size=8),
        st.floats() | st.integers(-(2**70), 2**70) | st.booleans(),
        max_size=8,
    )
)
def test_whatever_the_figures_the_page_can_be_read(figures: dict[str, float]) -> None:
    text = render(figures)
    assert text.isprintable() or "\n" in text
    for line in text.split("\n"):
        assert not line or line.startswith("# ") or LINE.fullmatch(line), line


def page() -> str:
    return resources.files("dhtcrawl.web").joinpath("dashboard.html").read_text("utf-8")


async def test_the_dashboard_needs_nothing_from_elsewhere() -> None:
    answer = await ask(FakeNode(), "GET", "/")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.body.decode() == page()
    assert not re.search(r"https?://|//\w|@import|url\(|src=|<link (?!rel=\"icon\" href=\"data:)", page())


async def test_a_browser_runs_nothing_but_what_is_in_the_page() -> None:
    policy = (await ask(FakeNode(), "GET", "/")).headers["Content-Security-Policy"]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    # Attributes that the policy would forbid, and ways in which another machine's words could become markup.
    assert not re.search(r"\bon\w+=|style=|innerHTML|insertAdjacent|document\.write|eval\(", page())
