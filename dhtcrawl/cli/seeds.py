"""Where the seeds and the rules of a command come from, and the crawl that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dhtcrawl.cli.options import read_seeds, require_readable
from dhtcrawl.config import Config, CrawlSettings, pairs
from dhtcrawl.errors import ConfigError
from dhtcrawl.spec import CrawlSpec, make_spec

# What a crawl of pages of results is, where nothing else is said: nobody looks for an engine's other pages.
_IMPLIED: Final[Mapping[str, Any]] = {"key": "search", "scope": "page"}

F = TypeVar("F", bound=Callable[..., Any])


def seed_options(command: F) -> F:
    """What a crawl is made of besides the URLs of the command line; `spec_of` takes it."""
    command = click.option(
        "--rules", metavar="FILE", help="Rules (TOML) by which records are extracted from its pages."
    )(command)
    command = click.option(
        "--template", metavar="FILE", help="Task templates (TOML): their pages of results are seeds, too."
    )(command)
    return click.option("--seed-file", metavar="FILE", help="More seeds, one a line; '#' starts a comment.")(command)


def spec_of(
    config: Config, urls: Iterable[str], seed_file: str | None, template: str | None, rules: str | None
) -> CrawlSpec:
    """The crawl that a command asks for.

    Raises:
        UsageError: a seed is no http(s) URL, or there is none; a file cannot be read.
        ConfigError: the templates or the rules say what makes no sense.
    """
    spec = _without_rules(config, urls, seed_file, template)
    if rules is None:
        return spec
    require_readable("--rules", rules)
    from dhtcrawl.cli.rules_files import checked_rules  # few crawls have rules

    return replace(spec, rules=checked_rules(Path(rules)))


def _without_rules(config: Config, urls: Iterable[str], seed_file: str | None, template: str | None) -> CrawlSpec:
    seeds = [*urls, *read_seeds(seed_file)]
    if template is None:
        if config.crawl.key == "search":
            raise config.refusal("crawl.key", " places pages of results; add --template FILE, or use url or host")
        return make_spec(seeds, config.crawl)
    require_readable("--template", template)
    from dhtcrawl.cli.template_files import with_template  # few crawls have templates

    return with_template(seeds, _settings(config), Path(template))


def check_types(spec: CrawlSpec, config: Config) -> None:
    """Whether the nodes of a command of its own may fetch, and ask all engines: all have the labels that it is given.

    Raises:
        ConfigError: an engine is asked by another type of nodes only.
        DhtcrawlError: all is fetched by another type only: `UsageError` if an option said so, else `ConfigError`.
    """
    own = pairs(config.node.labels).get("type", "")
    these = f"these are {f'of type {own!r}' if own else 'of none'}; add --set node.labels=type="
    for host, wanted in spec.types.items():
        if wanted != own:
            raise ConfigError(
                f"--template: {host} is asked by nodes of type {wanted!r} only, and {these}{wanted}, or use a swarm"
            )
    wanted = pairs(spec.settings.policy_options).get("type", "") if spec.settings.policy == "dynamic" else ""
    if wanted and wanted != own:
        problem = f": nodes of type {wanted!r} only are to fetch, and {these}{wanted}, or use a swarm"
        raise config.refusal("crawl.policy_options", problem)


def _settings(config: Config) -> CrawlSettings:
    implied = {name: value for name, value in _IMPLIED.items() if f"crawl.{name}" not in config.origins}
    return replace(config.crawl, **implied)
