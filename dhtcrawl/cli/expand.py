"""`dhtcrawl expand FILE`: the actual tasks of a file of task templates."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dhtcrawl.cli.main import fail
from dhtcrawl.errors import ConfigError, Exit
from dhtcrawl.templates.expand import Skipped, count, expand
from dhtcrawl.templates.template_file import TemplateFile, read

FILE_BYTES_MAX = 64 << 20


@click.command("expand")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--count", "only_count", is_flag=True, help="Print only how many tasks there are.")
def command(file: Path, only_count: bool) -> int:
    """Print the actual tasks of the task templates in FILE (TOML), one JSON object a line.

    Each has the URL of a page of results, and what it is for. Nothing is fetched.
    """
    template, words = read_template(file)
    if only_count:
        click.echo(count(template))
        return Exit.COMPLETE
    too_long = 0
    for task in expand(template, words):
        if isinstance(task, Skipped):
            too_long += 1
        else:
            click.echo(json.dumps(task._asdict(), ensure_ascii=False))
    if too_long:
        fail(f"{file}: tasks without a URL, as it would be too long: {too_long}; shorten their keywords")
        return Exit.CONFIG
    return Exit.COMPLETE


def read_template(path: Path) -> tuple[TemplateFile, list[str]]:
    """A file of task templates, and the words of the file that it names.

    Raises:
        ConfigError: a file cannot be read, or says what makes no sense.
    """
    template = read(str(path), _text_of(path))
    if not template.words_file:
        return template, []
    words = _text_of(path.parent / template.words_file)
    return template, [word for line in words.splitlines() if (word := line.strip()) and not word.startswith("#")]


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB; use several files")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, at byte {error.start}; save it as UTF-8") from error
