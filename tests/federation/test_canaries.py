"""Canaries trained by the engine itself: no auditor shows more than the ε that is claimed, and faults are seen.

An auditor knows everything but the canary and the noise of honest clients. Neighbours are those that an ε is claimed
for: a client that sends nothing, or the opposite; for secret Poisson sampling also one that was never there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from canaries import Auditor, Case, Idle, scores
from canary_bounds import by_counting, by_fit, chosen
from canary_cases import federation, long_run, loose, tight
from scipy.special import ndtr

from fedpareto import Chain, Randomization
from fedpareto.audit.bounds import epsilon_of
from fedpareto.mechanisms import BatchCrypt
from fedpareto.noise import Noise

SEEDS = 1_000_000  # of each case, which no other has


def found(case, audits, canaries, first, pilot=0, auditor=Auditor):
    """Return ε̂ of so many independent audits of a case, each of so many canaries."""
    each = canaries // len(case.canaries)
    canaries = each * len(case.canaries)
    delta = case.delta()
    start = first + pilot
    seen = scores(case, range(start, start + audits * each), auditor).reshape(audits, canaries, 2)
    if case.exact:
        return np.array([by_fit(s, delta) for s in seen])
    rule = chosen(scores(case, range(first, start), auditor), canaries, delta)
    return np.array([by_counting(s, rule, delta) for s in seen])


def shown(case, found, claim):
    """Print what a case showed."""
    ratios = found / claim
    print(f"{case.name}: claim {claim:.3f}, {len(found)} audits, above {(found > claim).sum()}, "
          f"ε̂/claim median {np.median(ratios):.2f}, most {ratios.max():.2f}", flush=True)


# the quick ones


def quick():
    """Return some of the cases that are audited at length, and two of the models alone with little noise."""
    little = federation(0.4, clients=2, cohort=1, rounds=2, sampling="poisson", delta=0.01)
    fixed = federation(0.6, clients=4, cohort=2, rounds=2, delta=0.01)
    names = ("server, fixed", "server, fixed, replaced, 3 rounds", "secagg, fixed", "secagg, poisson, 2 collude")
    return [case for case in tight() if case.name in names] + [
        Case("release, poisson, absent", "release", little, neighbour="absent", secret=True),
        Case("release, fixed, replaced", "release", fixed, neighbour="opposite", rest=-1.0, secret=True),
    ]


@pytest.mark.parametrize("case", quick(), ids=lambda case: case.name)
def test_an_audit_shows_no_more_than_is_claimed(case):
    (estimate,) = found(case, 1, 100, 90 * SEEDS, pilot=50)
    assert (0.5 * case.claim() if case.exact else 0) < estimate <= case.claim()


def test_the_auditors_bounds_are_those_of_gaussians():
    for mu, epsilon in [(0.5, 0.3), (1.0, 1.0), (3.0, 8.0)]:
        delta = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        assert epsilon_of(mu, float(delta)) == pytest.approx(epsilon, rel=1e-6)
    draw = np.random.default_rng(0)
    noise = draw.normal(size=(500, 500, 1))
    fits = [by_fit(s, 1e-5) for s in noise + np.array([1.0, 0.0])]
    above = np.sum(np.array(fits) > epsilon_of(1.0, 1e-5))
    assert above <= 4  # half a one expected
    assert np.median(fits) > 0.85 * epsilon_of(1.0, 1e-5)


def test_counting_is_right_as_often_as_it_says():
    draw = np.random.default_rng(1)
    flips = draw.random((1000, 100, 2)) < np.array([0.75, 0.25])  # randomized response: ε = log 3
    rule = chosen(flips[:40].reshape(-1, 2).astype(float), 100, 0.0)
    estimates = np.array([by_counting(s.astype(float), rule, 0.0) for s in flips])
    assert np.sum(estimates > np.log(3)) <= 5  # at most one expected
    assert np.median(estimates) > 0.2


# faults that the auditors must see


def weak(monkeypatch):
    """Make noise a tenth too weak."""
    normal = Noise.normal
    monkeypatch.setattr(Noise, "normal", lambda self, size: 0.9 * normal(self, size))


def by_halves(monkeypatch):
    """Clip either half of an update by itself."""
    protect = Randomization.protect

    def halves(self, upload, values, noise):
        sent = [protect(self, replace(upload, values=half), values, noise).values for half in upload.values.chunk(2, dim=2)]
        return upload.dense(torch.cat(sent, dim=2))

    monkeypatch.setattr(Randomization, "protect", halves)


def same_each_round(monkeypatch):
    """Draw noise once for all rounds."""
    filled = Noise._filled

    def once(self, size, fill, out=None):
        self.round = 0
        return filled(self, size, fill, out)

    monkeypatch.setattr(Noise, "_filled", once)


def not_shared(monkeypatch):
    """Let each client add its noise as if as many came as expected, however many did."""
    monkeypatch.setattr("fedpareto.mechanisms.randomization._topped_up", lambda values: 1.0)


def lost_as_fixed(monkeypatch):
    """Price noise that is lost under Poisson sampling as if the cohort had a fixed size."""
    def root(noise, cohort, sampling, lost=0):
        return noise * (cohort - lost) ** 0.5

    monkeypatch.setattr("fedpareto.privacy.accounting.on_the_sum", root)


def noise_on_the_sum(monkeypatch):
    """Allow noise after an encrypted sum."""
    monkeypatch.setattr(Chain, "_check_order", lambda self: None)


def server(*given, **settings):
    """Return a case of single uploads in which everyone is a canary."""
    problem = federation(*given, clients=10, cohort=10, **settings)
    return Case("server", "server", problem, came="everyone", canaries=tuple(range(10)), exact=True)


def secagg(*given, **settings):
    """Return a case of sums in which the canary is in every round."""
    colluders = tuple(range(1, 1 + settings.get("colluders", 0)))
    return Case("secagg", "secagg", federation(*given, **settings), came="forced", colluders=colluders, exact=True)


FAULTS = {
    "noise a tenth too weak": (weak, server, 2000),
    "clipping by halves": (by_halves, server, 250),
    "clipping by halves, sums": (by_halves, lambda: secagg(0.6, cohort=3), 200),
    "the same noise in every round": (same_each_round, lambda: server(3.0, rounds=3), 300),
    "noise that is not topped up": (not_shared, lambda: secagg(cohort=4, sampling="poisson", colluders=1), 100),
    "lost noise priced as that of fixed cohorts": (lost_as_fixed, lambda: secagg(clients=6, cohort=5, sampling="poisson", colluders=3), 150),
    "noise on an encrypted sum": (noise_on_the_sum, lambda: secagg(mechanism=Chain((BatchCrypt(), Randomization(2.0, 1.0))), cohort=4), 50),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_more_than_is_claimed(monkeypatch, name):
    fault, made, canaries = FAULTS[name]
    fault(monkeypatch)
    case = made()
    (estimate,) = found(case, 1, canaries, 91 * SEEDS)
    assert estimate > case.claim()


def unprotected(case, canaries, pilot):
    """Return ε̂ of an auditor who looks for models that stay as they were, and the claim."""
    (estimate,) = found(case, 1, canaries, 92 * SEEDS, pilot, Idle)
    return estimate, case.claim()


def test_empty_rounds_without_noise_show_who_was_there(monkeypatch):
    problem = federation(9.0, clients=2, cohort=1, rounds=8, sampling="poisson", delta=0.01)
    case = Case("release", "release", problem, neighbour="absent", secret=True)
    assert not scores(case, range(10), Idle).any()
    monkeypatch.setattr("fedpareto.federation.run.missing_noise", lambda *_: None)
    estimate, claim = unprotected(case, 140, 60)
    assert estimate > claim


# the long ones


@pytest.mark.slow
def test_empty_rounds_without_noise_show_one_client_of_ten(monkeypatch):
    problem = federation(8.0, clients=10, cohort=1, rounds=50, sampling="poisson", delta=0.01)
    case = Case("release", "release", problem, neighbour="absent", secret=True)
    monkeypatch.setattr("fedpareto.federation.run.missing_noise", lambda *_: None)
    estimate, claim = unprotected(case, 500, 100)
    print(f"ε̂ {estimate:.3f}, claim {claim:.3f}")
    assert estimate > claim


@pytest.mark.slow
def test_noise_a_tenth_too_weak_shows_in_sums(monkeypatch):
    weak(monkeypatch)
    case = secagg(0.6, cohort=3)
    (estimate,) = found(case, 1, 3000, 91 * SEEDS)
    assert estimate > case.claim()


@pytest.mark.slow
@pytest.mark.parametrize("case", tight(), ids=lambda case: case.name)
def test_a_canary_in_every_round_shows_most_of_the_claim(case):
    claim = case.stated()
    estimates = found(case, 1, 2000, 93 * SEEDS)
    shown(case, estimates, claim)
    assert claim >= 3
    assert 0.85 * claim <= estimates[0] <= claim


@pytest.mark.slow
def test_of_a_thousand_audits_no_more_are_above_the_claim_than_by_chance():
    plan = [(case, 40, 200 if len(case.canaries) > 1 else 100) for case in tight()] + [(case, 19, 200) for case in loose()] + [(long_run(), 18, 300)]
    assert sum(audits for _, audits, _ in plan) == 1000
    above = 0
    for i, (case, audits, canaries) in enumerate(plan):
        claim = case.stated()
        estimates = found(case, audits, canaries, i * SEEDS, pilot=190)
        shown(case, estimates, claim)
        above += int((estimates > claim).sum())
    print(f"above the claim: {above} of 1000")
    assert above <= 5
