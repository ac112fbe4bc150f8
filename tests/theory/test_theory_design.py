"""The low-cost design: noise and front from k, rounds from a time limit, and what searching by training would have cost."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fedpareto import theory
from fedpareto.errors import SettingError

ESTIMATE = theory.Estimate(25.0, (20.0, 30.0), -1.0, (-1.1, -0.9), 12, 3, 8, "k = 25.")


def test_a_time_limit_allows_whole_rounds():
    assert theory.rounds_within(100, 3) == 33
    assert theory.rounds_within(0.3, 0.1) == 3  # 2.9999999999999996 in floats
    with pytest.raises(SettingError, match=r"seconds: must allow at least one round and no more than 1e15, found 1 s for rounds of 2 s"):
        theory.rounds_within(1, 2)
    with pytest.raises(SettingError, match=r"seconds_per_round: must be finite and above 0, found 0."):
        theory.rounds_within(1, 0)
    with pytest.raises(SettingError, match=r"seconds: must be finite and above 0, found nan."):
        theory.rounds_within(math.nan, 1)


def test_the_noise_of_the_real_federation_follows_from_k():
    """Gu 2024, V-D: K = 40, q = 0.5; kσ²T = qK."""
    made = theory.design(ESTIMATE, clients=40, sample_ratio=0.5, rounds_max=200)
    assert made.rounds == 200
    assert made.sigma == pytest.approx(math.sqrt(20 / (25 * 200)))
    assert made.sigma_interval == pytest.approx((math.sqrt(20 / (30 * 200)), math.sqrt(20 / (20 * 200))))
    assert theory.is_pareto(made.front["rounds"], made.front["sigma"], 25, 40, 0.5, 200).all()
    assert made.message == "Train 200 rounds with σ = 0.06325. k = 25."


def test_noise_outside_the_range_is_brought_to_its_end_and_said():
    made = theory.design(ESTIMATE, clients=40, sample_ratio=0.5, rounds_max=200, rounds=10, sigma_max=0.1)
    assert (made.sigma, made.sigma_interval) == (0.1, (0.1, 0.1))
    assert made.message.startswith("Train 10 rounds with σ = 0.1. The law asks for σ = 0.2828, which lies outside the range allowed.")
    assert theory.is_pareto(10, made.sigma, 25, 40, 0.5, 200, 0.1)
    low = theory.design(ESTIMATE, clients=40, sample_ratio=0.5, rounds_max=200, sigma_min=0.1)
    assert low.sigma == 0.1
    assert low.front["sigma"].min() == 0.1


def test_a_design_is_plain():
    made = theory.design(ESTIMATE, clients=40, sample_ratio=0.5, rounds_max=3, points=2)
    plain = json.loads(json.dumps(made.as_plain(), allow_nan=False))
    assert {"k", "k_interval", "sigma", "front", "slope", "rounds", "rounds_max"} <= set(plain)
    assert plain["k_interval"] == [20.0, 30.0]
    assert len(plain["front"]) == 6
    assert set(plain["front"][0]) == {"rounds", "sigma", "f1", "f2"}


def test_impossible_designs_are_refused_in_words():
    with pytest.raises(SettingError, match=r"rounds: must be at most rounds_max, found 20 and 10. Ask for fewer rounds or allow more."):
        theory.design(ESTIMATE, clients=40, sample_ratio=0.5, rounds_max=10, rounds=20)
    with pytest.raises(SettingError, match=r"sample_ratio: must ask for at least one client, found 0.01 of 40 clients. Raise it to 0.025."):
        theory.design(ESTIMATE, clients=40, sample_ratio=0.01, rounds_max=10)


SIGMA = np.array([0.05, 0.1, 0.2])
LOSSES = np.array([[1.0, 0.5, 0.4, 0.35, 0.3, 0.3], [1.1, 0.7, 0.7, 0.7, 0.69, 0.69], [1.5, 1.4, 1.3, 1.2, 1.1, 1.0]])
RUNS = theory.Runs.of(SIGMA, 1.0, np.stack([LOSSES - 0.1, LOSSES + 0.1], axis=1))  # [3,2,6]


def by_hand():
    """Return every (rounds, σ, loss, leakage) as tuples."""
    return [(t + 1, s, LOSSES[i, t], math.sqrt(t + 1) / s) for i, s in enumerate(SIGMA) for t in range(6)]


def test_a_full_grid_keeps_what_none_dominates_and_trains_everything():
    found = theory.full_grid(RUNS)
    expected = [(T, s) for T, s, loss, leak in by_hand()
                if not any(lo <= loss + 1e-12 and le <= leak and (lo < loss - 1e-12 or le < leak) for _, _, lo, le in by_hand())]
    assert sorted(zip(found.points["rounds"].tolist(), found.points["sigma"].tolist(), strict=True)) == sorted(expected)
    assert found.cost == theory.Spending(6, 36)
    assert found.cost.seconds(0.5) == 18.0


@pytest.mark.parametrize("limit", [6.0, 12.0, 25.0, 30.0, 45.0])
def test_training_with_budget_finds_the_least_loss_and_stops_at_the_limit(limit):
    found = theory.with_budget(RUNS, limit)
    allowed = [row for row in by_hand() if row[3] <= limit]
    best = min(allowed, key=lambda row: row[2])
    assert found.points[["rounds", "sigma"]].tolist() == [best[:2]]
    assert found.points["loss"][0] == pytest.approx(best[2])
    assert found.cost == theory.Spending(2 * len({row[1] for row in allowed}), 2 * len(allowed))


def test_many_budgets_share_their_trainings():
    found = theory.with_budget(RUNS, [6.0, 30.0])
    assert len(found.points) == 2
    assert found.cost == theory.with_budget(RUNS, 30.0).cost


def test_a_budget_nobody_keeps_finds_nothing_and_costs_nothing():
    found = theory.with_budget(RUNS, 1.0)
    assert (len(found.points), found.cost) == (0, theory.Spending(0, 0))


def test_training_until_convergence_keeps_the_least_leakage():
    found = theory.until_convergence(RUNS, tolerance=0.02, patience=2)
    # σ = 0.05 never stops, 0.1 stops after round 4, 0.2 never stops: leakage 49, 20, 12.2
    assert found.points[["rounds", "sigma"]].tolist() == [(6, 0.2)]
    assert found.cost == theory.Spending(6, 2 * (6 + 4 + 6))
    whole = theory.until_convergence(RUNS, tolerance=0.02, patience=2, whole_front=True)
    assert whole.points["sigma"].tolist() == [0.05, 0.1, 0.2]


def test_a_training_that_diverged_is_never_chosen():
    loss = RUNS.loss.copy()
    loss[2, 0, :] = np.nan
    runs = theory.Runs.of(SIGMA, 1.0, loss)
    for found in (theory.full_grid(runs), theory.with_budget(runs, 100.0), theory.until_convergence(runs, whole_front=True)):
        assert 0.2 not in found.points["sigma"]
        assert np.isfinite(found.points["loss"]).all()
    nothing = theory.Runs.of(SIGMA, 1.0, np.full((3, 2, 6), np.nan))
    for found in (theory.full_grid(nothing), theory.with_budget(nothing, 100.0), theory.until_convergence(nothing)):
        assert len(found.points) == 0


def test_the_law_costs_its_pre_experiments_and_what_is_trained_for_good():
    """Tables II and III: t₀ + T_r, and t₀ + n_σ·T_r."""
    pre = theory.Spending(8, 400)
    assert theory.law_cost(pre, 200) == theory.Spending(9, 600)
    assert theory.law_cost(pre, 200, settings=15) == theory.Spending(23, 3400)


def test_leakage_may_be_given_and_is_checked():
    leakage = np.tile(np.arange(1.0, 7.0), (3, 1))
    assert theory.Runs.of(SIGMA, 1.0, RUNS.loss, leakage).leakage is not None
    with pytest.raises(SettingError, match=r"leakage: must have a number for each setting and round, \(3, 6\), found \(2, 6\)."):
        theory.Runs.of(SIGMA, 1.0, RUNS.loss, leakage[:2])
    with pytest.raises(SettingError, match=r"runs: must have sigma \[n\], .* found \(2,\), \(\) and \(3, 2, 6\)."):
        theory.Runs.of(SIGMA[:2], 1.0, RUNS.loss)
    with pytest.raises(SettingError, match=r"limits: must be finite and above 0, found -1."):
        theory.with_budget(RUNS, -1.0)


def test_design_from_a_small_experiment_predicts_the_real_front():
    """The whole way on Eq. 8: a grid at K₀ = 10, q₀ = 1 gives k; the noise at K = 40, q = 0.5 is Pareto-optimal up to k's error."""
    sigmas = np.linspace(0.02, 0.2, 12)
    small = theory.ClosedForm(k=25.0, clients=10, noise=0.005)
    losses = small.every_round({"sigma": np.repeat(sigmas, 2).tolist(), "rounds": [100] * 24}, [1, 2] * 12)["utility_loss"]
    found = theory.full_grid(theory.Runs.of(sigmas, 1.0, losses.reshape(12, 2, 100)))
    estimate = theory.estimate_k(found.points["rounds"], found.points["sigma"], 10, 1.0, rounds_max=100, sigma_min=0.02, sigma_max=0.2)
    assert estimate.k == pytest.approx(25, rel=0.1)
    assert estimate.interval[0] < 25 < estimate.interval[1]
    made = theory.design(estimate, clients=40, sample_ratio=0.5, rounds_max=200)
    assert made.sigma_interval[0] < theory.sigma_of(200, 25, 40, 0.5) < made.sigma_interval[1]
    assert found.cost.trainings == 24
