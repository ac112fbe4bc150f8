"""The rules by which a paper's statement and our rows agree, differ, or leave it open.

A number agrees if it lies within our interval, and differs if it lies outside; an interval whose
ends are more than a factor of two apart is too wide for the former, and leaves it open. "A is above
B" agrees if the mean difference over seeds is more than two standard errors above zero, differs if
it is as far below, and else, or with fewer than three seeds, is open. A paper's scale ranks
settings as the true ε does if their rank correlation is at least 0.9.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpareto.reproduce.experiment import Comparison, shown

LEAST_SEEDS = 3
FEWEST_RANKED = 10
ALIKE = 0.9  # rank correlation
WIDEST = 2.0  # factor between the ends of an interval that can agree


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
    if inside and too_wide(interval):
        verdict = "open"
        why += " The interval is too wide to call that agreement."
    return Comparison(what, shown(paper), source, said, verdict, why)


def too_wide(interval: tuple[float, float]) -> bool:
    """Say whether an interval allows so much that a number within it says little."""
    low, high = interval
    return high > WIDEST * low


def above(
    what: str, source: str, first: Sequence[float], second: Sequence[float], paper: str = "above"
) -> Comparison:
    """Compare the statement that the first is above the second, a value a seed each."""
    gap = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    mean = float(gap.mean())
    if len(gap) < LEAST_SEEDS:
        why = f"{what}: fewer than three seeds cannot say."
        ours = f"{mean:+.4f} over {len(gap)} seeds"
        return Comparison(what, paper, source, ours, "open", why)
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


def ranks_alike(
    what: str, source: str, proxy: Sequence[float], epsilon: Sequence[float]
) -> Comparison:
    """Compare the statement that a paper's scale ranks settings as the true ε does.

    It agrees if their rank correlation is at least ALIKE. Settings without a finite ε are left out.
    """
    from scipy.stats import spearmanr

    both = np.array([proxy, epsilon], dtype=float)
    scale, true = both[:, np.isfinite(both).all(axis=0)]
    paper = "a measure of leakage"
    if len(scale) < FEWEST_RANKED or np.ptp(scale) == 0 or np.ptp(true) == 0:
        return missing(what, paper, source, "too few settings differ.")
    found = float(spearmanr(scale, true).statistic)
    said = f"Spearman {found:.2f} over {len(scale)} settings"
    why = f"{what}: the rank correlation is {found:.2f}, where {ALIKE} is asked for."
    verdict = "agrees" if found >= ALIKE else "differs"
    return Comparison(what, paper, source, said, verdict, why)
