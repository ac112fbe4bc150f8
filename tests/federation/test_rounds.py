"""Many federations in one pass, against FedAvg written by hand."""

from __future__ import annotations

import fedavg_by_hand as by_hand
import numpy as np
import pytest
import torch
from trained import train

from fedpareto.contract import cohort
from fedpareto.federation.cohorts import epoch_batches, participants, step_batches
from fedpareto.federation.data import Data
from fedpareto.federation.models import Lr, Mlp
from fedpareto.federation.setup import Setup
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Randomization
from fedpareto.noise import rng

SETTINGS = {"learning_rate": [0.05, 0.3, 0.11], "sigma": [0.0, 0.05, 0.2], "clipping_norm": [1e9, 1.0, 0.4],
            "rounds": [3, 3, 3]}


def setup_of(clients: int, seed: int, model=None, **training) -> Setup:
    training = {"learning_rate": 0.1, "batch_size": 16, "local_epochs": 1} | training
    return Setup(Data("digits", clients), model or Mlp((16,)), Training(**training), Randomization(0.1), seed)


def together(setup: Setup, values, slots: int):
    return train([setup], values, [setup.model] * len(values["rounds"]), slots)


def columns(sample_ratio: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(v) for name, v in (SETTINGS | {"sample_ratio": [sample_ratio] * 3}).items()}


@pytest.mark.parametrize("clients", [3, 10, 17])
@pytest.mark.parametrize("sample_ratio", [1.0, 0.4])
@pytest.mark.parametrize("seed", [0, 11])
@pytest.mark.parametrize("local", [{"local_epochs": 1}, {"local_epochs": 0, "local_steps": 5, "momentum": 0.5}])
def test_the_vectorised_federation_equals_the_one_by_hand(clients, sample_ratio, seed, local):
    setup, slots = setup_of(clients, seed, **local), cohort(sample_ratio, clients)
    trace = together(setup, columns(sample_ratio), slots)
    for r in range(3):
        _, losses, errors = by_hand.train(setup, SETTINGS["learning_rate"][r], sample_ratio, SETTINGS["sigma"][r],
                                          SETTINGS["clipping_norm"][r], 3)
        assert trace.figures["loss"][r] == pytest.approx(losses, abs=1e-5)
        assert trace.figures["error"][r] == pytest.approx(errors, abs=1e-6)


@pytest.mark.parametrize("extra", [{"weighting": "uniform"}, {"momentum": 0.9, "local_epochs": 2}, {"batch_size": 100}])
def test_weighting_momentum_and_short_batches_equal_those_by_hand(extra):
    setup = setup_of(13, 5, Lr(), **extra)  # 1,438 images do not share evenly among 13
    trace = together(setup, columns(1.0), 13)
    for r in range(3):
        _, losses, _ = by_hand.train(setup, SETTINGS["learning_rate"][r], 1.0, SETTINGS["sigma"][r],
                                     SETTINGS["clipping_norm"][r], 3)
        assert trace.figures["loss"][r] == pytest.approx(losses, abs=1e-5)


def test_federations_with_different_cohorts_train_together():
    setup, ratios = setup_of(10, 3), [0.2, 1.0, 0.5]
    mixed = together(setup, columns(1.0) | {"sample_ratio": torch.tensor(ratios)}, 10)
    for r, ratio in enumerate(ratios):
        _, losses, _ = by_hand.train(setup, SETTINGS["learning_rate"][r], ratio, SETTINGS["sigma"][r],
                                     SETTINGS["clipping_norm"][r], 3)
        assert mixed.figures["loss"][r] == pytest.approx(losses, abs=1e-5)
    assert mixed.figures["upload_bytes"][:, -1] == pytest.approx([k * 3 * 4 * mixed.parameters[0] for k in (2, 10, 5)])


def test_training_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    together(setup_of(4, 0), columns(1.0), 4)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_worst_client_is_at_least_as_bad_as_the_average():
    trace = together(setup_of(10, 0), columns(1.0), 10)
    assert (trace.figures["worst_error"] >= trace.figures["error"] - 1e-6).all()
    assert (trace.figures["worst_loss"] >= trace.figures["loss"] - 1e-6).all()


def test_a_diverging_federation_is_marked_and_its_neighbours_are_not():
    wild = columns(1.0) | {"learning_rate": torch.tensor([0.05, 1e6, 0.11])}
    trace, calm = together(setup_of(10, 0), wild, 10), together(setup_of(10, 0), columns(1.0), 10)
    assert trace.diverged[1] == 1
    assert np.isnan(trace.diverged[[0, 2]]).all()
    assert (trace.figures["loss"][[0, 2]] == calm.figures["loss"][[0, 2]]).all()


def test_epochs_see_every_image_once_and_steps_do_not_repeat_until_all_are_seen():
    batches = epoch_batches(rng(1, 2), size=50, epochs=3, batch_size=16)
    assert batches.shape == (12, 16)
    for epoch in batches.reshape(3, -1):
        assert sorted(epoch[epoch >= 0]) == list(range(50))
    steps = step_batches(rng(1, 2), size=50, steps=9, batch_size=10)
    assert sorted(steps[:5].ravel()) == list(range(50))
    assert step_batches(rng(1, 2), size=3, steps=2, batch_size=10).shape == (2, 3)


def test_draws_depend_on_seed_round_and_client_alone():
    assert (participants(1, 2, 30) == participants(1, 2, 30)).all()
    assert (participants(1, 2, 30) != participants(1, 3, 30)).any()
    first, second = (setup_of(3, seed=1).draw(0, client).random(9) for client in (0, 1))
    assert (first != second).all()
