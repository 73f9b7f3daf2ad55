"""Whether docs/operations.md works word for word on an empty Debian: three machines, each with a node as a service.

    python scripts/try_debian.py bookworm trixie

For each suite debootstrap makes a tree with nothing but the base system. The commands of "A node as a service" are
read from the document and run in it, the ones that `dhtcrawl init` prints included. The tree is laid below three
machines, network namespaces on a bridge, as node1 to node3.example.org. No systemd runs there: in place of `systemctl
enable --now` the unit's own ExecStart is started, as its user and in the directories that systemd would make, and has
to say READY=1 on the socket that systemd would give it. Then each node has to know three members, and to end with 0 on
SIGTERM.

Needs root, debootstrap, a mirror of Debian, a package index for pip, and what `tests/e2e/netns.py` needs. stdout has a
line of JSON for each suite; the exit code is 0 when all of it was so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from e2e.netns import Hosts, Unavailable  # noqa: E402 - found on the path above
from ended import in_order  # noqa: E402

DOCUMENT = ROOT / "docs" / "operations.md"
SECTION = "## A node as a service"
# Python there is 3.13, for which one dependency has no wheel: the document has another first line for it.
BUILDS = ("trixie",)
MACHINES = ("node1", "node2", "node3")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NOTIFY = Path("run/notify")
WITHIN_S, LOOK_S = 120.0, 0.5


def blocks() -> list[str]:
    """The commands of the section, block by block."""
    text = DOCUMENT.read_text("utf-8").partition(f"\n{SECTION}\n")[2].partition("\n### ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def install_block(suite: str) -> str:
    """What installs the command on this suite."""
    block, first_line = blocks()[:2]
    return first_line + block.partition("\n")[2] if suite in BUILDS else block


def init_block(machine: str) -> str:
    """What makes a machine's settings; the document has it for the first two."""
    first, other = blocks()[2:4]
    return first if machine == MACHINES[0] else other.replace("node2", machine)


def run(argv: Sequence[object]) -> str:
    """What a command says.

    Raises:
        SystemExit: it failed.
    """
    done = subprocess.run(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"try_debian: {' '.join(map(str, argv))} ended with {done.returncode}")
    return done.stdout


def inside(tree: Path, wrapper: Sequence[str] = ()) -> list[str]:
    """What stands before a command that is to run in a tree, as root, as at its console."""
    clean = [
        "env",
        "-i",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LANG=C.UTF-8",
    ]
    clean.append("DEBIAN_FRONTEND=noninteractive")
    return [*wrapper, "chroot", str(tree), *clean]


def in_shell(tree: Path, block: str, wrapper: Sequence[str] = ()) -> str:
    """What a block of the document says, line by line, in the home of root."""
    print(f"try_debian: {block.strip()}", file=sys.stderr)
    return run([*inside(tree, wrapper), "sh", "-ec", f"cd /root\n{block}"])


def bootstrap(suite: str, tree: Path) -> None:
    """The base system of a suite, and what of this machine it needs to reach a mirror and an index."""
    if not (tree / "etc").exists():
        run(["debootstrap", "--variant=minbase", suite, tree])
    shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
    if CERTIFICATES.exists():
        certificates = tree / "root/certificates.crt"
        shutil.copy(CERTIFICATES, certificates)
        (tree / "etc/pip.conf").write_text("[global]\ncert = /root/certificates.crt\ntimeout = 180\n")


@contextmanager
def mounted(kind: str, source: str, target: Path, options: str = "") -> Iterator[None]:
    """A file system at a place, until the block is left."""
    target.mkdir(parents=True, exist_ok=True)
    run(["mount", "-t", kind, *(["-o", options] if options else []), source, target])
    try:
        yield
    finally:
        run(["umount", "-l", target])


@contextmanager
def machine(tree: Path, home: Path) -> Iterator[Path]:
    """A machine's own tree, with the given one below it."""
    for name in ("upper", "work", "root"):
        (home / name).mkdir(parents=True)
    own = home / "root"
    with ExitStack() as stack:
        layers = f"lowerdir={tree},upperdir={home / 'upper'},workdir={home / 'work'}"
        try:
            stack.enter_context(mounted("overlay", "overlay", own, layers))
        except SystemExit:  # where this kernel has no overlays, a copy will do
            run(["cp", "-a", f"{tree}/.", own])
        stack.enter_context(mounted("proc", "proc", own / "proc"))
        yield own


