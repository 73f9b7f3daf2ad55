"""The token of a node's admin port: a line in a file that only its owner can read.

Whoever reaches the port may command the node, so beyond loopback the node answers only who sends its token. The file
says it to both ends: to the node, and to the commands that ask it. It is on no command line and in no variable, which
other users of the machine could see, and is never printed.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from dhtcrawl.config import Config
from dhtcrawl.errors import AdminRefused

_SETTING: Final = "node.admin_token_file"
_BYTES: Final = 32  # of chance in a token that we make
_READ_MAX: Final = 4_096
# As RFC 6750 has it in a header; so long that guessing it takes for ever.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{20,512}=*")


def make_missing_token(config: Config) -> Path | None:
    """Make the file that the settings name, with a new token, where there is none; return it if it was made.

    Raises:
        UsageError, ConfigError: it cannot be written; by whether an option named it.
    """
    path = Path(config.node.admin_token_file)
    if not config.node.admin_token_file:
        return None
    try:
        if path.exists():
            return None
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_BYTES) + "\n")
    except FileExistsError:
        return None  # another process was quicker
    except OSError as error:
        raise config.refusal(
            _SETTING,
            f" {path}: cannot be made ({error.strerror}); write a token there, as 'openssl rand -hex 32' makes one, "
            "or name another file",
        ) from error
    return path


def token_of(config: Config) -> str:
    """The token in the file that the settings name; "" where they name none.

    Raises:
        UsageError, ConfigError: there is no token in it, or it cannot be read; by whether an option named it.
        AdminRefused: others can read it.
    """
    if not config.node.admin_token_file:
        return ""
    path = Path(config.node.admin_token_file)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_READ_MAX).decode("latin-1").strip()
    except OSError as error:
        raise config.refusal(_SETTING, f" {path}: cannot be read ({error.strerror}); check the path") from error
    if mode & 0o077:
        raise AdminRefused(f"{path} can be read by others; run: chmod 600 {path}")
    if not _TOKEN.fullmatch(text):
        raise config.refusal(
            _SETTING,
            f" {path}: holds no token, which is one line of 20 letters and digits or more; "
            "remove it, and 'dhtcrawl join' makes one",
        )
    return text
