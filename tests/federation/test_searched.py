"""Searched settings of local training and of the server: every row is that of a study in which they are fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fedavg_by_hand as by_hand
import numpy as np
import pytest

from fedpareto import Choice, Data, Federation, Float, Lr, Mlp, Objective, Randomization, Training
from fedpareto.federation.servers import Adam, Average, Momentum, OneOf
from fedpareto.federation.setup import Setup
from fedpareto.settings import fixed

DATA = Data("digits", 7, split="unequal", alpha=2.0)
ROUNDS = 3
SEED = 3


def federation(model=None, data: Data = DATA, mechanism=None, server=None, block: int = 3, **training) -> Federation:
    settings = {"learning_rate": 0.2, "rounds": ROUNDS, "local_steps": 3, "batch_size": 8, "sample_ratio": 0.6} | training
    return Federation(data, model or Mlp((6,)), Training(**settings), mechanism or Randomization(0.01, 1.0),
                      (Objective("test_loss"),), block, server=server or Average())


def measured(problem: Federation, points: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the rows of points that train together."""
    columns = problem.measure({name: [p[name] for p in points] for name in problem.space.names}, [SEED] * len(points))
    return [{name: column[i] for name, column in columns.items()} for i in range(len(points))]


def fixed_row(problem: Federation, point: dict[str, Any], **parts) -> dict[str, float]:
    """Return the row of a study with these settings fixed, in a block of the same size."""
    study = replace(problem, **{name: fixed(getattr(problem, name), lambda v: point[v.name]) for name in ("training", "server")})
    (row,) = measured(replace(study, **parts), [{}])
    return row


def same(a: dict[str, float], b: dict[str, float]) -> bool:
    """Say whether two rows are equal bit for bit."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


def by_hand_row(problem: Federation, point: dict[str, Any]) -> list[float]:
    """Return the test losses of the federation written by hand, of one point."""
    training = fixed(problem.training, lambda v: point[v.name])
    setup = Setup(problem.data, problem.model, training, problem.mechanism, SEED)
    _, losses, _ = by_hand.train(setup, training.learning_rate, training.sample_ratio, problem.mechanism.sigma,
                                 problem.mechanism.clipping_norm, training.rounds)
    return losses


def each_by_itself(problem: Federation, points: list[dict[str, Any]]) -> None:
    """Check that no row depends on its neighbours, and that all differ."""
    rows = measured(problem, points)
    for point, row in zip(points, rows, strict=True):
        (alone,) = measured(problem, [point])
        assert same(alone, row), point
    others = measured(problem, points[::-1])[::-1]
    assert all(map(same, rows, others))
    assert len({row["test_loss"] for row in rows}) == len(rows), "rows must not look alike, else nothing was compared"


MOMENTA = [{"momentum": m, "learning_rate": r} for m, r in ((0.9, 0.05), (0.3, 0.2), (0.0, 0.3))]


@pytest.mark.parametrize("model", [Mlp((6,)), Lr()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("momentum", [Float("momentum", 0.0, 0.95), Choice("momentum", (0.0, 0.3, 0.9))], ids=["range", "choice"])
def test_a_searched_momentum_trains_as_a_fixed_one(model, momentum):
    problem = federation(model, momentum=momentum, learning_rate=Float("learning_rate", 0.01, 1.0))
    each_by_itself(problem, MOMENTA)
    for point, row in zip(MOMENTA, measured(problem, MOMENTA), strict=True):
        alone = fixed_row(problem, point)
        assert row["test_loss"] == pytest.approx(alone["test_loss"], abs=1e-6)
        if point["momentum"]:  # a fixed momentum of 0 takes the shorter step of plain SGD, rounded otherwise
            assert same(row, alone)
        assert row["test_loss"] == pytest.approx(by_hand_row(problem, point)[-1], abs=1e-5)


SERVERS = {"average": Average(), "momentum": Momentum(0.7, 0.8), "adam": Adam(0.03, 0.8, 0.95, 0.01)}
CHOSEN = OneOf(momentum_learning_rate=0.7, server_momentum=0.8, adam_learning_rate=0.03, server_beta1=0.8, server_beta2=0.95,
               server_tau=0.01)


def test_a_chosen_server_step_is_that_step_by_itself():
    problem = federation(server=CHOSEN)
    points = [{"server_step": name} for name in SERVERS]
    each_by_itself(problem, points)
    for name, row in zip(SERVERS, measured(problem, points), strict=True):
        assert same(row, fixed_row(problem, {"server_step": name}, server=SERVERS[name])), name
        assert same(row, fixed_row(problem, {"server_step": name})), name


def test_the_steps_that_may_be_chosen_may_be_few_and_in_any_order():
    few = replace(CHOSEN, server_step=Choice("server_step", ("adam", "average")))
    rows = measured(federation(server=few), [{"server_step": "average"}, {"server_step": "adam"}])
    for name, row in zip(("average", "adam"), rows, strict=True):
        assert same(row, measured(federation(server=SERVERS[name]), [{}])[0])


def test_settings_of_the_server_are_searched():
    server = Adam(Float("server_learning_rate", 0.001, 0.1), Float("server_beta1", 0.0, 0.95))
    points = [{"server_learning_rate": a, "server_beta1": b} for a, b in ((0.01, 0.9), (0.03, 0.0), (0.1, 0.5))]
    problem = federation(server=server)
    each_by_itself(problem, points)
    for point, row in zip(points, measured(problem, points), strict=True):
        assert same(row, fixed_row(problem, point))
