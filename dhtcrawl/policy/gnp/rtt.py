"""One round-trip time out of several samples: noise only ever adds to it, and sometimes a lot.

    swa          "statistical weighted average" (Liu et al. 2010): the mean of the values in the three fullest bins
    median
    lower_half   the median of the lower half: what the network takes when nothing else is in the way

All take seconds, one sample at least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from statistics import median as _median

BIN_MIN_S, BIN_OF_MEDIAN = 0.001, 0.05
FULLEST = 3

Estimator = Callable[[Sequence[float]], float]


def swa(samples: Sequence[float]) -> float:
    """The paper's; it leaves the bins' width open: 5 % of the median, a millisecond at least."""
    width = max(BIN_MIN_S, BIN_OF_MEDIAN * _median(samples))
    bins = Counter(round(sample / width) for sample in samples)
    # Of equally full bins the lower ones.
    chosen = sorted(bins, key=lambda number: (-bins[number], number))[:FULLEST]
    return fmean(sample for sample in samples if round(sample / width) in chosen)


def median(samples: Sequence[float]) -> float:
    """The middle one."""
    return float(_median(samples))


def lower_half(samples: Sequence[float]) -> float:
    """The middle one of those that are not above the middle."""
    return float(_median(sorted(samples)[: (len(samples) + 1) // 2]))


ESTIMATORS: Mapping[str, Estimator] = {"lower-half": lower_half, "median": median, "swa": swa}
