"""A node's figures in Prometheus' text format, version 0.0.4. Pure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. A family
whose name ends in `_total` is a counter, any other a gauge.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "dhtcrawl_"

_LABEL = r'[a-z_][a-z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"([a-z_][a-z0-9_]*)(\{{{_LABEL}(?:,{_LABEL})*\}})?")

# What the name alone does not say. Pages, requests, URLs and errors are those of all crawls that ran at the node since
# it was started, with what they had done before; summed over the nodes they are what the API tells, but for what was
# released: a counter never goes down, and what a release takes off is only in the API.
HELP = {
    "pages_total": "Pages fetched and written.",
    "pages_ok_total": "Pages that are neither a redirect nor an error.",
    "pages_reopened_total": "Pages fetched again, as the node that had them is gone; off the sum of pages_total.",
    "redirects_total": "Pages that were redirects.",
    "dead_total": "URLs that were given up.",
    "fetches_total": "Requests for pages, retries included.",
    "refetches_total": "Requests that brought a page this crawl had already.",
    "retried_total": "Requests that brought no page and were followed by another try.",
    "errors_total": "Responses with an error status, and URLs that brought none, by status or kind of failure.",
    "body_bytes_total": "Bytes of response bodies, as they came over the wire.",
    "urls_seen_total": "Distinct URLs that came to be this node's.",
    "robots_fetches_total": "Requests for robots.txt.",
    "probes_total": "Small requests that only timed a site, for a policy that places sites.",
    "policy_faults_total": "Answers of a crawl's policy that were no use, and errors that it raised.",
    "queued": "Tasks waiting for their host's turn.",
    "in_flight": "Requests under way.",
    "members": "Nodes of the swarm as this node sees it.",
    "crawls_running": "Crawls that have not ended.",
    "pages_undercopied": "Pages here that lie on fewer nodes than their crawl wants.",
    "links_taken_total": "Links that other nodes sent, for URLs that are this node's.",
    "records_taken_total": "Task records that other nodes sent.",
    "records_sent_total": "Task records sent to backups.",
    "uptime_seconds": "Since the node was started.",
    "process_cpu_seconds_total": "CPU time of the node, user and system.",
    "politeness_violations_total": "Requests sooner than the host's delay; must stay 0.",
    "politeness_exceptions_total": "Requests that ended while their host was leased to another node.",
}


def render(figures: Mapping[str, float]) -> str:
    """The page that Prometheus scrapes; what has no valid name is left out and logged."""
    families: dict[str, list[str]] = {}
    for sample, value in figures.items():
        match = _SAMPLE.fullmatch(sample)
        if match is None:
            log.error("%r is no name of a metric", sample)
            continue
        families.setdefault(match[1], []).append(f"{PREFIX}{sample} {_number(value)}")
    lines = []
    for name, samples in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        text = HELP.get(name) or f"{name.removesuffix('_total').replace('_', ' ').capitalize()}."
        lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}", *samples]
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        return repr(value)
    return str(int(value))