class Service:
    """A unit's own ExecStart, started as systemd would; ended when the block is left."""

    def __init__(self, tree: Path, wrapper: Sequence[str], unit: str) -> None:
        """Its state directory is made, and its notification socket is listened on."""
        facts = dict(re.findall(r"^(\w+)=(.+)$", unit, re.MULTILINE))
        user = facts["User"]
        run(
            [
                *inside(tree),
                "install",
                "-d",
                "-o",
                user,
                "-g",
                user,
                "-m",
                "0700",
                f"/var/lib/{facts['StateDirectory']}",
            ]
        )
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        (tree / NOTIFY).unlink(missing_ok=True)
        self._told.bind(str(tree / NOTIFY))
        (tree / NOTIFY).chmod(0o777)
        argv = [*inside(tree, wrapper), f"NOTIFY_SOCKET=/{NOTIFY}"]
        argv += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
        argv += ["sh", "-c", f"umask 077; cd {facts['WorkingDirectory']}; exec {facts['ExecStart']}"]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def ready(self) -> None:
        """Wait for READY=1.

        Raises:
            SystemExit: it ended, or did not say so in time.
        """
        until = time.monotonic() + WITHIN_S
        said = ""
        while "READY=1" not in said:
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"try_debian: a node is not ready, and said {said!r}; exit code {self.process.poll()}")
            try:
                said += self._told.recv(4096).decode()
            except BlockingIOError:
                time.sleep(LOOK_S)

    def stop(self) -> int:
        """SIGTERM, as systemd's stop; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(WITHIN_S)
        finally:
            self.end()

    def end(self) -> None:
        """Nothing of it runs any more."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._told.close()


def started(tree: Path, wrapper: Sequence[str], name: str, secret: Path | None) -> Service:
    """A machine's node, by the commands of the document and by those that `init` prints."""
    if secret is not None:
        (tree / "etc/dhtcrawl").mkdir()
        shutil.copy(secret, tree / "etc/dhtcrawl/secret")  # with its mode: its owner's alone
    *steps, enable = in_shell(tree, init_block(name), wrapper).splitlines()
    for step in steps:
        in_shell(tree, step, wrapper)
    unit = Path(enable.removeprefix("systemctl enable --now "))
    service = Service(tree, wrapper, (tree / unit.relative_to("/")).read_text())
    service.ready()
    return service


def peers(tree: Path, wrapper: Sequence[str]) -> list[dict[str, str]]:
    """Those that a machine's node knows, asked as anybody there may."""
    argv = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "dhtcrawl", "peers", "--json"]
    found: list[dict[str, str]] = json.loads(run([*inside(tree, wrapper), *argv]))
    return found


def tried(suite: str, wheel: Path, trees: Path, home: Path) -> dict[str, object]:
    """Install on one suite, start three machines, and stop them; `home` is an empty directory."""
    bootstrap(suite, trees / suite)
    with machine(trees / suite, home / "installed") as tree:
        shutil.copy(wheel, tree / "root")
        in_shell(tree, install_block(suite))
        version = run([*inside(tree), "dhtcrawl", "--version"]).strip()
        python = run([*inside(tree), "/opt/dhtcrawl/bin/python", "--version"]).strip()
        return {"suite": suite, "python": python, "version": version} | together(tree, home)


def together(tree: Path, home: Path) -> dict[str, object]:
    """Start three machines with this tree, and stop them."""
    with Hosts(MACHINES) as hosts, ExitStack() as stack:
        names = "".join(f"{hosts.address(name)} {name}.example.org\n" for name in MACHINES)
        trees = {name: stack.enter_context(machine(tree, home / name)) for name in MACHINES}
        services: list[Service] = []
        secret = None
        for name, own in trees.items():
            (own / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
            services.append(started(own, hosts.wrapper(name), name, secret))
            stack.callback(services[-1].end)
            secret = trees[MACHINES[0]] / "etc/dhtcrawl/secret"
        until = time.monotonic() + WITHIN_S
        known = [0]
        while set(known) != {len(MACHINES)} and time.monotonic() < until:
            time.sleep(LOOK_S)
            told = [peers(own, hosts.wrapper(name)) for name, own in trees.items()]
            known = [sum(peer["state"] == "active" for peer in some) for some in told]
        ended = [service.stop() for service in services]
    good = set(known) == {len(MACHINES)} and not any(ended)
    return {"members": known, "exit_codes": ended, "ok": good}


def main() -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description="Follows docs/operations.md word for word on empty Debian systems.")
    parser.add_argument("suite", nargs="+", help="such as bookworm or trixie")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="instead of one that is built for it")
    parser.add_argument(
        "--home", type=Path, metavar="DIR", help="where the empty systems are made, and kept for the next time"
    )
    args = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("try_debian: not tried: it needs root, and debootstrap", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="try-debian-") as temporary:
        home, wheel = Path(temporary), args.wheel
        if wheel is None:
            run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home / "dist"])
            wheel = next((home / "dist").glob("*.whl"))
        try:
            results = [tried(suite, wheel, args.home or home / "trees", home / suite) for suite in args.suite]
        except Unavailable as error:
            print(f"try_debian: not tried: {error}", file=sys.stderr)
            return 0
    for result in results:
        print(json.dumps(result))
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(in_order(main))
