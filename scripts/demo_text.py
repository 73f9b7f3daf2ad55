"""Words and looks for the demo site: titles, paragraphs, a style sheet."""

from __future__ import annotations

import random
from itertools import product

STYLE = (
    ":root{color-scheme:light dark}body{font:17px/1.6 Georgia,serif;max-width:42rem;margin:2rem auto;padding:0 1rem}"
    "header{border-bottom:3px double;padding-bottom:.6rem}header>a{font-size:1.5rem;text-decoration:none;display:block}"
    "nav a{margin-right:.9rem}h1{line-height:1.2}a{color:#0b6e75}footer{border-top:1px solid;margin-top:3rem;"
    "padding-top:.6rem;font-size:.85rem;opacity:.75}@media(prefers-color-scheme:dark){a{color:#6fd3d8}}"
)

_THINGS = ("Lighthouse", "Ferry", "Beehive", "Sourdough", "Fog", "Moss", "Kite", "Rope", "Lantern", "Pear Tree", "Map")
_ANGLES = (
    "A Short History of the {}",
    "How to Mend a {}",
    "The {} in Winter",
    "What the {} Taught Us",
    "Questions about the {}",
    "The Last {} on the Island",
    "In Praise of the {}",
    "The {}, Explained to a Child",
    "A {} of One's Own",
)
_WHO = ("The keeper", "My neighbour", "An old sailor", "The schoolteacher", "Nobody here", "Everyone in the village")
_DID = ("remembers", "wrote down", "never quite believed", "likes to tell", "has measured", "still argues about")
_WHAT = ("how the tide came in", "what the wind did to the roof", "why the bread rose", "where the path once went")
_WHEN = ("that spring", "in the year of the long frost", "before the bridge was built", "on the first clear night")


def titles(rng: random.Random, count: int) -> list[str]:
    """`count` different titles, at most 99."""
    all_of_them = [angle.format(thing) for angle, thing in product(_ANGLES, _THINGS)]
    return rng.sample(all_of_them, count)


def paragraphs(rng: random.Random, title: str) -> list[str]:
    """A few paragraphs of harmless prose."""
    first = f"“{title}” was first told at the harbour."
    return [first, *(" ".join(_sentence(rng) for _ in range(rng.randint(3, 6))) for _ in range(rng.randint(2, 5)))]


def _sentence(rng: random.Random) -> str:
    return f"{rng.choice(_WHO)} {rng.choice(_DID)} {rng.choice(_WHAT)} {rng.choice(_WHEN)}."
