"""On private data each training has random numbers of its own, and nothing is told but what noise hides."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fedpareto.errors import SettingError
from fedpareto.federation import MEASURES, Data, Federation, Lr, Training
from fedpareto.federation.blocks import setup_of
from fedpareto.federation.observer import Observer
from fedpareto.mechanisms import Randomization, Sparsification, Unprotected
from fedpareto.noise import Noise, derive, widened
from fedpareto.privacy import Privacy
from fedpareto.problem import Objective
from fedpareto.space import Choice, Float, Integer

CLIENTS = 6


def federation(private=True, objectives=("test_error",), data=None, mechanism=None, **training):
    given = {"rounds": 2, "local_steps": 1, "batch_size": 8} | training
    return Federation(data or Data("digits", CLIENTS), Lr(), Training(0.1, **given), mechanism or Randomization(Float("sigma", 1.0, 10.0), 1.0),
                      tuple(map(Objective, objectives)), privacy=Privacy(private_data=private))


class Onlooker(Observer):
    """Keeps what is sent by whom, who came and what they hold; plants other updates where told to."""

    def __init__(self, plant=None):
        self.plant = plant
        self.sent, self.came, self.held = {}, [], {}

    def records(self, repeat, client, records):
        self.held[client] = sorted(records.tolist())
        return records

    def updates(self, repeat, round, clients, updates):
        return updates if self.plant is None else self.plant(clients, updates)

    def uploads(self, repeat, round, clients, takes_part, upload):
        for m, client in enumerate(clients.tolist()):
            self.sent[round, client] = upload.values[0, m].clone()

    def sums(self, round, sums, cohorts):
        self.came.append(frozenset(cohorts[0].order[: cohorts[0].count[0]].tolist()))


def looked(problem, settings, seed, plant=None):
    onlooker = Onlooker(plant)
    _, measures = problem.train(settings, seed, onlooker)
    return onlooker, measures


def nothing(clients, updates):
    return torch.zeros_like(updates)


def likeness(a, b):
    """The correlation of what the same clients sent in the same rounds."""
    assert a.sent.keys() == b.sent.keys()
    columns = [torch.cat([o.sent[key] for key in sorted(a.sent)]).double().numpy() for o in (a, b)]
    return np.corrcoef(columns)[0, 1]


@pytest.mark.parametrize("private", [False, True])
def test_two_trials_share_their_noise_unless_data_are_private(private):
    """Clients that trained nothing send noise alone: 7,800 numbers, whose chance correlation is about 0.01."""
    problem = federation(private)
    loud, soft = (looked(problem, {"sigma": sigma}, 3, nothing)[0] for sigma in (8.0, 4.0))
    one = torch.cat(list(loud.sent.values()))
    assert one.std() == pytest.approx(8.0, rel=0.05)
    assert abs(one.mean()) < 0.5
    if private:
        assert abs(likeness(loud, soft)) < 0.05
    else:
        assert likeness(loud, soft) == pytest.approx(1.0)


def test_noise_can_no_longer_be_taken_off_with_two_trials():
    """(8·d₁ − 4·d₂)/4 of the uploads d at σ = 4 and 8 was the clipped update without any noise."""
    def taken_off(private):
        found = [looked(federation(private, rounds=1), {"sigma": sigma}, 3)[0].sent[0, 0] for sigma in (4.0, 8.0)]
        return float(torch.linalg.vector_norm((8 * found[0] - 4 * found[1]) / 4))

    assert taken_off(private=False) <= 1.001  # the clipping norm
    assert taken_off(private=True) > 100  # noise of 11 on each of 650 numbers


def test_two_repeats_have_noise_of_their_own():
    found = [looked(federation(), {"sigma": 4.0}, seed, nothing)[0] for seed in (3, 4)]
    assert abs(likeness(*found)) < 0.05


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize("private", [False, True])
def test_two_trials_share_their_cohorts_unless_data_are_private(private, sampling):
    problem = federation(private, rounds=12, sampling=sampling, sample_ratio=0.5)
    one, other = (looked(problem, {"sigma": sigma}, 3)[0].came for sigma in (8.0, 4.0))
    assert len(one) == 12
    assert (one == other) != private
    assert sum(map(len, one)) / 12 == pytest.approx(3, abs=1.5)


def test_the_same_point_of_the_same_repeat_is_the_same_training():
    problem = federation(rounds=3, sampling="poisson", sample_ratio=0.5)
    rows = {"sigma": [2.0, 5.0, 5.0, 2.0]}
    seeds = [1, 1, 2, 1]
    measured = problem.measure(rows, seeds)
    backwards = problem.measure({"sigma": rows["sigma"][::-1]}, seeds[::-1])
    for name, column in measured.items():
        np.testing.assert_array_equal(column, backwards[name][::-1], err_msg=name)
    losses = measured["test_loss"]
    assert losses[0] == losses[3]
    assert len(set(losses)) == 3
    for i, seed in enumerate(seeds):
        _, again = problem.train({"sigma": rows["sigma"][i]}, seed)
        np.testing.assert_array_equal([again[n] for n in measured], [c[i] for c in measured.values()])


def test_equal_settings_are_one_training_however_they_are_written():
    mechanism = Randomization(Float("sigma", 1.0, 10.0), Choice("clipping_norm", (1.0, 2.0)))
    problem = federation(mechanism=mechanism)
    _, found = problem.train({"sigma": 4, "clipping_norm": 2}, 0)
    _, same = problem.train({"sigma": np.float64(4.0), "clipping_norm": 2.0}, 0)
    assert found["test_loss"] == same["test_loss"]


@pytest.mark.parametrize("split", ["iid", "dirichlet"])
@pytest.mark.parametrize("private", [False, True])
def test_private_data_are_dealt_alike_in_every_training(private, split):
    problem = federation(private, data=Data("digits", CLIENTS, split=split))
    one, other = (looked(problem, {"sigma": 4.0}, seed)[0].held for seed in (3, 4))
    assert one.keys() == other.keys() == set(range(CLIENTS))
    assert (one == other) == private
    tests = [setup_of(problem, seed).test_split() for seed in (3, 4)]
    assert np.array_equal(tests[0].order, tests[1].order) == private
    assert np.array_equal(problem.split_table(3), problem.split_table(4)) == private


def test_a_shorter_run_is_a_training_of_its_own():
    """Else the runs of a trial's way would share its noise, or could not be trained again."""
    rounds = Integer("rounds", 1, 4)
    assert federation(False, rounds=rounds).free == "rounds"
    problem = federation(rounds=rounds)
    assert problem.free is None
    long, short = (looked(problem, {"sigma": 4.0, "rounds": t}, 3, nothing)[0] for t in (3, 2))
    first = [torch.cat([o.sent[0, k] for k in range(CLIENTS)]) for o in (long, short)]
    assert abs(np.corrcoef(*map(torch.Tensor.numpy, first))[0, 1]) < 0.06


