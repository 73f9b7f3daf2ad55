"""DSpider's own simulation (Wu et al. 2011), with its control unit and without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from policy_bench.hosts_protocols import CONTROL_UNIT, MASTERLESS, PROTOCOLS
from policy_bench.hosts_world import FILES, HOSTS, Run, draw
from policy_bench.report import Experiment, Options, Row, each, line_plot

SEEDS = 3
# Of the control unit's messages, in a LAN: about all hosts, and without those that no node reaches.
MESSAGES_MAX, NEAR_MAX = 1.0, 0.5
NODES, TIMEOUTS_T = (3, 4, 5, 6, 7), (3, 4, 5, 6, 7)
MIDDLE_T, FEWEST = 5, 3
NETS = {"LAN": True, "WAN": False}
QUICK_FILES = 4_000
OURS = "by owners"  # what the targets are about

Case = tuple[str, str, int, int, int, int]  # protocol, net, nodes, timeout, seed, files
Figure = Callable[[Run, int], float]


def _one(case: Case) -> Run:
    protocol, net, nodes, timeout_t, seed, files = case
    return PROTOCOLS[protocol](draw(seed, NETS[net], nodes, files), timeout_t).play()


def _speed(run: Run, nodes: int) -> float:
    return run.brought_f / run.ended_t


def _srcuse(run: Run, nodes: int) -> float:
    return run.brought_f / run.ended_t / nodes


def _communicate(run: Run, nodes: int) -> float:
    return run.messages / run.ended_t


def _duplicates(run: Run, nodes: int) -> float:
    return 1e4 * run.duplicates / run.files


class Curves:
    """All runs: medians over the seeds of a figure, along the nodes or along the timeouts."""

    def __init__(self, options: Options) -> None:
        self.seeds = options.seeds_or(SEEDS)
        self.files = QUICK_FILES if options.quick else FILES
        nodes, timeouts = ((3, 7), (3, 7)) if options.quick else (NODES, TIMEOUTS_T)
        self.along = {
            "nodes": [(count, MIDDLE_T) for count in nodes],
            "timeout": [(FEWEST, timeout_t) for timeout_t in timeouts],
        }
        points = dict.fromkeys(self.along["nodes"] + self.along["timeout"])
        cases: list[Case] = [
            (protocol, net, *point, seed, self.files)
            for protocol in PROTOCOLS for net in NETS for point in points for seed in self.seeds
        ]  # fmt: skip
        self.runs = dict(zip(cases, each(_one, cases, options.jobs), strict=True))

    def of(self, protocol: str, net: str, point: tuple[int, int]) -> list[Run]:
        """The runs of all seeds."""
        return [self.runs[protocol, net, *point, seed, self.files] for seed in self.seeds]

    def line(self, figure: Figure, protocol: str, net: str, along: str) -> list[float]:
        """A curve."""
        points = self.along[along]
        return [median(figure(run, point[0]) for run in self.of(protocol, net, point)) for point in points]

    def lines(self, figure: Figure, along: str) -> dict[str, list[float]]:
        """Of all protocols in both nets."""
        return {f"{protocol}, {net}": self.line(figure, protocol, net, along) for protocol in PROTOCOLS for net in NETS}


def dspider(options: Options) -> list[Row]:
    """Every curve of the paper's simulation, and what ours is to be better at."""
    curves = Curves(options)
    if options.plots is not None:
        _plot(options, curves)
    size = f"{curves.files:,} files, {HOSTS} hosts"
    return [
        *_against_the_control_unit(curves, options),
        _curve(curves, options, "nodes", "speed, f/T", _speed, "grows, in a WAN steeper", grows_steeper, note=size),
        _curve(curves, options, "nodes", "srcuse, f/T a node", _srcuse, "up slightly in a WAN, down in a LAN", parts,
               why="a hash shares hosts out less evenly than links do, so the last node ends later"),
        _curve(curves, options, "nodes", "duplicates per 10,000", _duplicates, "WAN > LAN, growing", wan_more,
               only=CONTROL_UNIT, note="where they come from is our reading of the paper",
               why="in a LAN the control unit answers within 2T, when one file is under way at most"),
        _curve(curves, options, "timeout", "speed, f/T", _speed, "falls slightly", falls,
               note="with a control unit, a node whose first hosts are all too far never begins"),
        _curve(curves, options, "timeout", "srcuse, f/T a node", _srcuse, "falls slightly", falls),
        _curve(curves, options, "timeout", "communicate, messages/T", _communicate, "falls slightly", falls,
               why="a control unit's node says no more of a host that failed it; fewer fail with a longer timeout"),
        Row("P5", "coverage at timeouts of 3T … 7T, 3 nodes", "", "", _coverage(curves, "timeout"), None,
            len(curves.seeds), "a longer timeout buys coverage, which the paper does not count. " + size,
            value=_least_coverage(curves, "timeout"), unit="% at least"),
        Row("P5", "coverage with 3 … 7 nodes at 5T", "", "", _coverage(curves, "nodes"), None, len(curves.seeds),
            "in a LAN a host that is too far for one is too far for all",
            value=_least_coverage(curves, "nodes"), unit="% at least"),
    ]  # fmt: skip


