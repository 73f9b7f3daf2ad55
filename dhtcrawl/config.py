"""Every setting, where its value came from, and what is wrong with it.

Precedence: flag > environment `DHTCRAWL_SECTION_KEY` > file (TOML) > default.
A flag is an option of a setting's own, such as `--delay`, or `--set`. A wrong
value of the first is wrong usage; one from anywhere else is bad configuration.
The sections are frozen dataclasses; a field's metadata says what it is for and
what a good value looks like. `docs/configuration.md` lists them all (a test
holds the two together).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from dhtcrawl.errors import ConfigError, DhtcrawlError, UsageError
from dhtcrawl.patterns import PatternRefused, Patterns
from dhtcrawl.units import INT_MAX, parse_address, parse_disk_limit, parse_duration, parse_networks, parse_size

UNLIMITED: Final = 0
PAIR_VALUE_CHARS_MAX: Final = 200

# Variables that name a file, switch on the debug mode (docs/development.md), and hold a secret, which no setting does.
_NO_SETTINGS = frozenset({"DHTCRAWL_CONFIG", "DHTCRAWL_CHECK_THREADS", "DHTCRAWL_SECRET"})


def setting(
    default: Any,
    doc: str,
    kind: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with what the loader and the documentation need to know."""
    return field(default=default, metadata={"doc": doc, "kind": kind, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True, slots=True)
class CrawlSettings:
    """What a crawl is; part of its spec, the same on every node."""

    scope: str = setting("host", "which links are followed", choices=("page", "prefix", "host", "domain", "any"))
    include: tuple[str, ...] = setting(
        (), "regular expressions without look-around and backreferences; a link must match one, where there are any"
    )
    exclude: tuple[str, ...] = setting((), "the same; a link that matches one is skipped")
    depth: int = setting(-1, "how many links away from a seed a page may be; -1: any", low=-1)
    max_pages: int = setting(UNLIMITED, "stop after this many pages; 0: no limit", low=0)
    time_limit_s: float = setting(0.0, "stop after this time; 0: no limit", "duration", low=0)
    size_limit_bytes: int = setting(UNLIMITED, "stop after this many bytes of bodies; 0: no limit", "size", low=0)
    delay_s: float = setting(
        1.0, "from the last byte of a host's response to its next request; 0 only for your own hosts", "duration", low=0
    )
    key: str = setting("url", "what places a task in the key space", choices=("url", "host", "search"))
    policy: str = setting("xor", "which node fetches a task")
    policy_options: tuple[str, ...] = setting((), "what the policy is to know", "pair")
    copies: int = setting(
        1, "nodes that have a page's body before the page is done; fewer only where there are fewer", low=1, high=16
    )
    user_agent: str = setting(
        "dhtcrawl/0.1",
        "the User-Agent header; the letters, '-' and '_' that it begins with, 256 at most, are the robots.txt token",
    )
    contact: str = setting("", "a URL or address for site owners, added to the User-Agent")
    allow_private: bool = setting(False, "allow the hosts that seeds name on loopback and private addresses")
    ignore_robots: bool = setting(False, "do not ask for robots.txt, nor obey nofollow")


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """What one request may cost, and how often it is tried."""

    concurrency: int = setting(32, "requests in flight on this node", low=1, high=4096)
    open_pages_max: int = setting(
        128, "pages under way on this node, until its backups know that they are over: a crash repeats them",
        low=1, high=4096,
    )  # fmt: skip
    connect_timeout_s: float = setting(10.0, "for the connection, TLS included", "duration", low=0.001)
    head_timeout_s: float = setting(
        30.0, "from the connection to the end of the response's head", "duration", low=0.001
    )
    body_timeout_s: float = setting(
        600.0, "from the head to the last byte; what came until then is kept", "duration", low=0.001
    )
    idle_timeout_s: float = setting(30.0, "between two reads of a body", "duration", low=0.001)
    body_bytes_per_s_min: int = setting(
        1024, "a body that comes more slowly than this, a second, for `body_slow_s` is cut; 0: never", "size", low=0
    )
    body_slow_s: float = setting(30.0, "how long a body may be slower than that", "duration", low=0.001)
    head_bytes_max: int = setting(64 << 10, "a larger head is refused", "size", low=1024)
    body_bytes_max: int = setting(256 << 20, "a larger body is cut and marked truncated", "size", low=1)
    html_bytes_max: int = setting(16 << 20, "links are looked for in this much decoded HTML", "size", low=1)
    retries_max: int = setting(2, "further attempts for a page that failed", low=0)
    redirects_max: int = setting(10, "redirects followed in a row", low=0)
    tls_verify: bool = setting(True, "refuse certificates that do not verify")
    accept_language: str = setting("en,*;q=0.5", "the Accept-Language header; empty: none is sent")


@dataclass(frozen=True, slots=True)
class PolitenessSettings:
    """How a host is spared, besides the crawl's delay."""

    crawl_delay_max_s: float = setting(
        60.0, "robots.txt's Crawl-delay is obeyed up to this, and so is what other nodes name", "duration", low=0
    )
    robots_ttl_s: float = setting(
        86400.0, "robots.txt is asked for again after this (RFC 9309, 2.4)", "duration", low=1
    )
    retry_after_max_s: float = setting(
        3600.0, "Retry-After is obeyed up to this, told by other nodes, too", "duration", low=0
    )
    backoff_first_s: float = setting(1.0, "wait after a host's first failure; doubles with each", "duration", low=0)
    backoff_max_s: float = setting(300.0, "the longest such wait", "duration", low=0)
    host_failures_max: int = setting(
        12, "failed connections in a row after which an origin that once answered is given up: 20 minutes", low=1
    )
    host_strikes_max: int = setting(3, "the same for an origin that never answered", low=1)
    host_silences_max: int = setting(
        20, "pages in a row without an answer, or with 429 or 503, after which an origin is given up", low=1
    )
    line_wait_max_s: float = setting(
        21600.0, "how long no origin is given up because this machine's own line seems to be down", "duration", low=0
    )


@dataclass(frozen=True, slots=True)
class FrontierSettings:
    """How much of the frontier is in memory; the rest waits on disk."""

    hosts_active_max: int = setting(4096, "hosts in memory at once", low=1)
    tasks_in_memory_max: int = setting(65_536, "tasks in memory at once, over all hosts", low=64)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Where and how durably things are kept."""

    sync: bool = setting(True, "fsync before anything is acknowledged; off: a power cut may lose the last seconds")
    warc_bytes_max: int = setting(1 << 30, "a new archive file is begun after this", "size", low=1 << 16)
    disk_limit: str = setting(
        "", 'stop when the data takes this much ("20GiB") or the disk is this full ("90%"); empty: never', "disk"
    )
    cache_bytes: int = setting(8 << 20, "LevelDB's block cache", "size", low=0)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The process."""

    data_dir: str = setting(
        "", "where the node keeps its key and store; empty: DIR.node beside --out DIR, or the platform's place", "path"
    )
    log_level: str = setting("warning", "what is logged to stderr", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "text", "how lines on stderr are written: for people, or each as a line of JSON", choices=("text", "json")
    )
    drain_timeout_s: float = setting(
        30.0, "how long an interrupted crawl waits for requests in flight", "duration", low=0
    )
    listen: str = setting(
        "",
        "where other nodes reach this one, TCP and UDP; empty: 127.0.0.1:8468, with a secret or open_swarm [::]:8468",
        "address",
    )
    advertise: str = setting("", "the address that others are told; empty: the one it listens on", "address")
    outbound_only: bool = setting(
        False, "take no connections, as behind a NAT: this node owns no keys, and fetches what others lend to it"
    )
    bootstrap: tuple[str, ...] = setting((), "nodes to join through; none: a new swarm", "address")
    admin: str = setting("127.0.0.1:8469", "where the node answers commands and browsers, HTTP", "address")
    admin_token_file: str = setting(
        "",
        "a file, open to its owner alone, with the token that the admin port asks for; needed beyond loopback",
        "path",
    )
    admin_cert: str = setting(
        "", "a certificate, PEM: the admin port speaks TLS, and commands ask a node that shows this one", "path"
    )
    admin_key: str = setting("", "its key, open to its owner alone; empty: it stands in the same file", "path")
    labels: tuple[str, ...] = setting((), "what policies may know of this node", "pair")
    allowed_policies: tuple[str, ...] = setting(
        (), "policies of your own that crawls may name, and this node then imports, as module:Class", "class"
    )
    private_networks: tuple[str, ...] = setting(
        (),
        "the private networks that this node may reach, where a crawl allows it, too: networks, addresses, loopback, "
        "none; empty: none, but in a swarm on loopback all",
        "network",
    )
    secret_file: str = setting(
        "",
        "a file, open to its owner alone, with the secret of a closed swarm; -: standard input; "
        "empty: secret in the data directory, where there is one",
        "path",
    )
    open_swarm: bool = setting(False, "talk with other machines without a secret: any that reaches the port takes part")


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """What the nodes of a swarm owe each other; the same on every node."""

    # Not 0: a node that joins would share no record with another, and so learn nothing before it owns.
    replicas: int = setting(3, "backups of a task record besides its owner's copy", low=1, high=15)
    acks: int = setting(
        2, "backups that have it on disk before a task is acknowledged; never more than there are", low=0, high=15
    )
    holder_grace_s: float = setting(
        600.0, "a page is fetched anew when the node with its body is gone for this long", "duration", low=0
    )
    suspicion_s: float = setting(5.0, "how long a node that does not answer keeps what it owns", "duration", low=0.1)
    # No message between nodes carries more.
    lease_s: float = setting(
        10.0, "for how long a node has a host to itself, from when it asked", "duration", low=0.1, high=3600
    )
    lease_requests: int = setting(64, "requests to a host before its lease goes back", low=1, high=1_000_000)


@dataclass(frozen=True, slots=True)
class Config:
    """All sections; `origins` says for each key that is not a default where it came from.

    `options` names the command-line option of each setting that was given by one.
    """

    crawl: CrawlSettings = CrawlSettings()
    fetch: FetchSettings = FetchSettings()
    politeness: PolitenessSettings = PolitenessSettings()
    frontier: FrontierSettings = FrontierSettings()
    storage: StorageSettings = StorageSettings()
    node: NodeSettings = NodeSettings()
    swarm: SwarmSettings = SwarmSettings()
    origins: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, key: str, problem: str) -> DhtcrawlError:
        """What to raise where the value of a setting turns out to be wrong: `UsageError` if an option gave it.

        `problem` goes on behind the name of the option or setting: " is empty; name …".
        """
        return _refusal(key, problem, self.origins.get(key), self.options.get(key))


