"""What follows from the settings is what a training measures, and nothing else is claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from fedpareto import load_study, run
from fedpareto.federation import MEASURES, MODELS, Cost, Data, Federation, Mlp, Training
from fedpareto.federation.models import Lenet, Lenet5
from fedpareto.federation.sizes import size_of, sizes
from fedpareto.federation.trace import GROWING
from fedpareto.loop import known as history_of
from fedpareto.mechanisms import (
    BatchCrypt,
    Chain,
    Pruning,
    Quantization,
    Randomization,
    Sparsification,
    Unprotected,
    Upload,
)
from fedpareto.noise import Noise, rng
from fedpareto.optimizers.composite import known, learn
from fedpareto.problem import Objective
from fedpareto.settings import fixed, named, searched
from fedpareto.space import Choice, Float, Integer

COSTS = {name for name, m in MEASURES.items() if m.figures}
TIMES = {name for name in COSTS if {"seconds", "seconds_worst", "seconds_by_size", "round_seconds"} & set(MEASURES[name].figures)}
STEPS = {"learning_rate": Float("learning_rate", 0.01, 0.1), "rounds": 3, "local_steps": 2, "batch_size": 8, "sample_ratio": 0.5}
COST = Cost(step_seconds=0.3, parameter_seconds=1e-5, encrypt_seconds=0.1, decrypt_seconds=0.7, add_seconds=0.011, pack_seconds=1e-4)

bits, rate = Integer("bits", 1, 32), Float("prune_rate", 0.0, 0.99)
ALONE = [Unprotected(), Randomization(0.01), Randomization(Float("sigma", 0.0, 0.1), noise_multiplier=None), Sparsification(),
         Sparsification(private_fraction=Float("private_fraction", 0.0, 0.9)), Pruning(0.3), Pruning(rate), Pruning(rate, layers="all"),
         Pruning(rate, of="parameters"), Quantization(5), Quantization(bits), BatchCrypt(), BatchCrypt(50, degree=2),
         BatchCrypt(Integer("encryption_batch", 10, 400)), BatchCrypt(Choice("encryption_batch", (50, 100)), key_bits=3072),
         BatchCrypt(scheme="bfv")]
CHAINS = [Chain((Randomization(0.01), Pruning(rate), Quantization(bits))), Chain((Pruning(rate), Quantization(bits), Randomization(0.01))),
          Chain((Quantization(bits), Quantization(Integer("bits", 1, 8)))),
          Chain((Sparsification(private_fraction=0.3), Quantization(bits))), Chain((Quantization(4), BatchCrypt(100))),
          Chain((Sparsification(private_fraction=0.5), BatchCrypt(100))),
          Chain((Pruning(0.5), Randomization(0.01), Pruning(rate)))]


def federation(mechanism, data=None, model=None, cost=COST, **training):
    asked = ["test_error", *(name for name in COSTS if MEASURES[name].on_request)]
    return Federation(data or Data("digits", 6), model or Mlp((7,)), Training(**(STEPS | training)), mechanism,
                      tuple(Objective(name) for name in sorted(asked)), block=8, cost=cost)


def points(problem, n=3, seed=0):
    return problem.space.decode(problem.space.snap(rng(seed, "points").random((n, len(problem.space)))))


def claimed(problem, n=3, seeds=(3, 3, 4)):
    """Return the costs that are claimed, all that is claimed having been compared with a training.

    Sums over clients and rounds are in another order, and each of double precision.
    """
    values = points(problem, n)
    told, measured = problem.known(values, list(MEASURES)), problem.measure(values, seeds)
    assert np.isnan(measured["diverged_round"]).all()
    for name, column in told.items():
        np.testing.assert_allclose(column, measured[name], rtol=1e-12, err_msg=name)
    return set(told) & COSTS


def test_the_figures_are_those_of_a_trace():
    assert {figure for name in COSTS for figure in MEASURES[name].figures} == set(GROWING)


@pytest.mark.parametrize("mechanism", ALONE + CHAINS, ids=repr)
def test_every_cost_that_follows_from_the_settings_is_what_a_training_measures(mechanism):
    assert claimed(federation(mechanism)) == COSTS


@pytest.mark.parametrize("mechanism", [Unprotected(), Pruning(rate), Quantization(bits), BatchCrypt(Integer("encryption_batch", 10, 400)),
                                       CHAINS[0]], ids=repr)
def test_rounds_clients_and_widths_may_be_searched_too(mechanism):
    problem = federation(mechanism, model=Mlp((Integer("hidden_1", 1, 40), Integer("hidden_2", 1, 40))), rounds=Integer("rounds", 1, 4),
                         sample_ratio=Float("sample_ratio", 0.2, 1.0))
    assert claimed(problem, 8, [1] * 8) == COSTS


def test_convolutions_are_counted_too(tmp_path):
    draw = np.random.default_rng(0)
    arrays = {name: draw.integers(0, 256, (n, 1, 12, 12), np.uint8) for name, n in (("x_train", 60), ("x_test", 20))}
    np.savez(tmp_path / "own.npz", **arrays, y_train=np.arange(60) % 3, y_test=np.arange(20) % 3)
    model = Lenet5(channels=(Integer("channels_1", 1, 6), 4), neurons=(Integer("neurons_1", 1, 20), 8))
    for mechanism in (Pruning(rate), Pruning(rate, layers="all")):
        assert claimed(federation(mechanism, Data(str(tmp_path / "own.npz"), 6), model)) == COSTS


@dataclass(frozen=True)
class Own:
    """A mechanism that does not say what it costs."""

    def protect(self, upload, values, noise):
        return replace(upload, seconds=upload.seconds + 1.0)


@pytest.mark.parametrize("mechanism", [Pruning(threshold=0.01), Pruning(threshold=Float("threshold", 0.0, 0.1)), Sparsification(0.5),
                                       Sparsification(Float("connection_probability", 0.2, 1.0)), Own(), Chain((Own(), Quantization(4))),
                                       Chain((Randomization(0.01), Pruning(threshold=0.01))), Chain((Pruning(0.5), Pruning(0.7))),
                                       Chain((Sparsification(private_fraction=0.5), Pruning(0.2))),
                                       Chain((Sparsification(0.5), Randomization(0.1)))], ids=repr)
def test_what_depends_on_the_values_sent_or_on_draws_is_not_claimed(mechanism):
    assert claimed(federation(mechanism)) == set()


@dataclass(frozen=True)
class Told:
    """A mechanism of the user's own that does."""

    def protect(self, upload, values, noise):
        return self.costs(upload, values)

    def costs(self, upload, values):
        return replace(upload, seconds=upload.seconds + 1.0, overhead=upload.seconds + 64.0)