def _against_the_control_unit(curves: Curves, options: Options) -> list[Row]:
    twice = sum(run.duplicates for (protocol, *_), run in curves.runs.items() if protocol in MASTERLESS)
    count = len(curves.seeds)
    rows = [Row("P5", "files fetched twice without a master, all runs together", "", "0", str(twice),
                options.judged(twice == 0), count, value=twice, unit="files")]  # fmt: skip
    for protocol in MASTERLESS:
        all_ = _ratios(curves, protocol, "LAN", lambda run: run.messages)
        near = _ratios(curves, protocol, "LAN", lambda run: run.messages - run.in_vain)
        wan = _ratios(curves, protocol, "WAN", lambda run: run.messages)
        points = ", ".join(f"{nodes} nodes {timeout_t}T {median(of):.2f}" for (nodes, timeout_t), of in all_.items())
        loans = _ratios(curves, protocol, "LAN", lambda run: run.messages + run.loans)
        note = f"{points}. WAN {_middle(wan):.2f}"
        note += f". With the loans of pages: LAN {_middle(loans):.2f}" * (protocol == "by owners")
        rows += [
            _messages(f"messages in a LAN, {protocol}", all_, MESSAGES_MAX, protocol, count, options, note),
            _messages(f"the same without hosts that are too far for all, {protocol}", near, NEAR_MAX, protocol, count,
                      options, ""),
            _coverage_row(curves, protocol, options),
        ]  # fmt: skip
    return rows


def _messages(
    what: str, ratios: dict[tuple[int, int], list[float]], most: float, protocol: str, seeds: int, options: Options,
    note: str,
) -> Row:  # fmt: skip
    """What is sent for one message of the control unit's: the median over all points and seeds."""
    every = [ratio for of in ratios.values() for ratio in of]
    met = options.judged(median(every) <= most) if protocol == OURS else None
    target = f"at most {most:g}" if protocol == OURS else ""
    measured = f"{median(every):.2f} (worst {max(every):.2f})"
    return Row("P5", f"{what}: of the control unit's", "", target, measured, met, seeds, note, value=median(every),
               unit="times", samples=len(every))  # fmt: skip


def _coverage_row(curves: Curves, protocol: str, options: Options) -> Row:
    """How many files come less than with the control unit, where it is most."""
    points = dict.fromkeys(curves.along["nodes"] + curves.along["timeout"])
    less = [
        (paper.files - ours.files) / curves.files
        for net in NETS for point in points
        for ours, paper in zip(curves.of(protocol, net, point), curves.of(CONTROL_UNIT, net, point), strict=True)
    ]  # fmt: skip
    met = options.judged(max(less) <= 0) if protocol == OURS else None
    return Row("P5", f"files less than with the control unit, {protocol}", "", "none" * (protocol == OURS),
               f"{100 * max(less):.1f} % at most, {100 * median(less):.1f} % in the median", met, len(curves.seeds),
               value=100 * max(less), unit="% of all files", samples=len(less))  # fmt: skip


def _ratios(curves: Curves, protocol: str, net: str, count: Callable[[Run], int]) -> dict[tuple[int, int], list[float]]:
    """What is sent for one of the control unit's, seed by seed: both bring the same files."""
    points = dict.fromkeys(curves.along["nodes"] + curves.along["timeout"])
    return {
        point: [
            count(ours) / max(count(paper), 1)
            for ours, paper in zip(curves.of(protocol, net, point), curves.of(CONTROL_UNIT, net, point), strict=True)
        ]
        for point in points
    }


