"""The systemd unit of a node: its own user, which may write its data and nothing else; readiness, watchdog, a stop."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

FILES_MAX: Final = 65_536

# Why what is not obvious: 2 is tried again, as there are no options that could be wrong, and an address may be taken or
# not this machine's yet, or a person looks into the store; MemoryDenyWriteExecute, as nothing here makes code at run
# time; AF_NETLINK, by which the C library sees which families this machine has; no ProcSubset=pid, as the node looks at
# the machine's memory in /proc.
_UNIT: Final = """\
# Made by 'dhtcrawl init'.
[Unit]
Description=A node of a dhtcrawl swarm
Wants=network-online.target
After=network-online.target time-sync.target nss-lookup.target

[Service]
# Ready once the node takes part in the swarm; it asks for more time while it copies records, and while it hands over.
Type=notify
NotifyAccess=main
ExecStart={command} join --config {config}
User={user}
Group={user}
WorkingDirectory={working}
# SIGTERM has it hand over what it holds; only when it has not said for a minute that it still does is it killed.
KillMode=mixed
TimeoutStartSec=120
TimeoutStopSec=120
WatchdogSec=120
Restart=on-failure
RestartSec=10
# Wrong settings, refused secrets: the same again would end the same way.
RestartPreventExitStatus=4 32
{state}
ReadWritePaths={data_dir}
LimitNOFILE={files}
TasksMax=512
UMask=0077

ProtectSystem=strict
ProtectHome={home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources @obsolete
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
_STATE_HOME: Final = Path("/var/lib")
_HOMES: Final = (Path("/home"), Path("/root"))


def service_unit(command: Path, config: Path, data_dir: Path, user: str, files: Iterable[Path] = ()) -> str:
    """The unit that runs a node with these settings, which name these `files`; all paths are absolute."""
    own = data_dir.parent == _STATE_HOME
    in_home = any(path.is_relative_to(home) for path in (command, config, data_dir, *files) for home in _HOMES)
    return _UNIT.format(
        command=_word(command),
        # Elsewhere than in the arguments of a command a `$` stands for itself.
        config=_word(config).replace("$", "$$"),
        working=str(data_dir).replace("%", "%%"),  # here quotes would stand for themselves
        data_dir=_word(data_dir),
        user=user,
        # systemd makes it and gives it to the user.
        state=f"StateDirectory={_word(Path(data_dir.name))}\nStateDirectoryMode=0700"
        if own
        else "# Its directory has to be there:",
        files=FILES_MAX,
        home="read-only" if in_home else "yes",
    )


def _word(path: Path) -> str:
    """A path as one word of a unit (systemd.service(5), "Command lines")."""
    text = str(path).replace("%", "%%")
    if text.isascii() and not set(text) & set(" \t\"'\\$;"):
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'
