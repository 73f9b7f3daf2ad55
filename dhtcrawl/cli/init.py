"""`dhtcrawl init`: the files that a machine needs to run a node as a service."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from secrets import token_bytes
from typing import Any

import click

from dhtcrawl.cli.addresses import join_options_of
from dhtcrawl.cli.admin_token import make_missing_token
from dhtcrawl.cli.main import tell
from dhtcrawl.cli.options import config_options, join_options, load_config, node_options
from dhtcrawl.cli.secret_file import STDIN, write_secrets
from dhtcrawl.cli.service_unit import service_unit
from dhtcrawl.cli.settings_file import settings_file
from dhtcrawl.cli.swarm_secret import NodeSecrets, secrets_of
from dhtcrawl.closed.secret import SECRET_BYTES, parse_ring, secret_text
from dhtcrawl.config import Config, changed
from dhtcrawl.errors import UsageError
from dhtcrawl.units import format_address, is_loopback

SETTINGS, UNIT, SECRET = "dhtcrawl.toml", "dhtcrawl.service", "secret"
DATA_DIR = "/var/lib/dhtcrawl"
_PATHS = ("node.data_dir", "node.admin_token_file", "node.admin_cert", "node.admin_key", "node.secret_file")


@click.command("init")
@click.argument("directory", default="/etc/dhtcrawl")
@click.option("--user", default="dhtcrawl", show_default=True, metavar="NAME", help="Who runs the node.")
@join_options
@node_options
@config_options
def command(directory: str, user: str, **options: Any) -> None:
    """Write DIRECTORY/dhtcrawl.toml, with every setting, a systemd unit, and a secret.

    The options of join become settings. No secret is made with --secret-file or
    --open-swarm. Nothing that is there is overwritten.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", user):
        raise UsageError(f"--user {user} is no name of a user; use lower-case letters, digits, - and _")
    config = load_config(options)
    if config.node.secret_file == STDIN:
        raise config.refusal("node.secret_file", " -: a service has no standard input; name a file")
    where = Path(directory).absolute()
    chosen = {"node.data_dir": DATA_DIR} | changed(config)
    for key in _PATHS:
        if chosen.get(key):
            chosen[key] = str(Path(str(chosen[key])).absolute())
    data_dir = Path(str(chosen["node.data_dir"]))
    secrets, secret = secrets_of(config, {}, data_dir), ""
    if secrets is None and not config.node.open_swarm:
        secret = f"{secret_text(token_bytes(SECRET_BYTES))}\n"
        secrets = NodeSecrets(parse_ring(secret, SECRET), str(where / SECRET))
        chosen["node.secret_file"] = secrets.file
    join = join_options_of(config, secrets=secrets)  # which refuses what `join` would
    named = [str(chosen.get(key) or "") for key in _PATHS]
    unit = service_unit(_executable(), where / SETTINGS, data_dir, user, [Path(file) for file in named if file])
    texts = {SETTINGS: settings_file(chosen), UNIT: unit}
    token = _write(where, texts, secret, config)
    for path in (*(where / name for name in (*texts, *([SECRET] if secret else []))), *([token] if token else [])):
        tell(f"wrote {path.absolute()}")
    others = [address for address in join.bootstrap if not is_loopback(address[0])]
    if secret and others:
        tell(
            f"the secret is a new one, and {format_address(others[0])} has its own: "
            f"copy that over {where / SECRET} before you go on"
        )
    own = [secrets.file if secrets else "", *(chosen.get(key, "") for key in ("node.admin_token_file", _key(config)))]
    click.echo("\n".join(_next_steps(where, user, [str(file) for file in own if file])))


def _key(config: Config) -> str:
    """The setting that names the file with the admin port's private key."""
    return "node.admin_key" if config.node.admin_key else "node.admin_cert"


def _next_steps(where: Path, user: str, own: list[str]) -> list[str]:
    """What to run, as root; the files in `own` may be read by nobody but the node."""
    steps = [f"useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin {user}"]
    if own:
        steps.append(f"chown {user}: {' '.join(map(shlex.quote, dict.fromkeys(own)))}")
    return [*steps, f"systemctl enable --now {shlex.quote(str(where / UNIT))}"]


def _executable() -> Path:
    """The command that runs now, as a path that works from anywhere.

    Raises:
        UsageError: it is not installed.
    """
    found = shutil.which(sys.argv[0]) or shutil.which("dhtcrawl", path=str(Path(sys.executable).parent))
    if found is None:
        raise UsageError("init: the dhtcrawl command is in no directory of PATH; name it by its whole path")
    return Path(found).absolute()


def _write(where: Path, texts: Mapping[str, str], secret: str, config: Config) -> Path | None:
    """Write the files, and a token for the admin port where one is missing; the token's path if it was made."""
    try:
        made = not where.is_dir()
        where.mkdir(parents=True, exist_ok=True)
        if made:
            where.chmod(0o755)  # root's umask may keep others out, and one of them is the node's user
    except OSError as error:
        raise UsageError(f"{where}: cannot be made ({error.strerror}); name another directory") from error
    there = next((where / name for name in (*texts, *([SECRET] if secret else [])) if (where / name).exists()), None)
    if there is not None:
        remedy = f"take it with --secret-file {there}" if there.name == SECRET else "move it away"
        raise UsageError(f"{there} is there already; {remedy}, or name another directory")
    token = make_missing_token(config)  # for the service may not write there
    if secret:
        write_secrets(where / SECRET, secret, anew=True)
    for name, text in texts.items():
        try:
            (where / name).write_text(text, "utf-8")
            (where / name).chmod(0o644)  # nothing in them is secret
        except OSError as error:
            raise UsageError(f"{where / name}: cannot be written ({error.strerror}); run it as root") from error
    return token
