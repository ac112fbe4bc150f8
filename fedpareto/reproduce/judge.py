"""The rules by which a paper's statement and our rows agree, differ, or leave it open.

A number agrees if it lies within our interval. "A is above B" agrees if the mean difference over
seeds is more than two standard errors above zero, differs if it is as far below, and else is open.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpareto.reproduce.experiment import Comparison, shown

LEAST_SEEDS = 2


def number(
    what: str, paper: float, source: str, ours: float, interval: tuple[float, float]
) -> Comparison:
    """Compare a printed number with ours and its interval."""
    low, high = interval
    inside = low <= paper <= high
    place = "within" if inside else "outside"
    said = f"{shown(ours)} (95 %: {shown(low)} to {shown(high)})"
    why = f"{what}: the paper's {shown(paper)} lies {place} our interval."
    verdict = "agrees" if inside else "differs"
    return Comparison(what, shown(paper), source, said, verdict, why)


def above(
    what: str, source: str, first: Sequence[float], second: Sequence[float], paper: str = "above"
) -> Comparison:
    """Compare the statement that the first is above the second, a value a seed each."""
    gap = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    mean = float(gap.mean())
    if len(gap) < LEAST_SEEDS:
        why = f"{what}: one seed cannot say."
        return Comparison(what, paper, source, f"{mean:+.4f}", "open", why)
    error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
    ours = f"{mean:+.4f} ± {error:.4f} over {len(gap)} seeds"
    if abs(mean) <= 2 * error:
        why = f"{what}: the difference is within two standard errors of zero."
        return Comparison(what, paper, source, ours, "open", why)
    verdict = "agrees" if mean > 0 else "differs"
    side = "above" if mean > 0 else "below"
    why = f"{what}: the first lies {side} the second by more than two standard errors."
    return Comparison(what, paper, source, ours, verdict, why)


def missing(what: str, paper: str, source: str, reason: str) -> Comparison:
    """Leave open what the rows cannot say."""
    return Comparison(what, paper, source, "–", "open", f"{what}: {reason}")
