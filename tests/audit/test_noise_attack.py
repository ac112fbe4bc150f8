"""The noise as a white box: as stated it passes, and each fault put in is found by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedpareto import Chain, Data, Federation, Float, Mlp, Privacy, Randomization, Training
from fedpareto.audit import Points, WhiteBox
from fedpareto.federation import Momentum, setup
from fedpareto.federation import run as engine
from fedpareto.federation.cohorts import drawn
from fedpareto.mechanisms import Pruning, Quantization
from fedpareto.noise import Noise
from fedpareto.testing import check_attack

VIEWS = ("server", "secagg", "release")
SEARCHED = Float("sigma", 0.1, 3.0)


def points(sampling="fixed", mechanism=None, sigmas=(0.5, 2.0), private=False, **more):
    training = Training(0.1, rounds=12, local_steps=1, batch_size=8, sampling=sampling, sample_ratio=0.25)
    mechanism = mechanism or Randomization(SEARCHED, 1.0)
    problem = Federation(Data("digits", 12), Mlp((8,)), training, mechanism, (), privacy=Privacy(private_data=private), **more)
    return Points(problem, tuple(range(len(sigmas))), tuple({"sigma": s} for s in sigmas))


def found(asked, view, seed=0):
    return [f.measures for f in WhiteBox().audit(asked, view, seed)]


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize("view", VIEWS)
def test_noise_as_it_is_stated_is_found_to_be_so(view, sampling):
    for measures in found(points(sampling), view):
        assert not measures["alarm"]
        assert measures["least"] > 1e-6
        assert measures["strength"] == pytest.approx(1.0, abs=0.02)
        assert measures["kurtosis"] == pytest.approx(3.0, abs=0.15)


@pytest.mark.parametrize("mechanism", [
    Chain((Pruning(0.5), Randomization(SEARCHED, 1.0))), Chain((Quantization(4), Randomization(SEARCHED, 1.0))),
    Randomization(SEARCHED, 4.0, clipping="printed")], ids=["pruning", "quantization", "printed"])
def test_noise_behind_other_links_or_other_clipping_is_as_stated(mechanism):
    for view in VIEWS:
        assert not any(m["alarm"] for m in found(points(mechanism=mechanism), view))


class Faulty(Noise):
    """Noise with a fault in its normal numbers."""

    def __init__(self, fault, *terms):
        super().__init__(*terms)
        self.fault = fault

    def normal(self, size):
        return self.fault(super().normal(size))


def drawing(fault):
    return lambda patch: patch.setattr(setup, "Noise", lambda *terms: Faulty(fault, *terms))


def streams(fault):
    return lambda patch: patch.setattr(setup, "Noise", lambda *terms: Noise(*fault(*terms)))


def uniform(z):
    return (torch.special.ndtr(z.double()) * 2 - 1).float() * 3**0.5


def by_halves(patch):
    right = Randomization.protect

    def protect(mechanism, upload, values, noise):
        clip = values["clipping_norm"][:, None, None]
        halves = upload.values.double().chunk(2, 2)
        short = [half * (clip / half.norm(dim=2, keepdim=True).clamp_min(1e-30)).clamp_max(1) for half in halves]
        unbounded = {**values, "clipping_norm": values["clipping_norm"] * 1e6}
        return right(mechanism, replace(upload, values=torch.cat(short, 2).float()), unbounded, noise)

    patch.setattr(Randomization, "protect", protect)


def one_for_all(seed, t, who, device):
    return seed, t, [0] * len(who), device


def same_cohort(patch):
    patch.setattr(engine, "drawn", lambda seed, round, *terms: drawn(seed, 0, *terms))


def not_topped_up(patch):
    patch.setattr("fedpareto.mechanisms.randomization._topped_up", lambda values: 1.0)


FAULTS = {
    "10 % too weak": (drawing(lambda z: 0.9 * z), "fixed", VIEWS, "variance "),
    "uniform": (drawing(uniform), "fixed", ("server", "secagg"), "kurtosis "),
    "shared by clients": (streams(one_for_all), "fixed", ("server",), "rows alike "),
    "shared by clients, sums": (streams(one_for_all), "fixed", ("secagg", "release"), "variance "),
    "shared by rounds": (streams(lambda seed, t, *rest: (seed, 0, *rest)), "fixed", ("server",), "sums over each round "),
    "shared by trainings": (streams(lambda seed, *rest: (0, *rest)), "fixed", ("server",), "rows alike "),
    "clipped by halves": (by_halves, "fixed", ("server",), "along what was sent "),
    "not topped up": (not_topped_up, "poisson", ("server", "secagg"), "variance "),
    "the same cohort": (same_cohort, "fixed", ("server",), "cohorts of rounds alike "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_twice_and_named(monkeypatch, fault):
    put_in, sampling, views, name = FAULTS[fault]
    put_in(monkeypatch)
    for view in views:
        (measures,) = found(points(sampling, sigmas=(0.5,)), view)
        assert measures["alarm"]
        assert measures["why"].startswith("noise is not as stated, twice: ")
        assert name in measures["why"]


def test_on_private_data_noise_that_trials_share_is_found(monkeypatch):
    asked = points(private=True)
    assert not any(m["alarm"] for m in found(asked, "server"))
    monkeypatch.setattr("fedpareto.audit.noise.row_seeds", lambda problem, values, seeds: list(seeds))
    for measures in found(asked, "server"):
        assert measures["alarm"]
        assert "trials alike" in measures["why"]


def test_what_is_unlikely_once_is_no_alarm(monkeypatch):
    looked = WhiteBox._looked

    def unlucky(self, asked, view, seed, again):
        return [m if again else m | {"least": 0.0, "chances": m["chances"] | {"mean": 0.0}} for m in looked(self, asked, view, seed, again)]

    monkeypatch.setattr(WhiteBox, "_looked", unlucky)
    assert not any(m["alarm"] for m in found(points(), "secagg"))


def test_it_says_why_it_does_not_apply():
    def why(view="server", **more):
        return WhiteBox().inapplicable(points(sigmas=(), **more), view)

    assert why(mechanism=Pruning(0.5)) == "no noise is added"
    noisy = Randomization(SEARCHED, 1.0)
    last = "the noise is not the last that is done to an update"
    assert why(mechanism=Chain((noisy, Quantization(2)))) == last
    assert why(mechanism=replace(noisy, of="parameters")) == last
    assert why("release", server=Momentum(0.9)) == "the server remembers earlier rounds: its sums are looked at from view secagg"
    plain = points(sigmas=())
    by_size = replace(plain, problem=replace(plain.problem, training=replace(plain.problem.training, weighting="size")))
    assert WhiteBox().inapplicable(by_size, "secagg") == "sums are weighed by size, so that their noise is not stated"
    assert WhiteBox().inapplicable(by_size, "server") is None


def test_points_without_noise_that_can_be_seen_are_no_alarm_and_say_so():
    from fedpareto.audit import Canary
    from fedpareto.audit.words import sentence

    asked = points(mechanism=Randomization(Float("sigma", 0.0, 3.0), 1.0), sigmas=(0.0, 0.5, 1e-9))
    for attack in (WhiteBox(), Canary(100)):
        for view in VIEWS:
            none, noisy, faint = (f.measures for f in attack.audit(asked, view, 0))
            assert none == faint == {"without": "no noise, or too little beside the rounding of numbers", "alarm": False}
            assert sentence(none) == none["without"]
            assert not noisy["alarm"]
            assert {"epsilon_hat", "strength"} & set(noisy)
        assert attack.seconds(asked.at([0]), "server") == 0


def test_where_nobody_came_nothing_is_said():
    asked = points("poisson", sigmas=(0.5,))
    alone = replace(asked.problem, training=replace(asked.problem.training, sample_ratio=1 / 12, rounds=2))
    short = WhiteBox(rounds=2, trainings=2)
    lonely = Points(alone, (0,), ({"sigma": 0.5},))
    seen = [short.audit(lonely, "server", seed)[0].measures for seed in (174, 175)]  # in the second nobody ever comes
    assert seen[0]["numbers"] > 0
    assert seen[1] == {"numbers": 0, "chances": {}, "least": 1.0, "alarm": False}


def test_it_holds_what_an_attack_must():
    check_attack(WhiteBox())
    assert WhiteBox().within(0.5).rounds == 6