SECTIONS: Final[Mapping[str, type[Any]]] = {
    f.name: type(f.default) for f in dataclasses.fields(Config) if dataclasses.is_dataclass(f.default)
}


_COMMAND_LINE: Final = "command line"  # as messages name the origin "flag"


def all_settings() -> dict[str, dataclasses.Field[Any]]:
    """`section.key` → field, in the order of the sections."""
    return {f"{name}.{f.name}": f for name, section in SECTIONS.items() for f in dataclasses.fields(section)}


def is_file(origin: str) -> bool:
    """Whether that is where a value came from: a file, and no option or variable."""
    return origin != "flag" and not origin.startswith("DHTCRAWL_")


def changed(config: Config) -> dict[str, object]:
    """`section.key` → value, of what is not the default: as `flags` of `load` they make the same again."""
    default = Config()
    found: dict[str, object] = {}
    for key in all_settings():
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        if value != getattr(getattr(default, section), name):
            found[key] = value
    return found


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    options: Mapping[str, str] | None = None,
    begun: bool = False,
) -> Config:
    """The effective configuration.

    `flags` maps `section.key` to a value; strings are parsed as the file's
    and the environment's are. `options` maps those of them that the user gave
    by an option of their own to that option, such as `--delay`. Settings of a
    crawl that has `begun` may be such as are refused of a new one only.

    Raises:
        ConfigError: an unknown key, or a value out of range; the message
            names the key, where it came from and what would be right.
        UsageError: a value out of range that an option gave; the message
            names the option.
    """
    options = options or {}
    known = all_settings()
    values: dict[str, tuple[object, str]] = {}
    if file is not None:
        for key, value in _read_file(file).items():
            _require_known(key, str(file), known)
            values[key] = (value, str(file))
    by_variable = {f"DHTCRAWL_{key.replace('.', '_').upper()}": key for key in known}
    for variable, text in (environ or {}).items():
        if variable in by_variable:
            values[by_variable[variable]] = (text, variable)
        elif variable.startswith("DHTCRAWL_") and variable not in _NO_SETTINGS:
            raise ConfigError(f"environment: {variable} is no setting; see 'dhtcrawl config show' for all of them")
    for key, value in (flags or {}).items():
        _require_known(key, _COMMAND_LINE, known)
        values[key] = (value, "flag")

    sections: dict[str, dict[str, object]] = {name: {} for name in SECTIONS}
    for key, (value, origin) in values.items():
        section, _, name = key.partition(".")
        try:
            parsed = sections[section][name] = _parsed(key, known[key], value)
            if key in _PATTERNS and not begun:
                _require_ascii(cast("tuple[str, ...]", parsed))
        except _Wrong as wrong:
            raise _refusal(key, str(wrong), origin, options.get(key)) from None
    return Config(
        **{name: cls(**sections[name]) for name, cls in SECTIONS.items()},
        origins={key: origin for key, (_, origin) in values.items()},
        options=dict(options),
    )


