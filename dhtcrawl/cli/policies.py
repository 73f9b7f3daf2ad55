"""`dhtcrawl policies`: what may stand behind `--policy` on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from dhtcrawl.cli.main import json_text
from dhtcrawl.cli.options import json_option
from dhtcrawl.cli.table import columns_there, wrapped
from dhtcrawl.errors import Exit
from dhtcrawl.policy.registry import OURS, PolicyDescription, describe, names

GAP = "  "


@click.command("policies")
@json_option
def command(as_json: bool) -> int:
    """The policies that say which node fetches a task: ours, and those of installed packages."""
    found = [describe(name) for name in names()]
    rows = [asdict(each) for each in found]
    click.echo(json_text(rows) if as_json else in_words(found, columns_there()))
    return Exit.COMPLETE


def in_words(policies: Sequence[PolicyDescription], width: int) -> str:
    """Each policy behind its name: what it does, who plans and what it needs, and its options."""
    label = max(len(each.name) for each in policies)
    lines = []
    for each in policies:
        heads = [each.name.ljust(label) + GAP, " " * label + GAP, " " * label + GAP]
        lines += [wrapped(head, text, width) for head, text in zip(heads, _said(each), strict=False) if text]
    return "\n".join(lines)


def _said(policy: PolicyDescription) -> list[str]:
    if policy.problem:
        return [policy.problem]
    missing = f" (not installed here: {', '.join(policy.missing)})" if policy.missing else ""
    told = [
        "planned by the coordinator" if policy.planned_by == "coordinator" else "planned by each owner",
        f"needs {', '.join(policy.needs) or 'nothing'}{missing}",
    ]
    if policy.name not in OURS:
        told.append(f"from {policy.source}")
    return [policy.about or "says nothing of itself", "; ".join(told), ", ".join(map(_option, policy.options.items()))]


def _option(option: tuple[str, Sequence[str]]) -> str:
    name, values = option
    if not values:
        return f"{name}=… (not set by default)"
    others = f" (or {', '.join(values[1:])})" if values[1:] else ""
    return f"{name}={values[0]}{others}"