@pytest.mark.parametrize("value", [1e30, float("inf"), float("nan")])
def test_whether_training_diverged_is_judged_by_the_models_alone(value):
    def plant(clients, updates):
        planted = updates.clone()
        planted[:, clients.tolist().index(2)] = value
        return planted

    _, seen = looked(federation(False), {"sigma": 4.0}, 0, plant)
    assert seen["diverged_round"] == 1
    _, hidden = looked(federation(), {"sigma": 4.0}, 0, plant)
    assert np.isnan(hidden["diverged_round"])
    assert np.isfinite(hidden["test_loss"])


def test_models_that_are_not_finite_have_diverged():
    _, found = looked(federation(mechanism=Unprotected()), {}, 0, lambda clients, updates: torch.full_like(updates, 3e38))
    assert found["diverged_round"] == 1


OF_RECORDS = {"epsilon_record", "epsilon_client"}  # where local steps hide records
SETTINGS = {name for name, m in MEASURES.items() if m.source == "settings"} - OF_RECORDS
MODELS = {"test_error", "test_loss", "test_error_worst", "test_loss_worst"}
BYTES = {"upload_bytes", "upload_bytes_per_round", "download_bytes", "download_bytes_per_round", "size_ratio", "parameters_shared",
         "parameters_shared_worst", "decryption_seconds"}
