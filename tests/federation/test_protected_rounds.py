"""Federations with thinned-out models, private values, chains and Poisson sampling equal those by hand."""

from __future__ import annotations

import copy

import numpy as np
import protect_by_hand as by_hand
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpareto.federation import Data, Federation, Mlp, Training
from fedpareto.federation.cohorts import participants, taking_part
from fedpareto.federation.setup import Setup
from fedpareto.federation.stack import linear_weights
from fedpareto.mechanisms import (
    Chain,
    Pruning,
    Quantization,
    Randomization,
    Sparsification,
    Unprotected,
)
from fedpareto.noise import Noise, stream
from fedpareto.problem import Objective
from fedpareto.space import Integer

DATA, MODEL = Data("digits", 6), Mlp((16,))


def federation(mechanism, **training):
    settings = {"learning_rate": 0.3, "local_epochs": 1, "batch_size": 32, "rounds": 4, "sample_ratio": 0.5} | training
    return Federation(DATA, MODEL, Training(**settings), mechanism, (Objective("test_error"),))


class ByHand:
    """One federation, one client after another."""

    def __init__(self, problem, seed):
        self.setup = Setup(DATA, MODEL, problem.training, problem.mechanism, seed)
        self.model = MODEL.build(self.setup.data.shape, self.setup.data.classes)
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(self.setup.initial(MODEL)), self.model.parameters())
        self.linear = linear_weights(self.model).numpy()
        self.images = torch.from_numpy(self.setup.data.x_train) * self.setup.data.scale
        self.labels = torch.from_numpy(self.setup.data.y_train)

    def vector(self):
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()

    def local(self, start, client, t, exists):
        """Return the parameters after a client's local training from start; those that do not exist stay zero."""
        local = copy.deepcopy(self.model)
        nn.utils.vector_to_parameters(start.clone(), local.parameters())
        sgd = torch.optim.SGD(local.parameters(), lr=self.setup.training.learning_rate, momentum=self.setup.training.momentum)
        for batch in self.setup.batches(self.setup.train_split(), client, t):
            pick = batch[batch >= 0]
            sgd.zero_grad()
            cross_entropy(local(self.images[pick]), self.labels[pick]).backward()
            sgd.step()
            now = nn.utils.parameters_to_vector(local.parameters()).detach() * exists
            nn.utils.vector_to_parameters(now, local.parameters())
        return nn.utils.parameters_to_vector(local.parameters()).detach()

    def loss(self):
        data = self.setup.data
        with torch.no_grad():
            return float(cross_entropy(self.model(torch.from_numpy(data.x_test) * data.scale), torch.from_numpy(data.y_test)))

    def set(self, vector):
        nn.utils.vector_to_parameters(vector, self.model.parameters())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("rho", "xi"), [(1.0, 0.0), (0.5, 0.0), (1.0, 0.6), (0.4, 0.8)])
def test_sparsification_equals_that_by_hand(rho, xi, momentum):
    problem = federation(Sparsification(rho, xi), momentum=momentum, learning_rate=0.1)
    got = problem.measure({}, [3])
    hand = ByHand(problem, 3)
    exists = (torch.rand(len(hand.vector()), generator=stream(3, "connections")) < rho) | ~torch.from_numpy(hand.linear)
    hand.set(hand.vector() * exists)
    kept, shared, norms = {}, [], []  # norms of all rounds, each with three clients
    for t in range(4):
        began, uploads = hand.vector(), []
        for client in participants(3, t, 6)[:3].tolist():
            start = began.clone()
            for i, value in kept.get(client, {}).items():
                start[i] = value
            end = hand.local(start, client, t, exists)
            places = exists.nonzero()[:, 0].numpy()
            update = (end - began).double().numpy()
            sent, _, private = by_hand.keep_private(update[places], xi)
            kept[client] = {places[i]: end[places[i]] for i in private}
            norms.append(np.sqrt(sum(float(v) ** 2 for v in kept[client].values())))
            whole = np.zeros(len(began))
            whole[places] = sent
            uploads.append(whole)
            shared.append(len(places) - len(private))
        hand.set(began + torch.from_numpy(sum(uploads) / 3).float())
    assert got["test_loss"][0] == pytest.approx(hand.loss(), abs=2e-4)
    assert got["parameters_shared"][0] == pytest.approx(np.mean(shared))
    leakage = np.mean([max(0.0, 1 - np.sqrt(2) * np.sqrt(1 - np.exp(-mu / 8))) for mu in norms])
    assert got["kang23_eq15"][0] == pytest.approx(leakage, abs=1e-4)


