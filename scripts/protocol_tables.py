"""Write the part of docs/protocol-calls.md that the table of calls says: names, fields, types, limits, lanes.

    python scripts/protocol_tables.py

What stands outside the two markers is written by hand.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any, Final

from dhtcrawl.rpc.tasks.schema import CallArgs, WireField, WireMap
from dhtcrawl.swarm.calls import CALLS, FRAMES

PAGE: Final = Path(__file__).parents[1] / "docs" / "protocol-calls.md"
BEGIN: Final = "<!-- made by scripts/protocol_tables.py -->"
END: Final = "<!-- end -->"


def updated(page: str) -> str:
    """The page with its tables as the code has them."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """All calls, then the frames that are none."""
    parts = [_section(call) for call in CALLS]
    frames = ", ".join(f"{_constant(frame.__name__)} (lane `{frame.lane.name.lower()}`)" for frame in FRAMES)
    parts.append(f"Frames of their own, described in [protocol-tasks.md](protocol-tasks.md#a-frame): {frames}.\n")
    return "\n".join(parts)


def _section(call: type[CallArgs[Any]]) -> str:
    terms, reply = call.terms, call.reply
    within = "30 s" if terms.timeout_s is None else f"{terms.timeout_s:g} s"
    said = inspect.cleandoc(call.__doc__ or "").replace("\n\n", " ").replace("\n", " ")
    lines = [
        f"### `{terms.name}`",
        "",
        *textwrap.wrap(f"{said} Lane `{terms.lane.name.lower()}`, {within}, {terms.reply_bytes_max:,} bytes.", 120),
        "",
        *_rows("argument", call),
        *_rows("answer", reply),
    ]
    return "\n".join(lines)


def _rows(what: str, kind: type[WireMap]) -> list[str]:
    fields = kind.wire_fields
    if not fields:
        name = "an empty map" if kind.__name__ == "Done" else "any fields, for people"
        return [f"The {what} is {name}.", ""]
    return [f"| {what} | type | |", "|---|---|---|", *map(_row, fields), ""]


def _row(field: WireField) -> str:
    says = field.kind.says.replace("|", "\\|")
    return f"| `{field.name}`{'' if field.required else ' (may be missing)'} | {says} | {field.note} |"


def _constant(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
