"""`NodeApi` of a node of a swarm: what the admin HTTP and the commands can see and do.

Each subject has a file in `dhtcrawl.node.answers`.
"""

from __future__ import annotations

from dhtcrawl.node.answers.crawls import CrawlAnswers
from dhtcrawl.node.answers.exports import ExportAnswers
from dhtcrawl.node.answers.node import NodeAnswers
from dhtcrawl.node.answers.places import PlaceAnswers
from dhtcrawl.node.crawl_figures import CrawlFiguresAsked
from dhtcrawl.node.failed_crawls import FiguresWithCauses
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.rpc.peers.port import CallRegistry


class Api(NodeAnswers, CrawlAnswers, PlaceAnswers, ExportAnswers):
    """Answers the admin HTTP of one node, asking other nodes where it must."""

    def __init__(self, swarm: SwarmNode, registry: CallRegistry) -> None:
        figures = CrawlFiguresAsked(lambda: swarm.peers, swarm.node.ports.clock)
        super().__init__(swarm, FiguresWithCauses(figures, self.why))
        self.serve(registry)
        self.serve_wishes(registry)
