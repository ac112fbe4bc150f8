"""From an auditor's statistics in two neighbouring worlds to an ε that holds at 99.9 % confidence.

Nothing here is fedpareto's: accountants must not audit themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import beta, chi2, t

ALPHA = 1e-3


def epsilon_of(mu: float, delta: float) -> float:
    """Return ε at δ where two Gaussians are mu spreads apart: δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)."""
    if mu <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        return float(np.exp(log_ndtr(mu / 2 - epsilon / mu)) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, mu**2 / 2 + 40 * mu, xtol=1e-10))


def by_fit(scores: np.ndarray, delta: float) -> float:
    """Return a lower bound on ε from statistics [N,2] that are Gaussian with the same spread in both worlds.

    The rows share their noise, so the difference of means is taken pair by pair; it and the spread have half of
    the error each.
    """
    n = len(scores)
    apart = scores[:, 0] - scores[:, 1]
    least = apart.mean() - t.ppf(1 - ALPHA / 2, n - 1) * apart.std(ddof=1) / n**0.5
    spread = scores.std(axis=0, ddof=1).max() * ((n - 1) / chi2.ppf(ALPHA / 2, n - 1)) ** 0.5
    return epsilon_of(least / spread, delta)


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
