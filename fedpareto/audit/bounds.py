"""From an auditor's statistics in two neighbouring worlds to an ε that the mechanism cannot beat.

Nothing here is the accountants': who is audited does not hold the scales. Statistics are log
ratios of likelihoods [N,2], of worlds with the canary and without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri
from scipy.stats import beta, chi2, kstest, t

from fedpareto.space import FloatArray


def epsilon_of(mu: float, delta: float) -> float:
    """Return ε at δ where two Gaussians are μ spreads apart.

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), Balle and Wang 2018.
    """
    if mu <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        first = np.exp(log_ndtr(mu / 2 - epsilon / mu))
        second = np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        return float(first - second) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu**2 / 2 + 40 * mu, xtol=1e-10))


def by_fit(scores: FloatArray, delta: float, confidence: float) -> float:
    """Return a lower bound on ε from statistics that are Gaussian, as spread in both worlds.

    A pair shares its noise, so the difference of means is taken pair by pair; it and the spread
    have half of the error each.
    """
    n, error = len(scores), 1 - confidence
    apart = scores[:, 0] - scores[:, 1]
    least = apart.mean() - t.ppf(1 - error / 2, n - 1) * apart.std(ddof=1) / n**0.5
    spread = scores.std(axis=0, ddof=1).max() * ((n - 1) / chi2.ppf(error / 2, n - 1)) ** 0.5
    return epsilon_of(float(least / spread), delta)


def normality(scores: FloatArray) -> float:
    """Return how likely normal statistics would look as little normal as these do."""
    z = (scores - scores.mean(0)) / scores.std(0, ddof=1)
    # mean and spread are fitted, which makes the test lenient: it is asked for gross misfits
    return float(min(1.0, 2 * min(kstest(column, "norm").pvalue for column in z.T)))


@dataclass(frozen=True)
class Counted:
    """How often "in" is said above a threshold: at least rightly, at most wrongly."""

    right: float
    wrong: float

    def plain(self, delta: float) -> float:
        """Return ε = log((right − δ) / wrong), which rests on nothing but the counts."""
        return float(np.log((self.right - delta) / self.wrong)) if self.apart(delta) else 0.0

    def apart(self, delta: float) -> bool:
        return self.right - delta > self.wrong > 0

    def gaussian(self, delta: float) -> float:
        """Return ε of the Gaussian mechanism that is right and wrong as often (Nasr 2023)."""
        if self.right >= 1 or self.wrong <= 0:
            return 0.0
        return epsilon_of(float(ndtri(self.right) - ndtri(self.wrong)), delta)


def counted(scores: FloatArray, threshold: float, confidence: float) -> tuple[Counted, Counted]:
    """Return what counting says of "in" above a threshold, and of "out" up to it.

    Bounds are Clopper and Pearson's, each with half the error.
    """
    says = (scores > threshold).sum(0)
    n = len(scores)
    return (
        _counted(int(says[0]), int(says[1]), n, confidence),
        _counted(n - int(says[1]), n - int(says[0]), n, confidence),
    )


def _counted(right: int, wrong: int, n: int, confidence: float) -> Counted:
    half = (1 - confidence) / 2
    low = float(beta.ppf(half, right, n - right + 1)) if right else 0.0
    high = float(beta.ppf(1 - half, wrong + 1, n - wrong)) if wrong < n else 1.0
    return Counted(low, high)


def promising(right: FloatArray, wrong: FloatArray, n: int, confidence: float) -> int:
    """Return at which of some thresholds n samples are expected to say most.

    right and wrong are how often a rule is right and wrong by what is stated, so that no audit
    chooses its threshold by its own samples.
    """
    best = [
        ndtri(max(c.right, 1e-300)) - ndtri(min(c.wrong, 1 - 1e-16))
        for c in (
            _counted(round(r * n), round(w * n), n, confidence)
            for r, w in zip(right, wrong, strict=True)
        )
    ]
    return int(np.argmax(best))
