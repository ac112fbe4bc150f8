"""Server steps against the formulas of Reddi 2021, written by hand, and in studies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedpareto import Data, Federation, Float, Lr, Objective, Randomization, Training
from fedpareto.errors import SettingError
from fedpareto.federation.servers import SERVERS, Adam, Average, Momentum, ServerStep
from fedpareto.testing import check_server

MEANS = [torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(i)) for i in range(4)]
START = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(9))
VALUES = {
    "server_learning_rate": torch.tensor([0.1, 1.0, 2.0]),
    "server_momentum": torch.tensor([0.0, 0.5, 0.9]),
    "server_beta1": torch.tensor([0.0, 0.5, 0.9]),
    "server_beta2": torch.tensor([0.9, 0.99, 0.5]),
    "server_tau": torch.tensor([1e-3, 0.1, 1.0]),
}


def moved(server: ServerStep) -> torch.Tensor:
    models, memory = START, server.start(START, VALUES)
    for mean in MEANS:
        models, memory = server.step(models, mean, memory, VALUES)
    return models


def number(name: str, r: int) -> float:
    return float(VALUES[f"server_{name}"][r])


def test_average_adds_the_mean():
    torch.testing.assert_close(moved(Average()), START + sum(MEANS))


@pytest.mark.parametrize("r", range(3))
def test_momentum_is_fedavgm(r):
    x, speed = START[:, r].double().numpy(), np.zeros((2, 5))
    for mean in MEANS:
        speed = number("momentum", r) * speed + mean[:, r].double().numpy()
        x = x + number("learning_rate", r) * speed
    np.testing.assert_allclose(moved(Momentum())[:, r].numpy(), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("r", range(3))
def test_adam_is_fedadam_algorithm_2(r):
    x, m, tau = START[:, r].double().numpy(), np.zeros((2, 5)), number("tau", r)
    v = np.full((2, 5), tau**2)
    b1, b2 = number("beta1", r), number("beta2", r)
    for mean in MEANS:
        delta = mean[:, r].double().numpy()
        m = b1 * m + (1 - b1) * delta
        v = b2 * v + (1 - b2) * delta**2
        x = x + number("learning_rate", r) * m / (np.sqrt(v) + tau)
    np.testing.assert_allclose(moved(Adam())[:, r].numpy(), x, rtol=1e-4, atol=1e-5)


def test_momentum_without_momentum_is_the_average():
    torch.testing.assert_close(moved(Momentum())[:, 0], START[:, 0] + 0.1 * sum(MEANS)[:, 0])


@pytest.mark.parametrize("server", [Average(), Momentum(), Adam(Float("server_learning_rate", 0.001, 0.1, log=True))],
                         ids=lambda s: type(s).__name__)
def test_every_server_step_trains_and_a_row_depends_on_itself_alone(server):
    training = Training(Float("learning_rate", 0.01, 0.5), rounds=6, local_epochs=1, batch_size=32)
    problem = Federation(Data("digits", 5), Lr(), training, Randomization(1e-4, 1e3), (Objective("test_error"),), block=3, server=server)
    values = {"learning_rate": [0.3, 0.1, 0.2]}
    if "server_learning_rate" in problem.space.names:
        values["server_learning_rate"] = [0.02, 0.05, 0.01]
    found = problem.measure(values, [1, 1, 1])
    alone = problem.measure({name: v[1:2] for name, v in values.items()}, [1])
    assert found["test_error"][1] == alone["test_error"][0]
    assert (found["test_error"] < 0.5).all()


def test_every_member_of_the_family_is_a_server_step():
    assert all(isinstance(cls(), ServerStep) for cls in SERVERS.values())


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_step_keeps_the_contract(name):
    check_server(SERVERS[name]())


def test_a_server_step_that_looks_at_its_neighbours_is_found():
    @dataclass(frozen=True)
    class Nosy:
        def start(self, models, values):
            return ()

        def step(self, models, mean, memory, values):
            return models + mean / mean.norm(), ()

    with pytest.raises(AssertionError, match="must not depend on its neighbours"):
        check_server(Nosy())


def test_a_server_step_that_changes_the_shape_of_models_is_refused_before_anything_runs():
    @dataclass(frozen=True)
    class Flat:
        def start(self, models, values):
            return ()

        def step(self, models, mean, memory, values):
            return models.flatten(), ()

    problem = Federation(Data("digits", 5), Lr(), Training(0.1, local_steps=1), Randomization(0.1), (), server=Flat())
    with pytest.raises(SettingError, match=r"server: step must return models of the shape it was given, \[1, 1, 3\], found \[3\]"):
        problem.check()