TIMES = {"training_seconds", "training_seconds_worst", "kang23_eq14", "gu24_eq4"}


@pytest.mark.parametrize(("data", "training", "costs"), [
    (Data("digits", CLIENTS), {}, BYTES | TIMES),
    (Data("digits", CLIENTS, split="unequal"), {"local_steps": 0, "local_epochs": 1}, BYTES),
    (Data("digits", CLIENTS), {"sampling": "poisson", "sample_ratio": 0.5}, set()),
])
def test_rows_hold_what_follows_from_models_or_settings_and_nothing_else(data, training, costs):
    problem = federation(data=data, **training)
    rows = problem.measure({"sigma": [4.0]}, [0])
    assert rows.keys() == SETTINGS | MODELS | costs | {"diverged_round"}
    assert problem.train({"sigma": 4.0}, 0)[1].keys() == rows.keys()
    assert problem.every_round({"sigma": [4.0]}, [0]).keys() == rows.keys() - {"diverged_round"}
    open_rows = dataclasses.replace(problem, privacy=Privacy()).measure({"sigma": [4.0]}, [0])
    assert open_rows.keys() >= BYTES | TIMES


@pytest.mark.parametrize(("measure", "mechanism", "reason"), [
    ("utility_lost", Randomization(1.0), "it trains every point again without noise"),
    ("kang23_eq15", Sparsification(0.1), "values that clients withhold"),
    ("kang23_eq15_worst", Sparsification(0.1), "values that clients withhold"),
])
def test_measures_that_no_noise_hides_are_refused_as_objectives(measure, mechanism, reason):
    federation(False, [measure], mechanism=mechanism)
    with pytest.raises(SettingError, match=rf"objectives.{measure}: must be of the models.* found {measure}: .*{reason}"):
        federation(True, [measure], mechanism=mechanism)


@pytest.mark.parametrize(("measure", "data", "training"), [
    ("upload_bytes", Data("digits", CLIENTS), {"sampling": "poisson", "sample_ratio": 0.5}),
    ("training_seconds", Data("digits", CLIENTS, split="unequal"), {"local_steps": 0, "local_epochs": 1}),
])
def test_costs_that_depend_on_clients_are_refused_as_objectives(measure, data, training):
    federation(False, [measure], data=data, **training).check()
    federation(True, [measure]).check()  # here it follows from the settings
    problem = federation(True, [measure], data=data, **training)
    with pytest.raises(SettingError, match=f"objectives.{measure}: .* it depends on what clients hold or send"):
        problem.check()
    with pytest.raises(SettingError, match="it depends on what clients hold or send"):
        problem.every_round({"sigma": [4.0]}, [0], [measure])


def test_every_measure_says_what_it_is_computed_from():
    assert {m.source for m in MEASURES.values()} == {"settings", "models", "costs", "raw"}
    assert all(bool(m.figures) == (m.source == "costs") for m in MEASURES.values())


@pytest.mark.parametrize("wide", [False, True])
def test_noise_on_private_data_takes_the_whole_of_its_seed(wide):
    """torch takes 32 bits of a seed on a CPU: among 200,000 clients some would send the same noise."""
    seed = widened(0) if wide else 0
    by_low_bits = {}
    for client in range(200_000):
        by_low_bits.setdefault(derive(seed, "noise", 0, client, 0) % 2**32, []).append(client)
    pair = next(clients for clients in by_low_bits.values() if len(clients) == 2)
    for draw in ("normal", "uniform"):
        noise = Noise(seed, 0, pair)
        one, other = getattr(noise, draw)(1000)
        assert torch.equal(one, other) != wide
    normal = Noise(seed, 0, range(20)).normal(5000)
    assert abs(normal.mean()) < 0.02
    assert normal.std() == pytest.approx(1, abs=0.02)
    uniform = Noise(seed, 0, range(20)).uniform(5000)
    assert (uniform >= 0).all()
    assert (uniform < 1).all()
    assert uniform.mean() == pytest.approx(0.5, abs=0.01)
