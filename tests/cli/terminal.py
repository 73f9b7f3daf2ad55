"""What a person sees of what was written to a terminal."""

from __future__ import annotations


def on_screen(written: str) -> list[str]:
    """The rows of a terminal that knows `\\r`, `\\n` and "erase to the end of the line", and is wide enough."""
    rows, column = [""], 0
    for part in written.replace("\x1b[K", "\x00"):
        if part == "\n":
            rows.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x00":
            rows[-1] = rows[-1][:column]
        else:
            rows[-1] = rows[-1][:column] + part + rows[-1][column + 1 :]
            column += 1
    return rows