def test_a_mechanism_of_the_user_s_own_may_say_what_it_costs():
    assert claimed(federation(Told())) == COSTS
    assert claimed(federation(Chain((Told(), Quantization(bits))))) == COSTS


EPOCHS = {"local_epochs": 1, "local_steps": 0}
ALIKE = [(Data("digits", 6), {}), (Data("digits", 6), {"sample_ratio": 1.0, **EPOCHS}), (Data("digits", 2), EPOCHS),
         (Data("digits", 6), {"sample_ratio": 1.0, "batch_size": 1000}), (Data("digits", 6, "shards"), {}),
         (Data("digits", 719, "shards", shards=1), {"sample_ratio": 0.01, **EPOCHS}),  # of two images each
         (Data("digits", 6, "dirichlet"), {"batch_size": 1}), (Data("digits", 6, "unequal"), {"batch_size": 1}),
         (Data("digits", 10), {"sample_ratio": 0.95, **EPOCHS}),
         (Data("digits", 6), {"sampling": "poisson", "sample_ratio": 1.0, **EPOCHS})]
UNLIKE = [(Data("digits", 6), EPOCHS), (Data("digits", 6), {"batch_size": 1000}), (Data("digits", 6, "dirichlet"), {"batch_size": 200}),
          (Data("digits", 6, "unequal"), {"sample_ratio": 1.0, **EPOCHS}), (Data("digits", 6, "shards"), EPOCHS),
          (Data("digits", 6, "shards"), {"batch_size": 1000}),
          (Data("digits", 6), {"sample_ratio": Float("sample_ratio", 0.5, 1.0), **EPOCHS})]


