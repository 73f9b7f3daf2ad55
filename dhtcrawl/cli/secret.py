"""`dhtcrawl secret`: make a swarm's secret, look at it, and put another in its place while the swarm runs."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

import click

from dhtcrawl.cli.main import tell
from dhtcrawl.cli.secret_file import STDIN, ring_in, write_secrets
from dhtcrawl.closed.secret import SECRET_BYTES, Ring, parse_ring, secret_text
from dhtcrawl.errors import Exit, UsageError

# What a file says of how far its rotation is, so that no step is done twice.
_MARK: Final = "# rotation: "
_MARKED: Final = re.compile(rf"^{_MARK}(\w+)$", re.MULTILINE)
# And of who was banned since it began, who may have been given the new secret.
_BANNED_SINCE: Final = re.compile(rf"^{_MARK}banned ([0-9a-f]{{40}})$", re.MULTILINE)
# The step that a file is at → the one that comes next.
_NEXT: Final = {"": "accept", "accept": "use", "use": "drop"}
_NODE: Final = re.compile("[0-9a-fA-F]{40}")
_DONE: Final = {
    "accept": "a new secret, {new}, is accepted beside {old}. Copy the file to every node; then: use",
    "use": "the new secret, {new}, is used, and {old} is still accepted. Copy the file to every node; then, when "
    "'dhtcrawl status' shows no node that uses {old}, and none as unknown: drop",
    "drop": "{old} is accepted no more, {new} is the only secret. Copy the file to every node",
}


@click.group("secret")
def command() -> None:
    """Make, check or replace the secret that the members of a swarm share."""


@command.command("new")
@click.argument("file")
def new(file: str) -> int:
    """Make a secret and write it to FILE, which only you can read; to standard output where FILE is -."""
    secret = secrets.token_bytes(SECRET_BYTES)
    text = f"{secret_text(secret)}\n"
    if file == STDIN:
        click.echo(text, nl=False)
        return Exit.COMPLETE
    write_secrets(Path(file), text, anew=True)
    click.echo(f"{file}: a new secret, {Ring.of((secret,)).used.name}")
    return Exit.COMPLETE


@command.command("check")
@click.argument("file")
def check(file: str) -> int:
    """Check FILE, - for standard input, and say by their names which secrets are used and accepted."""
    ring, _ = ring_in(file)
    for number, keys in enumerate(ring.keys):
        click.echo(f"{keys.name}  {'accepted' if number else 'used, and accepted'}")
    return Exit.COMPLETE


@command.command("rotate")
@click.argument("file")
@click.argument("step", type=click.Choice(["accept", "use", "drop"]))
def rotate(file: str, step: str) -> int:
    """Put another secret in the place of the one in FILE, in three steps, while the swarm runs.

    accept: FILE gets a new secret beside the one that is used. use: the new one
    is used, the old one still accepted. drop: the old one is accepted no more.
    After each step every node gets the file before the next one begins.
    """
    ring, text = ring_in(file)
    if file == STDIN:
        raise UsageError("secret rotate: standard input cannot be changed; name a file")
    at, since = _progress(text)
    expected = _NEXT.get(at, "")
    if len(ring.secrets) != (1 if at == "" else 2) or not expected:
        raise UsageError(
            f"{file}: it is not as 'secret rotate' writes it ({len(ring.secrets)} secrets); "
            "leave the one that is used alone in it, and begin with: accept"
        )
    if step != expected:
        raise UsageError(f"{file}: its next step is '{expected}', not '{step}'")
    if step == "accept":
        old, changed = ring.secrets[0], secrets.token_bytes(SECRET_BYTES)
        after = Ring.of((old, changed), ring.banned)
    elif step == "use":
        old, changed = ring.secrets
        after = Ring.of((changed, old), ring.banned)
    else:
        changed, old = ring.secrets
        after = Ring.of((changed,), since)  # who was banned before does not have it
    write_secrets(Path(file), ("" if step == "drop" else _marks(step, since)) + after.text(), anew=False)
    names = {"old": Ring.of((old,)).used.name, "new": Ring.of((changed,)).used.name}
    stay = "; who was banned since the rotation began stays so" if step == "drop" and since else ""
    tell(f"{file}: {_DONE[step].format(**names)}{stay}")
    return Exit.COMPLETE


@click.command("ban")
@click.argument("node")
@click.option("--secret-file", "secret_file", metavar="FILE", required=True, help="The swarm's secret.")
@click.option("--lift", is_flag=True, help="Let the node in again.")
def ban(node: str, secret_file: str, lift: bool) -> int:
    """Put NODE, a node id of 40 hex digits, out of a closed swarm.

    FILE says from then on that no member listens to it; every node gets the
    file. Who has the secret can come back under another id: only another
    secret ends that ('dhtcrawl secret rotate').
    """
    if not _NODE.fullmatch(node):
        raise UsageError(f"{node[:80]!r} is no node id; 'dhtcrawl peers --json' has the ids, of 40 hex digits")
    ring, text = ring_in(secret_file)
    if secret_file == STDIN:
        raise UsageError("ban: standard input cannot be changed; name a file")
    node_id = bytes.fromhex(node)
    if lift and node_id not in ring.banned:
        raise UsageError(f"{secret_file}: {node} is not banned there; its lines that begin with 'ban' name who is")
    banned = ring.banned - {node_id} if lift else ring.banned | {node_id}
    at, since = _progress(text)
    since = (since | (banned - ring.banned)) & banned
    after = Ring.of(ring.secrets, banned).text()
    parse_ring(after, secret_file)  # or no node could read it, nor any command
    write_secrets(Path(secret_file), _marks(at, since) + after, anew=False)
    tell(f"{secret_file}: {node} is {'let in again' if lift else 'banned'}. Copy the file to every other node")
    return Exit.COMPLETE


def _progress(text: str) -> tuple[str, frozenset[bytes]]:
    """How far the rotation of a file is, "" where there is none, and who was banned since it began."""
    marks = _MARKED.findall(text)
    return (marks[0] if marks else ""), frozenset(map(bytes.fromhex, _BANNED_SINCE.findall(text)))


def _marks(step: str, since: frozenset[bytes]) -> str:
    """The lines of which `_progress` reads this; none without a rotation."""
    if not step:
        return ""
    return "".join(f"{_MARK}{said}\n" for said in (step, *(f"banned {node.hex()}" for node in sorted(since))))
