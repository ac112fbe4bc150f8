"""From an auditor's statistics in two neighbouring worlds to an ε that holds at 99.9 % confidence.

Nothing here is fedpareto's: accountants must not audit themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from fedpareto.audit.bounds import by_fit as fitted

ALPHA = 1e-3


def by_fit(scores: np.ndarray, delta: float) -> float:
    """Return a lower bound on ε from statistics [N,2] that are Gaussian with the same spread in both worlds."""
    return fitted(scores, delta, 1 - ALPHA)


@dataclass(frozen=True)
class Rule:
    """Say "in" above the threshold; or, the other way round, "out" at most at it."""

    threshold: float
    upward: bool

    def shares(self, scores: np.ndarray) -> tuple[float, float]:
        """Return how often it says so rightly and wrongly."""
        says = scores > self.threshold if self.upward else scores <= self.threshold
        right, wrong = says.mean(axis=0)[:: 1 if self.upward else -1]
        return float(right), float(wrong)

    def bound(self, scores: np.ndarray, n: int, delta: float) -> float:
        """Return log((right − δ) / wrong) from Clopper and Pearson's bounds for n samples, half the error each."""
        right, wrong = self.shares(scores)
        low = beta.ppf(ALPHA / 2, right * n, n - right * n + 1) if right else 0.0
        high = beta.ppf(1 - ALPHA / 2, wrong * n + 1, n - wrong * n) if wrong < 1 else 1.0
        return float(np.log((low - delta) / high)) if low - delta > high else 0.0


def chosen(pilot: np.ndarray, n: int, delta: float) -> Rule:
    """Return the rule that promises most for n samples, from others: no audit chooses its own threshold."""
    edges = np.unique(np.quantile(pilot, np.linspace(0, 1, 201)))
    rules = [Rule(float(edge), upward) for edge in edges for upward in (True, False)]
    return max(rules, key=lambda rule: rule.bound(pilot, n, delta))


def by_counting(scores: np.ndarray, rule: Rule, delta: float) -> float:
    """Return a lower bound on ε from statistics [N,2] of any kind: how often the rule is right and wrong."""
    return rule.bound(scores, len(scores), delta)
