"""The noise that training adds is the noise that is stated; an engine that adds another is found out.

The engine trains, an observer plants updates, and what each view sees beyond their clipped sum is tested: it must
be independent Gaussian noise of the stated strength. The same checks must fail on engines with a fault put in.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from noise_checks import VIEWS, Terms, Watch, check_clipping, check_noise, draws

from fedpareto import Chain, Data, Federation, Float, Lr, Mlp, Privacy, Randomization, Training
from fedpareto.federation import block as blocks_of_federations
from fedpareto.federation import blocks, setup
from fedpareto.federation import run as engine
from fedpareto.federation.block import prepare
from fedpareto.federation.cohorts import drawn
from fedpareto.federation.setup import Setup
from fedpareto.mechanisms import Pruning, Quantization, Sparsification, randomization
from fedpareto.noise import Noise

FIXED = Terms(0.5, 2.0, 3, 12)
POISSON = replace(FIXED, cohort=2, sampling="poisson")
MODEL = Mlp((32,))  # 2410 parameters
LONG = {"rounds": 105, "seeds": range(4)}  # 420 sums of 2410 numbers, a million in all
SHORT = {"rounds": 12, "seeds": range(3)}


def federation(terms, rounds, mechanism=None, model=MODEL, **more):
    """Return a federation with these terms, and local training as short as can be."""
    training = Training(0.1, rounds=rounds, local_steps=1, batch_size=1, sampling=terms.sampling,
                        sample_ratio=terms.cohort / terms.clients, evaluate_every=rounds, device="cpu")
    mechanism = mechanism or Randomization(terms.sigma, terms.clip)
    return Federation(Data("digits", terms.clients), model, training, mechanism, (), block=1, **more)


def watched(terms, rounds, seeds, mechanism=None, zeros=False, model=MODEL):
    """Train one federation for each seed and return what was seen of it."""
    found = []
    for seed in seeds:
        found.append(Watch(terms, zeros))
        federation(terms, rounds, mechanism, model).train({}, seed, found[-1])
    return found


# the noise as it is


@pytest.mark.parametrize("terms", [pytest.param(FIXED, marks=pytest.mark.slow), POISSON], ids=["fixed", "poisson"])
def test_a_million_draws_are_independent_gaussian_noise_of_the_stated_strength(terms):
    found = watched(terms, **LONG)
    assert all(draws(found, view).values.size >= 1e6 for view in VIEWS)
    came = np.concatenate([watch.present() for watch in found]).sum(2)
    assert set(came.ravel()) >= ({0, 1, 2, 3, 4} if terms is POISSON else {3})
    check_noise(found)


def test_cohorts_of_fixed_size_have_such_noise_too():
    check_noise(watched(FIXED, **SHORT))


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_a_noise_multiplier_is_the_noise_on_the_sum_in_units_of_the_norm(sampling):
    terms = Terms(1.5 * 2.0 / 3**0.5, 2.0, 3, 12, sampling)
    assert terms.of_sum == pytest.approx(1.5 * 2.0)
    check_noise(watched(terms, **SHORT, mechanism=Randomization(clipping_norm=2.0, noise_multiplier=1.5)))


@pytest.mark.parametrize(("first", "sampling"), [
    (Pruning(0.5), "poisson"), (Quantization(4), "fixed"), (Sparsification(private_fraction=0.5), "fixed")])
def test_at_the_end_of_a_chain_noise_lies_on_every_number(first, sampling):
    terms = replace(FIXED, sampling=sampling)
    chain = Chain((first, Randomization(terms.sigma, terms.clip)))
    check_noise(watched(terms, **SHORT, mechanism=chain, zeros=True))


def test_federations_of_a_block_each_have_their_own_strength_and_repeats_their_own_draws():
    sigmas, seeds = [0.1, 0.5, 20.0], range(3)
    problem = federation(FIXED, SHORT["rounds"])
    setups = [Setup(problem.data, MODEL, problem.training, problem.mechanism, seed) for seed in seeds]
    settings = {"learning_rate": [0.1] * 3, "rounds": [SHORT["rounds"]] * 3, "sigma": sigmas, "clipping_norm": [FIXED.clip] * 3}
    held = {name: torch.tensor(column, dtype=torch.float32) for name, column in settings.items()}
    held["sample_ratio"] = torch.full((3,), FIXED.cohort / FIXED.clients, dtype=torch.float64)
    watch = Watch(FIXED)
    engine.run(prepare(setups, held, [MODEL] * 3, 3), watch)
    for r, sigma in enumerate(sigmas):
        check_noise([watch.at(r, sigma)])


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_an_update_of_any_length_leaves_no_longer_than_the_norm(sampling):
    for clip in (1e-3, 50.0):
        (watch,) = watched(Terms(0.0, clip, 3, 12, sampling), rounds=36, seeds=[0], model=Lr())
        check_clipping(watch)


# what a client's draws do not depend on


def noise_by_client(monkeypatch, private, cohort=6, order=range(12), block=1, cache=8e6):
    """Return what each client adds to an update of zero, (round, client) → [P].

    order is how a round asks the clients that it would ask first, second, and so on.
    """

    class Ordered(Watch):
        def cohort(self, repeat, round, cohort):
            return replace(cohort, order=cohort.order[list(order)])

    watch = Ordered(Terms(0.5, 1.0, cohort, 12), zeros=True)
    monkeypatch.setattr(blocks_of_federations, "CACHE", cache)
    problem = federation(watch.terms, 4, model=Lr(), privacy=Privacy(private_data=private))
    replace(problem, block=block).train({}, 5, watch)
    return {(t, k): noise for _, t, k, noise in watch.seen("server")}


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("other", [
    {"cohort": 12}, {"cohort": 2}, {"order": range(11, -1, -1), "cohort": 12}, {"order": [9, 8, 7, 2, 1, 0, 3, 4, 5, 6, 10, 11]},
    {"block": 7}, {"cache": 1}, {"cache": 4 * 650 * 4}, {"block": 7, "cache": 1}], ids=str)
def test_a_client_draws_the_same_whoever_else_comes_in_whatever_order_and_pieces(monkeypatch, other, private):
    usual = noise_by_client(monkeypatch, private)
    found = noise_by_client(monkeypatch, private, **other)
    common = usual.keys() & found.keys()
    own = private and "cohort" in other  # another training on private data: its noise is its own
    assert own or len(common) >= 8
    for who in common:
        assert np.array_equal(found[who], usual[who]) != own


# private data: nothing may be shared between trainings

SIGMAS = (0.4, 0.5)


def private_federation(terms, rounds):
    searched = Randomization(Float("sigma", 0.1, 1.0), terms.clip)
    return federation(terms, rounds, searched, privacy=Privacy(private_data=True))


def private_trainings(monkeypatch, terms=FIXED, rounds=SHORT["rounds"]):
    """Return what was seen of trials that differ in sigma alone, in two repeats, on private data."""
    found = []
    for sigma in SIGMAS:
        for seed in range(2):
            found.append(Watch(replace(terms, sigma=sigma)))
            private_federation(terms, rounds).train({"sigma": sigma}, seed, found[-1])
    return found


def private_measurements(monkeypatch, terms=FIXED, rounds=SHORT["rounds"]):
    """Return the same of points that are measured together."""
    found, run = [], engine.run

    def watched_run(block, observer=None):
        watch = Watch(terms)
        found.extend(watch.at(r, sigma) for r, sigma in enumerate(block.settings["sigma"].tolist()))
        return run(block, watch)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", watched_run)
        replace(private_federation(terms, rounds), block=2).measure({"sigma": [*SIGMAS, *SIGMAS]}, [0, 0, 1, 1])
    return found


@pytest.mark.parametrize("trained", [private_trainings, private_measurements])
def test_on_private_data_every_training_has_noise_and_cohorts_of_its_own(monkeypatch, trained):
    found = trained(monkeypatch)
    assert len(found) == 4
    check_noise(found)


@pytest.mark.slow
@pytest.mark.parametrize("terms", [FIXED, POISSON], ids=["fixed", "poisson"])
@pytest.mark.parametrize("trained", [private_trainings, private_measurements])
def test_on_private_data_too_a_million_draws_are_independent_gaussian_noise(monkeypatch, trained, terms):
    found = trained(monkeypatch, terms, LONG["rounds"])
    assert all(draws(found, view).values.size >= 1e6 for view in VIEWS)
    check_noise(found)


# faults put in: the checks above must find each


class Faulty(Noise):
    """Noise with a fault in its normal numbers."""

    def __init__(self, fault, *terms):
        super().__init__(*terms)
        self.fault = fault

    def normal(self, size):
        return self.fault(super().normal(size))


def drawing(fault):
    """Put a fault into the numbers [K,P] that a round draws."""
    return lambda patch: patch.setattr(setup, "Noise", lambda *terms: Faulty(fault, *terms))


def streams(fault):
    """Put a fault into where numbers come from: seed, round, clients and device."""
    return lambda patch: patch.setattr(setup, "Noise", lambda *terms: Noise(*fault(*terms)))


def uniform(z):
    return (torch.special.ndtr(z.double()) * 2 - 1).float() * 3**0.5


def laplace(z):
    p = torch.special.ndtr(z.double()) - 0.5
    return (-p.sign() * torch.log1p(-2 * p.abs()) / 2**0.5).float()


def without_tails(z):
    return torch.where(z.abs() > 3.9, z / 2, z)


def first_half(z):
    return torch.cat([z[:, : z.shape[1] // 2] * 2**0.5, z[:, z.shape[1] // 2 :] * 0], 1)


def periodic(z):
    half = z[:, : z.shape[1] // 2]
    return torch.cat([half, half], 1)


def blurred(z):
    return (z + 0.1 * z.roll(1, 1)) / 1.01**0.5


def partly_shared(z):
    return (z + 0.2 * z[:1].roll(1, 1)) / 1.04**0.5


def sizes_shared(z):
    return z[:1].abs() * z.sign()


def all_from_one(z):
    return torch.cat([z[:1] * len(z) ** 0.5, z[1:] * 0])


def shared_cohorts(patch):
    patch.setattr(engine, "drawn", lambda seed, *terms: drawn(0, *terms))


def same_cohort(patch):
    patch.setattr(engine, "drawn", lambda seed, round, *terms: drawn(seed, 0, *terms))


def no_empty_noise(patch):
    patch.setattr(engine, "missing_noise", lambda *terms: None)


def not_topped_up(patch):
    patch.setattr(randomization, "_topped_up", lambda values: 1.0)


def on_the_mean(patch):
    right = randomization._topped_up
    patch.setattr(randomization, "_topped_up", lambda values: right(values) / values["cohort"] ** 0.5)


FAULTS = {
    "5 % too weak": (drawing(lambda z: 0.95 * z), FIXED, "server: variance .*secagg: variance .*release: variance "),
    "on the mean": (on_the_mean, FIXED, "server: variance .*secagg: variance .*release: variance "),
    "uniform": (drawing(uniform), FIXED, "server: .*shape .*kurtosis .*secagg: .*shape .*kurtosis "),
    "laplace": (drawing(laplace), FIXED, "server: .*shape .*kurtosis .*tails .*secagg: .*shape .*kurtosis "),
    "no tails": (drawing(without_tails), FIXED, "server: .*tails "),
    "shifted": (drawing(lambda z: z + 0.05), FIXED, "server: mean "),
    "first half": (drawing(first_half), FIXED, "server: .*variance of a coordinate "),
    "periodic": (drawing(periodic), FIXED, "server: .*coordinates alike "),
    "blurred": (drawing(blurred), FIXED, "server: .*coordinates at a distance "),
    "shared by clients": (streams(lambda seed, t, who, device: (seed, t, [0] * len(who), device)), FIXED, "server: .*rows alike .*sums over each client .*secagg: .*variance "),
    "shared by rounds": (streams(lambda seed, t, *rest: (seed, 0, *rest)), FIXED, "server: .*rows alike .*sums over each round "),
    "shared by repeats": (streams(lambda seed, *rest: (0, *rest)), FIXED, "server: .*rows alike .*secagg: .*sums over each training "),
    "partly shared": (drawing(partly_shared), FIXED, "server: .*sums over each client .*secagg: variance "),
    "sizes shared": (drawing(sizes_shared), FIXED, "server: .*rows alike in size "),
    "all from one client": (drawing(all_from_one), FIXED, "server: .*variance of a row "),
    "none in empty rounds": (no_empty_noise, POISSON, "^secagg: .*variance of a row .*release: .*variance of a row "),
    "not topped up": (not_topped_up, POISSON, "server: .*variance .*secagg: .*variance "),
    "shared cohorts": (shared_cohorts, FIXED, "^cohorts: .*cohorts of trainings alike "),
    "same cohort": (same_cohort, FIXED, "^cohorts: .*cohorts of rounds alike "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_noise_is_found(monkeypatch, fault):
    put_in, terms, found_by = FAULTS[fault]
    put_in(monkeypatch)
    with pytest.raises(AssertionError, match=found_by):
        check_noise(watched(terms, **SHORT))


@pytest.mark.parametrize(("fault", "found_by"), [("shared by repeats", "rows alike "), ("shared cohorts", "cohorts of trainings alike ")])
def test_on_private_data_what_trainings_share_is_found(monkeypatch, fault, found_by):
    FAULTS[fault][0](monkeypatch)
    with pytest.raises(AssertionError, match=found_by):
        check_noise(private_trainings(monkeypatch))


@pytest.mark.parametrize("trained", [private_trainings, private_measurements])
def test_on_private_data_the_usual_seeds_of_trials_are_found_to_be_shared(monkeypatch, trained):
    monkeypatch.setattr(blocks, "row_seeds", lambda problem, values, seeds: list(seeds))
    with pytest.raises(AssertionError, match="rows alike "):
        check_noise(trained(monkeypatch))


def by_halves(right, mechanism, upload, values, noise):
    clip = values["clipping_norm"][:, None, None]
    halves = upload.values.chunk(2, 2)
    short = [half * (clip / half.norm(dim=2, keepdim=True)).clamp_max(1) for half in halves]
    unbounded = {**values, "clipping_norm": values["clipping_norm"] * 1e6}
    return right(mechanism, replace(upload, values=torch.cat(short, 2)), unbounded, noise)


def not_by_one(right, mechanism, upload, values, noise):
    sent = right(mechanism, upload, values, noise)
    spared = torch.tensor([k == 3 for k in noise.clients])[:, None]
    return replace(sent, values=torch.where(spared, upload.values, sent.values))


def by_largest(right, mechanism, upload, values, noise):
    clip = values["clipping_norm"][:, None, None]
    unbounded = {**values, "clipping_norm": values["clipping_norm"] * 1e6}
    return right(mechanism, replace(upload, values=upload.values.clamp(-clip, clip)), unbounded, noise)


@pytest.mark.parametrize("fault", [by_halves, not_by_one, by_largest])
def test_a_fault_in_clipping_is_found(monkeypatch, fault):
    right = Randomization.protect
    monkeypatch.setattr(Randomization, "protect", lambda *terms: fault(right, *terms))
    (watch,) = watched(Terms(0.0, 1.0, 3, 12), rounds=36, seeds=[0], model=Lr())
    with pytest.raises(AssertionError, match=r"clipping: .* uploads"):
        check_clipping(watch)
