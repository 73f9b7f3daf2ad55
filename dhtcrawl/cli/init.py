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
from dhtcrawl.cli.main import tell
from dhtcrawl.cli.options import config_options, join_options, load_config, node_options
from dhtcrawl.cli.secret_file import write_secrets
from dhtcrawl.cli.service_unit import service_unit
from dhtcrawl.cli.settings_file import settings_file
from dhtcrawl.cli.swarm_secret import NodeSecrets, secrets_of
from dhtcrawl.closed.secret import SECRET_BYTES, parse_ring, secret_text
from dhtcrawl.config import changed
from dhtcrawl.errors import UsageError

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
    join_options_of(config, secrets=secrets)  # which refuses what `join` would
    unit = service_unit(_executable(), where / SETTINGS, data_dir, user)
    texts = {SETTINGS: settings_file(chosen), UNIT: unit}
    _write(where, texts, secret)
    for name in (*texts, *([SECRET] if secret else [])):
        tell(f"wrote {where / name}")
    click.echo("\n".join(_next_steps(where, user, secrets)))


def _next_steps(where: Path, user: str, secrets: NodeSecrets | None) -> list[str]:
    steps = [f"useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin {user}"]
    if secrets is not None:
        steps.append(f"chown {user}: {shlex.quote(secrets.file)}")
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


def _write(where: Path, texts: Mapping[str, str], secret: str) -> None:
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{where}: cannot be made ({error.strerror}); name another directory") from error
    there = next((where / name for name in (*texts, *([SECRET] if secret else [])) if (where / name).exists()), None)
    if there is not None:
        raise UsageError(f"{there} is there already; move it away, or name another directory")
    if secret:
        write_secrets(where / SECRET, secret, anew=True)
    for name, text in texts.items():
        try:
            (where / name).write_text(text, "utf-8")
        except OSError as error:
            raise UsageError(f"{where / name}: cannot be written ({error.strerror}); run it as root") from error