def test_a_chain_in_xiao_s_default_order_equals_that_by_hand():
    chain = Chain((Randomization(0.01, 1.0), Pruning(0.5), Quantization(6)))
    problem = federation(chain)
    got = problem.measure({}, [5])
    hand, bits = ByHand(problem, 5), 0
    for t in range(4):
        began, uploads = hand.vector(), []
        who = participants(5, t, 6)[:3].tolist()
        normal = Noise(5, t, who).normal(len(began)).double().numpy()
        for slot, client in enumerate(who):
            update = (hand.local(began, client, t, 1.0) - began).double().numpy()
            noisy, _ = by_hand.randomize(update, 0.01, 1.0, normal[slot])
            thin, _, dropped = by_hand.prune(noisy, hand.linear, prune_rate=0.5)
            sent, used = by_hand.quantize(thin, 6, dropped=dropped)
            uploads.append(sent)
            bits += used
        hand.set(began + torch.from_numpy(sum(uploads) / 3).float())
    assert got["test_loss"][0] == pytest.approx(hand.loss(), abs=2e-3)  # a number at the edge of two levels may fall either way
    assert got["upload_bytes"][0] == pytest.approx(bits / 8)
    dense = 4 * 4 * 3 * len(hand.vector())
    assert got["size_ratio"][0] == pytest.approx(bits / 8 / dense)
    assert got["download_bytes"][0] == dense


def test_under_poisson_sampling_the_server_divides_by_the_expected_cohort():
    problem = federation(Unprotected(), sampling="poisson")
    got = problem.measure({}, [2])
    hand = ByHand(problem, 2)
    counts = []
    for t in range(4):
        began = hand.vector()
        count = int(taking_part(2, t, 6, np.array([0.5]), "poisson")[0])
        counts.append(count)
        updates = [hand.local(began, c, t, 1.0) - began for c in participants(2, t, 6, "poisson")[:count].tolist()]
        hand.set(began + sum(updates) / 3.0)
    assert len(set(counts)) > 1
    assert got["test_loss"][0] == pytest.approx(hand.loss(), abs=1e-4)


def test_poisson_sampling_takes_each_client_by_its_own_chance():
    counts = [int(taking_part(0, t, 200, np.array([0.1]), "poisson")[0]) for t in range(400)]
    assert np.mean(counts) == pytest.approx(20, abs=1)
    assert np.var(counts) == pytest.approx(18, rel=0.25)


def test_who_keeps_values_private_trains_with_neighbours_as_alone():
    """Rows of one block do not touch one another, even where cohorts differ and private values are kept."""
    from fedpareto.space import Float
    mechanism = Sparsification(Float("connection_probability", 0.1, 1.0), Float("private_fraction", 0.0, 0.9))
    problem = federation(mechanism, sample_ratio=Float("sample_ratio", 0.2, 1.0))
    values = {"connection_probability": [0.5, 1.0, 0.2], "private_fraction": [0.5, 0.0, 0.9], "sample_ratio": [0.5, 1.0, 0.2]}
    together = problem.measure(values, [1, 1, 1])
    for i in range(3):
        alone = problem.measure({name: [column[i]] for name, column in values.items()}, [1])
        for name, column in together.items():
            np.testing.assert_array_equal(column[i], alone[name][0], err_msg=name)


@pytest.mark.parametrize("asked", [("loss_lost",), ("loss_lost", "utility_lost")])
def test_what_protection_costs_in_loss_is_counted_from_the_same_training_unprotected(asked):
    training = Training(0.1, rounds=Integer("rounds", 1, 3), local_epochs=1)
    goals = tuple(Objective(name) for name in asked)
    noisy = Federation(DATA, MODEL, training, Randomization(0.5, 1.0), goals)
    plain = Federation(DATA, MODEL, training, Unprotected(), (Objective("test_loss"),))
    values = {"rounds": [3]}
    ends, way = noisy.measure_along(values, [0])
    expected = way_of(noisy, values, "test_loss") - way_of(plain, values, "test_loss")
    assert way["loss_lost"] == pytest.approx(expected)
    assert ends["loss_lost"] == pytest.approx(expected[:, -1])
    assert ends["loss_lost"][0] != 0
    assert ("utility_lost" in ends) == ("utility_lost" in asked)


def way_of(problem, values, name):
    return problem.every_round(values, [0], [name])[name]


def test_utility_lost_is_counted_from_the_same_training_unprotected():
    training = Training(learning_rate=0.3, local_epochs=1, rounds=3)
    lost = Federation(DATA, MODEL, training, Randomization(1.0, 1.0), (Objective("utility_lost"),)).measure({}, [0])
    plain = Federation(DATA, MODEL, training, Unprotected(), (Objective("test_error"),)).measure({}, [0])
    assert lost["utility_lost"][0] == pytest.approx(lost["test_error"][0] - plain["test_error"][0])
    gentle = Federation(DATA, MODEL, training, Randomization(0.0, 1e6), (Objective("utility_lost"),)).measure({}, [0])
    assert gentle["utility_lost"][0] == 0


def test_a_mechanism_that_returns_the_wrong_shape_is_named():
    from dataclasses import dataclass, replace

    from fedpareto.errors import SettingError

    @dataclass(frozen=True)
    class Sums:
        def protect(self, upload, values, noise):
            return replace(upload, values=upload.values.sum(2))

    with pytest.raises(SettingError, match=r"mechanism Sums: protect must return an Upload with values of shape .*found \[1, 3\]"):
        federation(Sums()).measure({}, [0])
