"""The `dhtcrawl` command: subcommands, errors in one line, exit codes."""

from __future__ import annotations

import atexit
import codecs
import errno
import gc
import io
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import ClassVar, NoReturn, TextIO

import click

from dhtcrawl import __version__
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.errors import DhtcrawlError, Exit, first_of
from dhtcrawl.loop_state import check_loop_state


class _Commands(click.Group):
    """Imports a command's module when it is used: `dhtcrawl --help` needs no LevelDB."""

    modules: ClassVar = {
        "crawl": "dhtcrawl.cli.crawl",
        "join": "dhtcrawl.cli.join",
        "submit": "dhtcrawl.cli.submit",
        "status": "dhtcrawl.cli.look:status",
        "peers": "dhtcrawl.cli.look:peers",
        "crawls": "dhtcrawl.cli.look:crawls",
        "gather": "dhtcrawl.cli.gather_command",
        "pause": "dhtcrawl.cli.control:pause",
        "resume": "dhtcrawl.cli.control:resume",
        "stop": "dhtcrawl.cli.control:stop",
        "leave": "dhtcrawl.cli.control:leave",
        "locate": "dhtcrawl.cli.look:locate",
        "why": "dhtcrawl.cli.why",
        "explain-host": "dhtcrawl.cli.look:explain_host",
        "expand": "dhtcrawl.cli.expand",
        "try-rules": "dhtcrawl.cli.try_rules",
        "extract": "dhtcrawl.cli.extract",
        "policies": "dhtcrawl.cli.policies",
        "export": "dhtcrawl.cli.export",
        "report": "dhtcrawl.cli.report",
        "verify": "dhtcrawl.cli.verify",
        "fsck": "dhtcrawl.cli.fsck",
        "forget": "dhtcrawl.cli.forget",
        "config": "dhtcrawl.cli.config",
        "secret": "dhtcrawl.cli.secret",
        "ban": "dhtcrawl.cli.secret:ban",
        "init": "dhtcrawl.cli.init",
        "sim": "dhtcrawl.cli.sim",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # A node that is told to stop has nothing to hand over before its module is there, either.
        with nothing_held() if args[:1] == ["join"] else nullcontext():
            return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        import importlib

        if cmd_name == "sim":
            check_loop_state()  # before the classes that it checks are imported
        module, _, name = self.modules[cmd_name].partition(":")
        with _no_certificates(), _no_collections():
            command: click.Command = getattr(importlib.import_module(module), name or "command")
        return command


@contextmanager
def _no_certificates() -> Iterator[None]:
    """Spare what is imported the system's certificates.

    aiohttp reads them, twice, when it is imported: an eighth of what a crawl of one page costs. The crawler's client
    reads them itself when it first asks by https (`fetch/reply_handler.py`), and nothing else here asks by https; what
    did after all would trust nobody.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # OpenSSL's
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Look for no cycles while modules are imported: what they make stays, so that later nobody need look at it."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # or the next object would have all of it looked at
        if before:
            gc.enable()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dhtcrawl")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A web crawler without a master.

    `dhtcrawl crawl URL` crawls a site from this machine and writes WARC,
    CDXJ and JSONL files. `dhtcrawl join` runs a node of a swarm, and
    `dhtcrawl submit URL` gives the swarm a crawl.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        ctx.color = False  # of each command; click itself looks at the terminal only. See no-color.org


def fail(message: str) -> None:
    """Print one line about what went wrong on stderr, unless it is closed."""
    STDERR.message(message, "error")


def tell(message: str) -> None:
    """Print one line on stderr that answers the user, such as one to Ctrl-C: `-q` does not hide it."""
    STDERR.message(message, "info")


@contextmanager
def nothing_held() -> Iterator[None]:
    """A signal to a node in this block ends its process with 0: it has not begun, and there is nothing to hand over."""
    try:
        with _plain_interrupts():
            yield
    except KeyboardInterrupt:
        tell("stopped before this node joined")
        sys.exit(Exit.COMPLETE)


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """A signal is a KeyboardInterrupt, also one that comes while a class is made, as modules are imported.

    Up to Python 3.11 that raises another error in its place.
    """
    try:
        yield
    except KeyboardInterrupt:
        # Where it has left an `exec`, such as that by which `dataclasses` makes methods, `python -m` ends with SIGINT,
        # whatever becomes of it, unless another `exec` is run.
        exec("")
        raise
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise


def json_text(value: object) -> str:
    """A line of JSON for stdout: in Unicode where that takes UTF-8, else in ASCII, which is JSON in any encoding."""
    in_utf_8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    return json.dumps(value, ensure_ascii=not in_utf_8)


def say(text: str) -> None:
    """A line to stdout of a command that goes on, also without a reader."""
    try:
        click.echo(text)
    except BrokenPipeError:
        _to_nobody(sys.stdout)


def print_result(text: str, *, otherwise: str = "the summary is in summary.json") -> None:
    """What came of a crawl, to stdout; a crawl that went well does not fail for want of a reader.

    `otherwise` says where else that is: the same command again would be another crawl, or have nothing to do.
    """
    try:
        click.echo(text)
    except OSError as error:
        fail(f"cannot write to standard output: {error.strerror}; {otherwise}")


def run(args: list[str] | None = None) -> int:
    """Run a command line; the exit status."""
    return outcome(lambda: cli.main(args=args, prog_name="dhtcrawl", standalone_mode=False))


def outcome(command: Callable[[], object]) -> int:
    """The exit status of what `command` does; what goes wrong is told in one line."""
    STDERR.reset()
    try:
        result = _ungrouped(command)
        return int(result) if isinstance(result, int) else Exit.COMPLETE
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return Exit.USAGE
    except click.UsageError as error:
        where = f"{error.ctx.command_path} --help" if error.ctx is not None else "dhtcrawl --help"
        fail(f"{error.format_message().rstrip('.')}; see '{where}'")
        return Exit.USAGE
    except click.ClickException as error:
        fail(error.format_message())
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted")
        return Exit.INTERRUPTED
    except DhtcrawlError as error:
        fail(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has closed it; there is nothing to tell.
        _to_nobody(sys.stdout)
        return Exit.FAILURE
    except Exception as error:
        return _unexpected(error)


def _ungrouped(command: Callable[[], object]) -> object:
    """What `command` returns; it raises of a group, as groups of tasks raise one, the error that explains it."""
    try:
        with _plain_interrupts():
            return command()
    except BaseExceptionGroup as group:
        raise first_of(group) from group


def _unexpected(error: Exception) -> int:
    """Tell an error that no command expects: a bug, unless the system does not let us print, or use a path."""
    if isinstance(error, OSError) and _is_of_output(error):
        from dhtcrawl.storage.store.engine import storage_error  # needs LevelDB

        told = storage_error(error, "cannot write to standard output")
        fail(str(told))
        return told.exit_code
    log = logging.getLogger("dhtcrawl")
    if log.isEnabledFor(logging.DEBUG):
        log.debug("unexpected", exc_info=error)
    if isinstance(error, OSError) and error.errno in _REMEDIES and error.filename is not None:
        fail(f"{os.fsdecode(error.filename)}: {str(error.strerror).lower()}; {_REMEDIES[error.errno]}")
        return Exit.FAILURE
    fail(
        f"unexpected {type(error).__name__}: {error}; this is a bug: please report it "
        "with the output of the same command and --log-level debug"
    )
    return Exit.FAILURE


_REMEDIES = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "run the command as a user who may, or check its owner and mode"
    ),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP), "give another name"),
}


def _is_of_output(error: OSError) -> bool:
    """Whether `click.echo` itself has raised it: what it calls to write is no Python, and has no frame."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code is click.echo.__code__ and not frame.f_locals["err"]


# By default Python looks for cycles each time that 700 more objects were made than freed. Tasks, records and links are
# freed by their counts: over a crawl of five nodes a twentieth of the CPU went into collections that found next to
# nothing.
NEW_OBJECTS_A_COLLECTION = 20_000


def main(command: Callable[[], int] = run) -> NoReturn:
    """The console script, and what a process does in its place: exit with the status that `command` returns."""
    _open_streams()
    gc.set_threshold(NEW_OBJECTS_A_COLLECTION)
    # Until a command handles it better, SIGTERM is what Ctrl-C is, whose handler was another one up to here.
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit.register(_heed_no_signal)
    code = command()
    STDERR.clear()
    _let_go_of_streams()
    sys.exit(code)


def _as_ctrl_c(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now: in an event loop what runs is cancelled, and nothing is raised in the middle of it."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)


def _heed_no_signal() -> None:
    """Keep the exit code from a signal that comes while Python takes itself down, when no handler is called."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _open_streams() -> None:
    """Put the null device in the place of streams that are closed, lest a file or socket of ours become one of them.

    Standard output takes any text from then on.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, mode, closefd=False))
    # As stderr does: a name of a file may be no Unicode, and a terminal may lack a character of ours.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _let_go_of_streams() -> None:
    """Write what is buffered; where stdout is closed, drop it, or Python's exit code 120 would hide ours."""
    for stream in (sys.stdout, sys.stderr):
        if stream.closed:
            continue  # a command could not write what it had, and has said so
        try:
            stream.flush()
        except OSError:
            _to_nobody(stream)


def _to_nobody(stream: TextIO) -> None:
    """What is written to a stream from here on, and what it still holds, is dropped."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
