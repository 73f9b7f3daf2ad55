"""The pages over time as a picture, and in words for who does not see it. Pure."""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element

from dhtcrawl.export.report.markup import classed, element
from dhtcrawl.export.report.timeline import Timeline
from dhtcrawl.export.report.words import counted, duration, moment

HEIGHT: Final = 100
_ROUND: Final = re.compile(r" 0 (?:s|min|h)$")
_GAP: Final = 0.15  # of a bar's width


def chart(timeline: Timeline) -> Element:
    """A figure with a bar for each width of time. There is a page at least."""
    bars = timeline.bars()
    most = max(bar.pages for bar in bars)
    width = _ROUND.sub("", duration(timeline.width_s).replace(".0 s", " s"))
    first, last = moment(bars[0].since), moment(bars[-1].since + timeline.width_s)
    said = f"From {first} to {last} UTC, {counted(most, 'page', 'pages')} in {width} at most."
    drawn = [
        element(
            "rect",
            attributes={
                "x": f"{number + _GAP / 2:.2f}",
                "width": f"{1 - _GAP:.2f}",
                "y": f"{HEIGHT - HEIGHT * bar.pages / most:.2f}",
                "height": f"{HEIGHT * bar.pages / most:.2f}",
            },
        )
        for number, bar in enumerate(bars)
        if bar.pages
    ]
    box = {"viewBox": f"0 0 {len(bars)} {HEIGHT}", "preserveAspectRatio": "none", "role": "img", "aria-label": said}
    return element(
        "figure",
        element("svg", *drawn, attributes=box | {"class": "bars"}),
        classed("div", "axis", element("span", first), element("span", last)),
        element("figcaption", f"A bar is {width}; the highest has {counted(most, 'page', 'pages')}. Times are UTC."),
    )
