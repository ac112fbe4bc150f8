"""Canaries: an audit shows most of what is claimed and no more, and faults are seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from canary_cases import federation, loose, tight
from scipy.special import ndtr

from fedpareto import Chain, Data, Federation, Float, Mlp, Privacy, Randomization, Training
from fedpareto.audit import Canary, Points
from fedpareto.audit.bounds import by_fit, counted, epsilon_of, normality
from fedpareto.audit.sampled import Rounds
from fedpareto.mechanisms import BatchCrypt, Quantization, Sparsification
from fedpareto.noise import Noise
from fedpareto.privacy.loss import release_epsilon
from fedpareto.testing import check_attack


def found(points, view, canaries, seed=0):
    """Return what canaries find of each point."""
    return [f.measures for f in Canary(canaries).audit(points, view, seed)]


@pytest.mark.parametrize("case", tight(), ids=lambda case: case.name)
def test_a_canary_in_every_round_shows_much_of_the_claim_and_no_more(one, case):
    (measures,) = found(one(case.problem), case.view, 300)
    assert measures["epsilon"] == case.claim()
    assert 0.7 * case.claim() < measures["epsilon_hat"] <= case.claim()
    assert (measures["form"], measures["alarm"], measures["canaries"]) == ("Gaussian fit", False, 300)
    assert 0 < measures["epsilon_hat_counting"] < measures["epsilon_hat_fit"]


@pytest.mark.parametrize("case", [c for c in loose() if c.view == "release"], ids=lambda case: case.name)
def test_models_alone_show_no_more_than_is_claimed(one, case):
    (measures,) = found(one(case.problem), case.view, 100)
    assert measures["epsilon_hat"] <= case.claim()
    assert not measures["alarm"]


def digits(sampling, view="release", **more):
    """Return the quickstart with its noise fixed."""
    training = Training(0.1, rounds=15, local_epochs=1, batch_size=16, sample_ratio=0.3, sampling=sampling, evaluate_every=15)
    return Federation(Data("digits", 10), Mlp((32,)), training, Randomization(Float("sigma", 0.1, 3.0), 1.0), (), **more)


def at(problem, *sigmas):
    return Points(problem, tuple(range(len(sigmas))), tuple({"sigma": s} for s in sigmas))


@pytest.mark.slow
@pytest.mark.parametrize(("sampling", "view", "sigmas", "share"), [
    ("fixed", "server", (0.5, 3.0), 0.85), ("fixed", "secagg", (0.5, 3.0), 0.85), ("poisson", "server", (1.0, 5.0), 0.85),
    ("poisson", "secagg", (1.0, 3.0), 0.85), ("poisson", "release", (0.3, 1.0), 0.6), ("fixed", "release", (1.0, 2.0), 0.4)])
def test_of_the_quickstart_an_audit_shows_so_much_of_the_claim(sampling, view, sigmas, share):
    for measures in found(at(digits(sampling), *sigmas), view, 1000):
        print(sampling, view, measures)
        assert measures["epsilon"] > 3
        assert share * measures["epsilon"] <= measures["epsilon_hat"] <= measures["epsilon"]


@pytest.mark.slow
def test_of_a_thousand_audits_of_the_server_at_most_five_are_above_the_claim(one):
    points, above = one(federation(1.0, clients=20, cohort=20, rounds=2)), 0
    claim = float(points.claim("server")[0])
    for seed in range(1000):
        measures = Canary(200)._measured(points, "server", seed, 0)[0]  # without trying again
        above += measures["epsilon_hat"] > claim
    print(f"above the claim: {above} of 1000")
    assert above <= 5


# how bounds are found


def test_the_bounds_are_those_of_gaussians():
    for mu, epsilon in [(0.5, 0.3), (1.0, 1.0), (3.0, 8.0)]:
        delta = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        assert epsilon_of(mu, float(delta)) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_of(0.0, 1e-5) == epsilon_of(1e-9, 0.1) == 0.0


def test_a_fit_and_counts_are_below_the_truth_and_near_it():
    draw = np.random.default_rng(0)
    truth = epsilon_of(1.5, 1e-5)
    audits = draw.normal(size=(500, 1000, 1)) + np.array([0.75, -0.75])
    fits = np.array([by_fit(s, 1e-5, 0.999) for s in audits])
    counts = np.array([max(c.gaussian(1e-5) for c in counted(s, 0.0, 0.9995)) for s in audits])
    for estimates, share in ((fits, 0.85), (counts, 0.6)):
        assert np.sum(estimates > truth) <= 4  # half a one expected
        assert np.median(estimates) > share * truth
    assert np.max([max(c.plain(1e-5) for c in counted(s, 0.0, 0.9995)) for s in audits]) < truth


def test_statistics_that_are_not_normal_are_counted(one):
    draw = np.random.default_rng(0)
    assert normality(draw.normal(size=(1000, 2))) > 1e-3
    assert normality(draw.choice([-1.0, 1.0], size=(1000, 2))) < 1e-6


@pytest.mark.parametrize(("z", "q", "rounds"), [(1.0, 0.3, 15), (0.6, 0.1, 40), (3.0, 1.0, 5), (2.0, 0.01, 1)])
def test_the_loss_of_secret_rounds_is_that_of_the_accountants(z, q, rounds):
    """Both compute it from scratch: by densities on a grid here, by connecting the dots there."""
    poisson = Rounds(q, rounds, 1.0, 0.0, 0.0).roc(z).epsilon(1e-5)
    assert poisson == pytest.approx(float(release_epsilon(z, q, rounds, 1e-5)), rel=0.01, abs=1e-3)
    fixed = Rounds(q, rounds, 1.0, -1.0, -1.0).roc(z).epsilon(1e-5)
    claim = float(release_epsilon(z, q, rounds, 1e-5, "fixed"))  # it counts the worse direction in each round
    assert 0.95 * claim - 1e-3 <= fixed <= 1.001 * claim + 1e-3
    both = Rounds(q, rounds, 1.0, -1.0, 0.0).roc(z).epsilon(1e-5)
    assert both == pytest.approx(float(release_epsilon(z, q, rounds, 1e-5, "poisson_replace")), rel=0.01, abs=1e-3)


# faults that an audit must see


def weak(patch):
    """Make noise a tenth too weak."""
    normal = Noise.normal
    patch.setattr(Noise, "normal", lambda self, size: 0.9 * normal(self, size))


def by_halves(patch):
    """Clip either half of an update by itself."""
    protect = Randomization.protect

    def halves(self, upload, values, noise):
        sent = [protect(self, replace(upload, values=half), values, noise).values for half in upload.values.chunk(2, dim=2)]
        return upload.dense(torch.cat(sent, dim=2))

    patch.setattr(Randomization, "protect", halves)


def same_each_round(patch):
    """Draw noise once for all rounds."""
    filled = Noise._filled

    def once(self, size, fill, out=None):
        self.round = 0
        return filled(self, size, fill, out)

    patch.setattr(Noise, "_filled", once)


FAULTS = {"weak": (weak, 2500), "halves": (by_halves, 300), "same each round": (same_each_round, 300)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_more_than_is_claimed_twice(monkeypatch, one, name):
    fault, canaries = FAULTS[name]
    points = one(federation(2.0, clients=20, cohort=20, rounds=3))
    assert not found(points, "server", canaries)[0]["alarm"]
    fault(monkeypatch)
    (measures,) = found(points, "server", canaries)
    assert measures["alarm"]
    assert min(measures["tried_before"], measures["epsilon_hat"]) > measures["epsilon"]


def test_what_is_above_the_claim_once_is_no_alarm(monkeypatch, one):
    measured = Canary._measured

    def lucky(self, points, view, seed, again):
        return [m | {"epsilon_hat": 1e9} if again == 0 else m for m in measured(self, points, view, seed, again)]

    monkeypatch.setattr(Canary, "_measured", lucky)
    (measures,) = found(one(federation(2.0, cohort=5)), "server", 100)
    assert measures["tried_before"] == 1e9
    assert not measures["alarm"]


# what applies, and what is shared


def test_it_says_why_it_does_not_apply(one):
    def why(problem, view="server"):
        return Canary().inapplicable(one(problem), view)

    assert why(federation(mechanism=Sparsification(0.5))) == "no noise is added, so no ε is stated"
    encrypted = Chain((Randomization(1.0, 1.0), BatchCrypt()))
    assert "ciphertexts" in why(federation(mechanism=encrypted))
    assert why(federation(mechanism=encrypted), "secagg") is None
    by_size = replace(federation(1.0), training=replace(federation(1.0).training, weighting="size"))
    assert why(by_size, "secagg") == "no ε is stated: nothing bounds what one client adds to a sum"
    assert why(by_size) is None


def test_uploads_that_are_rounded_after_the_noise_are_counted(one):
    coarse = federation(mechanism=Chain((Randomization(0.7, 1.0), Quantization(2))), cohort=5, delta=0.01)
    (measures,) = found(one(coarse), "server", 300)
    assert measures["form"] == "counting"
    assert 0 < measures["epsilon_hat"] <= measures["epsilon"]


def test_a_server_that_remembers_is_audited_by_what_it_remembers_of(one):
    from fedpareto.federation import Momentum

    problem = federation(0.5, clients=10, cohort=1, rounds=6, sampling="poisson", delta=0.01)
    plain = found(one(problem), "release", 100)[0]
    moved = found(one(replace(problem, server=Momentum(0.9))), "release", 100)[0]
    assert moved["epsilon_hat"] == pytest.approx(plain["epsilon_hat"], rel=1e-3)


def test_on_private_data_no_data_are_touched(one, monkeypatch):
    def refused(*_):
        raise AssertionError("data were loaded")

    problem = federation(2.0, cohort=5, private_data=True)
    (measures,) = found(one(problem), "server", 100)
    assert 0 < measures["epsilon_hat"] <= measures["epsilon"]
    assert problem.data.name not in ("digits",)  # stand-ins are digits, whatever the study's data are


def test_it_holds_what_an_attack_must():
    check_attack(Canary())


def test_points_with_other_rounds_and_cohorts_are_audited_side_by_side():
    from fedpareto import Integer

    training = Training(0.1, rounds=Integer("rounds", 1, 4), local_steps=1, batch_size=4, sample_ratio=Float("sample_ratio", 0.2, 1.0))
    problem = Federation(Data("digits", 10), Mlp((8,)), training, Randomization(1.0, 1.0), ())
    settings = ({"rounds": 1, "sample_ratio": 1.0}, {"rounds": 4, "sample_ratio": 0.3})
    points = Points(problem, (0, 1), settings)
    for view in ("server", "secagg"):
        together = found(points, view, 300)
        claims = points.claim(view)
        for i, measures in enumerate(together):
            assert 0.7 * claims[i] < measures["epsilon_hat"] <= claims[i]


def test_the_settings_of_canaries_are_checked():
    from fedpareto.errors import SettingError

    with pytest.raises(SettingError, match="canaries: must be at least 100, found 10"):
        Canary(canaries=10)
    assert Canary(1000).within(0.5).canaries == 500
    assert Canary(1000).within(1e-9).canaries == 100


def test_privacy_by_record_is_audited_with_a_client_that_turns_over(one):
    problem = replace(federation(2.0, cohort=5), privacy=Privacy(target_delta=1e-5, unit="record"))
    (measures,) = found(one(problem), "server", 300)
    assert measures["unit"] == "record"
    assert 0.7 * measures["epsilon"] < measures["epsilon_hat"] <= measures["epsilon"]