def _middle(ratios: dict[tuple[int, int], list[float]]) -> float:
    return median(ratio for of in ratios.values() for ratio in of)


Judge = Callable[[list[float], list[float]], str]  # the lines of LAN and WAN → what is not as the paper says


def grows_steeper(lan: list[float], wan: list[float]) -> str:
    """What is wrong with two curves that shall grow, the second steeper; "" if nothing."""
    said = [f"{net} does not grow all the way" for net, of in (("LAN", lan), ("WAN", wan)) if of != sorted(of)]
    return ", ".join(said + ["WAN is no steeper"] * (wan[-1] / wan[0] <= lan[-1] / lan[0]))


def parts(lan: list[float], wan: list[float]) -> str:
    """What is wrong with curves that shall fall in a LAN and rise in a WAN; "" if nothing."""
    return ", ".join(["LAN goes up"] * (lan[-1] >= lan[0]) + ["WAN goes down"] * (wan[-1] <= wan[0]))


def wan_more(lan: list[float], wan: list[float]) -> str:
    """What is wrong with two curves that shall grow, the second above the first; "" if nothing."""
    less = ["WAN is not more everywhere"] * any(a >= b for a, b in zip(lan, wan, strict=True))
    return ", ".join(less + [f"{net} does not grow" for net, of in (("LAN", lan), ("WAN", wan)) if of[-1] <= of[0]])


def falls(lan: list[float], wan: list[float]) -> str:
    """What is wrong with two curves that shall fall; "" if nothing."""
    return ", ".join(f"{net} rises" for net, of in (("LAN", lan), ("WAN", wan)) if of[-1] >= of[0])


def _curve(
    curves: Curves, options: Options, along: str, name: str, figure: Figure, claim: str, judge: Judge,
    *, only: str = "", note: str = "", why: str = "",
) -> Row:  # fmt: skip
    """A row of one figure: its values, and where its trend is not the paper's, and `why`."""
    said, wrong = [], []
    for protocol in [only] if only else PROTOCOLS:
        lan, wan = (curves.line(figure, protocol, net, along) for net in NETS)
        said.append(f"{protocol} LAN {_values(lan)}, WAN {_values(wan)}")
        if what := judge(lan, wan):
            wrong.append(f"{protocol}: {what}")
    over = "3 … 7 nodes, 5T" if along == "nodes" else "timeouts of 3T … 7T, 3 nodes"
    notes = [] if options.quick or not wrong else [*wrong, why]
    return Row("P5", f"{name}; {over}", claim, "the same trend", "; ".join(said), options.judged(not wrong),
               len(curves.seeds), "; ".join(filter(None, [*notes, note])),
               value=len(wrong), unit="protocols without the trend")  # fmt: skip


def _values(line: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" if value < 10 else f"{value:.1f}" for value in line)


def _least_coverage(curves: Curves, along: str) -> float:
    lines = curves.lines(lambda run, nodes: run.files / curves.files, along)
    return 100 * min(value for line in lines.values() for value in line)


def _coverage(curves: Curves, along: str) -> str:
    lines = curves.lines(lambda run, nodes: run.files / curves.files, along)
    return "; ".join(f"{name} {' '.join(f'{value:.0%}' for value in line)}" for name, line in lines.items())


def _plot(options: Options, curves: Curves) -> None:
    labels = {"nodes": "nodes", "timeout": "timeout, T"}
    figures: dict[str, tuple[str, Figure]] = {
        "speed": ("speed, f/T", _speed),
        "srcuse": ("f/T a node", _srcuse),
        "communicate": ("messages about hosts a T", _communicate),
        "duplicates": ("duplicates per 10,000", _duplicates),
        "coverage": ("share of all files", lambda run, nodes: run.files / curves.files),
    }
    for along, points in curves.along.items():
        xs = [point[0] if along == "nodes" else point[1] for point in points]
        for name, (label, figure) in figures.items():
            lines = {who: list(zip(xs, line, strict=True)) for who, line in curves.lines(figure, along).items()}
            if options.plots is not None:
                path = options.plots / f"hosts-{name}-{along}.svg"
                path.write_text(line_plot(f"{name} by {along}", labels[along], label, lines))


EXPERIMENTS = (Experiment("hosts", "P5", "the simulation of DSpider, with a control unit and without", dspider),)