@pytest.mark.parametrize(("data", "training"), ALIKE)
@pytest.mark.parametrize("mechanism", [Quantization(4), BatchCrypt()], ids=repr)
def test_time_is_known_where_all_clients_train_alike_or_all_take_part(data, training, mechanism):
    assert claimed(federation(mechanism, data, **training)) == COSTS


@pytest.mark.parametrize(("data", "training"), UNLIKE)
@pytest.mark.parametrize("mechanism", [Quantization(4), BatchCrypt()], ids=repr)
def test_time_is_left_to_be_learned_where_it_depends_on_who_takes_part_and_bytes_are_known(data, training, mechanism):
    problem = federation(mechanism, data, **training)
    assert claimed(problem) == COSTS - TIMES
    repeats = problem.measure({name: list(column) * 6 for name, column in points(problem, 1).items()}, range(6))
    assert all(len(set(repeats[name])) > 1 for name in ("training_seconds", "kang23_eq14"))


def test_under_poisson_sampling_nothing_is_claimed_that_hangs_on_how_many_come():
    assert claimed(federation(Quantization(4), sampling="poisson")) == set()


@pytest.mark.parametrize("ratio", [0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95])
def test_a_share_between_two_cohorts_is_the_same_cohort_everywhere(ratio):
    """A training and its guarantee count the same clients, whatever a share is in single precision."""
    problem = federation(Randomization(0.1), Data("digits", 10), sample_ratio=ratio)
    assert claimed(problem, 1, [0]) == COSTS
    assert problem.measure(points(problem, 1), [0])["size_ratio"] == pytest.approx([1.0])


def test_what_is_claimed_does_not_depend_on_the_points():
    for mechanism in (Sparsification(Float("connection_probability", 0.2, 1.0)), Pruning(rate)):
        problem = federation(mechanism)
        one, many = (problem.known(points(problem, n), list(MEASURES)) for n in (1, 50))
        assert set(one) == set(many)
        assert problem.known({name: [1.0] for name in problem.space.names}, ["upload_bytes"]).keys() == one.keys() & {"upload_bytes"}


def test_many_points_of_a_model_too_large_for_memory_are_known():
    wide = federation(Chain((Pruning(rate), Quantization(bits))), model=Mlp((65_536, Integer("hidden_2", 1, 65_536))))
    told = wide.known(points(wide, 3000), sorted(COSTS))
    assert set(told) == COSTS
    assert all(np.isfinite(column).all() and column.shape == (3000,) for column in told.values())


@pytest.mark.parametrize("model", [Mlp((Integer("hidden_1", 1, 300),)), Mlp((Integer("hidden_1", 3, 90), 5, Choice("hidden_3", (4, 64)))),
                                   Lenet((Integer("channels_1", 1, 32), Integer("channels_2", 2, 9)), (7, Integer("neurons_2", 1, 128))),
                                   Lenet5((6, Integer("channels_2", 1, 16)), (Integer("neurons_1", 1, 120), 84))], ids=repr)
def test_sizes_of_many_widths_are_those_of_each_model(model):
    shape = (1, 28, 28)
    draw = rng(1, "widths")
    rows = [{v.name: v.decode(float(draw.random())) for v in searched(model)} for _ in range(40)]
    many = sizes(model, {name: [row[name] for row in rows] for name in rows[0]}, 40, shape, 10)
    assert many.T.tolist() == [list(size_of(fixed(model, lambda v, row=row: row[v.name]), shape, 10)) for row in rows]


