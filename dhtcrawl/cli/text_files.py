"""Files that people write."""

from __future__ import annotations

from pathlib import Path

from dhtcrawl.errors import ConfigError


def text_of(path: Path, bytes_max: int) -> str:
    """The text of a file in UTF-8.

    Raises:
        ConfigError: it cannot be read, is no UTF-8, or larger than that.
    """
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise ConfigError(f"{path} is larger than {bytes_max >> 10} KiB; use several files")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, at byte {error.start}; save it as UTF-8") from error