def _refusal(key: str, problem: str, origin: str | None, option: str | None) -> DhtcrawlError:
    if option is not None:
        return UsageError(f"{option}{problem}")
    where = _COMMAND_LINE if origin == "flag" else origin
    return ConfigError(f"config: {key}{'' if where is None else f' ({where})'}{problem}")


def _read_file(path: Path) -> dict[str, object]:
    import tomllib  # here: most crawls have no file

    try:
        data = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"config: cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise ConfigError(f"config: {path} is not valid TOML: {error}") from error
    flat: dict[str, object] = {}
    for section, content in data.items():
        if not isinstance(content, dict):
            raise ConfigError(f"config: {path}: {section} stands outside a section; put it under [crawl], [fetch], …")
        flat.update({f"{section}.{key}": value for key, value in content.items()})
    return flat


def _require_known(key: str, origin: str, known: Mapping[str, object]) -> None:
    if key not in known:
        import difflib

        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "see 'dhtcrawl config show' for all of them"
        raise ConfigError(f"config: {key} ({origin}) is no setting; {hint}")


class _Wrong(Exception):
    """A value that is none of its setting's; the text goes on behind the setting's name."""


def _parsed(key: str, spec: dataclasses.Field[Any], value: object) -> object:
    meta = spec.metadata
    try:
        parsed = _convert(value, spec.default, meta["kind"])
    except ValueError as error:
        raise _Wrong(f" is {value!r}; {error}") from None
    if meta["choices"] and parsed not in meta["choices"]:
        raise _Wrong(f" is {value!r}; use one of {', '.join(meta['choices'])}")
    if isinstance(parsed, int | float):
        if meta["low"] is not None and parsed < meta["low"]:
            raise _Wrong(f" is {value}; use {meta['low']} or more")
        if meta["high"] is not None and parsed > meta["high"]:
            raise _Wrong(f" is {value}; use {meta['high']} or less")
    texts: tuple[str, ...] = (parsed,) if isinstance(parsed, str) else parsed if isinstance(parsed, tuple) else ()
    if key in _CHECKS:
        _CHECKS[key](texts)
    _require_storable(texts, meta["kind"])
    return parsed