def test_every_model_with_widths_is_tried_above():
    assert {name for name, m in MODELS.items() if any("Whole" in str(f.type) for f in m.__dataclass_fields__.values())} == {
        "mlp", "lenet", "lenet5"}


@st.composite
def mechanisms(draw):
    share = st.floats(0, 0.9999)
    link = st.one_of(st.builds(Quantization, bits=st.integers(1, 32)), st.builds(Randomization, sigma=st.floats(0, 1)),
                     st.builds(Pruning, prune_rate=share, layers=st.sampled_from(["all", "linear"])),
                     st.builds(Sparsification, private_fraction=share), st.builds(BatchCrypt, encryption_batch=st.integers(1, 400)))
    return Chain(tuple(draw(st.lists(link, min_size=1, max_size=3))))


@tried(max_examples=150)
@given(mechanism=mechanisms(), P=st.integers(1, 60), linear=st.floats(0, 1), clients=st.integers(1, 4), absent=st.integers(0, 5),
       seed=st.integers(0, 99))
def test_costs_are_those_of_protecting(mechanism, P, linear, clients, absent, seed):
    draw = torch.Generator().manual_seed(seed)
    exists = (torch.arange(P) >= min(absent, P - 1)).float()[None]
    sent = torch.randn(1, clients, P, generator=draw).round(decimals=1) * exists[:, None]  # with ties and zeros
    weights, one = torch.arange(P) < round(linear * P), torch.ones(1, clients)
    room = exists.sum(1)
    values = {name: torch.tensor([float(v)]) for name, v in named(mechanism).items() if isinstance(v, int | float)}
    values |= {"encrypt_seconds": torch.tensor([0.1]), "add_seconds": torch.tensor([0.2]), "decrypt_seconds": torch.tensor([0.3])}
    upload = mechanism.protect(Upload(sent, room[:, None] * one, one * 32, one * 0, model=sent[:, 0] * 0, exists=exists, linear=weights),
                               values, Noise(seed, 0, range(clients)))
    plain = Upload(torch.empty(1, clients, 0), room[:, None] * one, one * 32, one * 0, room=room)
    told = mechanism.costs(plain, values | {"linear_parameters": (exists[0] * weights).sum()[None]})
    if told is None:  # a link that drops numbers after another, with none between them that sends all
        kinds = [type(link) for link in mechanism.links]
        assert sum(kind in (Pruning, Sparsification) for kind in kinds) > 1
        return
    for name in ("count", "bits", "seconds", "total_bits", "download", "reading", "adding"):
        a, b = getattr(told, name), getattr(upload, name)
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b), name


def test_the_default_optimizer_learns_the_error_alone(study_text, tmp_path):
    path = tmp_path / "bytes.toml"
    text = study_text.replace("budget = 2", "budget = 7").replace('name = "nsga2"\npopulation = 2', 'name = "bayesian"\nbatch = 2')
    text = text[: text.index("[mechanism]")] + """[mechanism]
name = "chain"
links = [{ name = "pruning", prune_rate = [0.0, 0.95] }, { name = "quantization", bits = [2, 16] }]

[objectives.test_error]

[objectives.upload_bytes]
limit = 4000
reference = 12000

[objectives.gu24_eq4]
reference = 1
""" + text[text.index("\n[optimizer]") :]
    path.write_text(text)
    study = load_study(path)
    with run(study, tmp_path / "a.db") as store:
        history, trials = history_of(study, store), store.trials()
    assert list(learn(study.problem, history).learned) == [0]
    np.testing.assert_allclose(known(study.problem, history.x)[:, 1:], history.y[:, 1:], rtol=1e-12)
    assert max(t.measures["upload_bytes"] for t in trials) <= 4000  # a limit on what is known holds before anything is trained
