"""Bounds of audits beside those of other libraries: exact intervals of scipy, and the Gaussian mechanism of dp-accounting."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from scipy.stats import binomtest

from fedpareto.audit.bounds import Counted, by_fit, counted, epsilon_of


def of_library(mu: float, delta: float) -> float:
    """Return ε of a Gaussian mechanism whose noise is 1/μ of what it hides, as dp-accounting counts it."""
    return float(PLDAccountant().compose(dp_event.GaussianDpEvent(1 / mu)).get_epsilon(delta))


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.0])
def test_the_gaussian_that_is_fitted_has_the_epsilon_of_dp_accounting(mu):
    for delta in (1e-3, 1e-6):
        assert epsilon_of(mu, delta) == pytest.approx(of_library(mu, delta), rel=2e-3, abs=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_counts_are_bounded_as_scipy_bounds_them(seed):
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=(500, 2)) + np.array([1.0, -1.0])
    says = (scores > 0.3).sum(0)
    found, confidence = counted(scores, 0.3, 0.999)[0], 0.999
    right, wrong = (binomtest(int(k), 500).proportion_ci(confidence, method="exact") for k in says)
    assert found == Counted(pytest.approx(right.low), pytest.approx(wrong.high))
    assert found.plain(1e-5) == pytest.approx(np.log((right.low - 1e-5) / wrong.high))


def test_a_fit_is_below_what_the_library_counts_of_the_true_spreads():
    draw = np.random.default_rng(0)
    for mu in (0.5, 2.0):
        truth = of_library(mu, 1e-5)
        found = [by_fit(draw.normal(size=(1000, 1)) + np.array([mu / 2, -mu / 2]), 1e-5, 0.999) for _ in range(200)]
        assert sum(f > truth for f in found) <= 2
        assert 0.6 * truth < np.median(found) < truth