_PATTERNS: Final = ("crawl.include", "crawl.exclude")
_BEYOND_ASCII: Final = re.compile(r"[^\0-\x7f\ud800-\udfff]")


def _require_patterns(texts: tuple[str, ...]) -> None:
    try:
        Patterns(texts)
    except PatternRefused as error:
        raise _Wrong(f": {error}") from None


def _require_ascii(texts: tuple[str, ...]) -> None:
    for text in texts:
        found = _BEYOND_ASCII.search(text)
        if found:  # the pattern would match nothing, or what its author does not mean
            escapes = "".join(f"%{byte:02X}" for byte in found[0].encode())
            raise _Wrong(
                f": {text[:80]!r} has {found[0]!r}, which stands in no URL as crawled; write {escapes}, as in a path, "
                "or the xn-- form of a host"
            )


def _require_short_token(texts: tuple[str, ...]) -> None:
    for text in texts:
        # Nodes ask each other for a robots.txt by its token, and a longer one is none to them.
        if re.match(rf"[A-Za-z_-]{{{ROBOTS_TOKEN_CHARS_MAX + 1}}}", text):
            raise _Wrong(
                f" begins with {text[:20]}… of more than {ROBOTS_TOKEN_CHARS_MAX} letters, which is too long for a "
                "robots.txt token; shorten it"
            )


_CHECKS: Final[Mapping[str, Callable[[tuple[str, ...]], None]]] = {
    "crawl.include": _require_patterns,
    "crawl.exclude": _require_patterns,
    "crawl.user_agent": _require_short_token,
}


def _require_storable(texts: tuple[str, ...], kind: str) -> None:
    for text in texts:
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise _Wrong(" has a control character; remove it")
        # A path may be any bytes, which Python reads as surrogates; everything else is stored and sent as UTF-8.
        if kind != "path" and any("\ud800" <= char <= "\udfff" for char in text):
            raise _Wrong(f" is {text!r}, which is not UTF-8; check the encoding")


CLASS_NAME_CHARS_MAX: Final = 200
ROBOTS_TOKEN_CHARS_MAX: Final = 256
_NAME: Final = "[A-Za-z][A-Za-z0-9_]*"
_CLASS_NAME: Final = re.compile(rf"{_NAME}(?:\.{_NAME})*:{_NAME}", re.ASCII)
_BOOLS: Final = dict.fromkeys(("true", "on", "yes", "1"), True) | dict.fromkeys(("false", "off", "no", "0"), False)
_PARSERS: Final[Mapping[str, Callable[[object], object]]] = {
    "duration": parse_duration,
    "size": parse_size,
    "disk": parse_disk_limit,
}


def _convert(value: object, default: object, kind: str) -> object:
    if kind in _PARSERS:
        return _PARSERS[kind](value)
    if isinstance(default, bool):
        return _bool(value)
    if isinstance(default, int):
        return _int(value)
    if isinstance(default, tuple):
        return _strings(value, kind)
    if not isinstance(value, str):
        raise ValueError("use a string")
    return _address(value) if kind == "address" else value


def _strings(value: object, kind: str) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("use a string or a list of strings")
    if kind == "address":  # a variable holds one string, and a name no comma
        return tuple(_address(part) for item in items for part in item.split(","))
    if kind == "network":  # nor does a network have one
        items = [part.strip() for item in items for part in item.split(",")]
        for item in filter(None, items):
            parse_networks(item)
    if kind == "pair":
        pairs(items)
    if kind == "class":
        for item in filter(None, items):  # an empty one is an unset variable
            require_class_name(item)
    return tuple(items)


def require_class_name(text: str) -> None:
    """Refuse what is no module:Class.

    Raises:
        ValueError: with what would be right.
    """
    if len(text) > CLASS_NAME_CHARS_MAX or not _CLASS_NAME.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no module:Class; write it as in my_policies:Nearest")


def pairs(items: Iterable[str]) -> dict[str, str]:
    """Name → value, of strings NAME=VALUE; an empty one is an unset variable.

    Raises:
        ValueError: one is none, or a name stands there twice.
    """
    found: dict[str, str] = {}
    for item in filter(None, items):
        name, equals, value = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,31}", name) or len(value) > PAIR_VALUE_CHARS_MAX:
            raise ValueError(f"{item[:80]!r} is no NAME=VALUE; use letters, digits, - and _ for the name")
        if name in found:
            raise ValueError(f"{name} stands there twice; say it once")
        found[name] = value
    return found


def _address(text: str) -> str:
    stripped = text.strip()
    if stripped:
        parse_address(stripped)
    return stripped


def _bool(value: object) -> bool:
    text = str(value).lower()
    if text not in _BOOLS:
        raise ValueError("use on or off")
    return _BOOLS[text]


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("use a whole number")
    try:
        number = int(value)
    except ValueError:
        raise ValueError("use a whole number") from None
    if abs(number) > INT_MAX:
        raise ValueError(f"use a whole number up to {INT_MAX}")
    return number
