"""Searched settings of local training and of the server: every row is that of a study in which they are fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fedavg_by_hand as by_hand
import numpy as np
import pytest

from fedpareto import (
    Choice,
    Data,
    DpSgd,
    Federation,
    Float,
    Integer,
    Lr,
    Mlp,
    Objective,
    Quantization,
    Randomization,
    Sparsification,
    Training,
)
from fedpareto.errors import SettingError
from fedpareto.federation.servers import Adam, Average, Momentum, OneOf
from fedpareto.federation.setup import Setup
from fedpareto.privacy import Privacy
from fedpareto.settings import fixed

DATA = Data("digits", 7, split="unequal", alpha=2.0, share=0.2)
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


EPOCHS = [{"local_epochs": e} for e in (1, 4, 2)]
STEPS = [{"local_steps": s} for s in (2, 7, 1)]
WORK = [("local_epochs", EPOCHS), ("local_steps", STEPS)]


def unset(length: str) -> dict[str, Any]:
    return {"local_steps": 0} | {length: Integer(length, 1, 7)}


@pytest.mark.parametrize(("length", "points"), WORK)
@pytest.mark.parametrize("more", [{}, {"momentum": 0.8, "weighting": "size", "batch_size": 50}], ids=["plain", "momentum"])
def test_searched_epochs_and_steps_train_as_fixed_ones_bit_for_bit(length, points, more):
    problem = federation(**unset(length), **more)  # of clients of unlike sizes: some take fewer steps an epoch
    each_by_itself(problem, points)
    for point, row in zip(points, measured(problem, points), strict=True):
        assert same(row, fixed_row(problem, point)), point
        assert row["test_loss"] == pytest.approx(by_hand_row(problem, point)[-1], abs=1e-5)


@pytest.mark.parametrize("length", ["local_epochs", "local_steps"])
def test_choices_of_batch_sizes_train_as_fixed_ones_bit_for_bit(length):
    problem = federation(batch_size=Choice("batch_size", (8, 30, 60)), **unset(length))
    points = [{"batch_size": b, length: e} for b, e in ((8, 1), (30, 3), (60, 1), (30, 1))]
    each_by_itself(problem, points)
    for point, row in zip(points, measured(problem, points), strict=True):
        assert same(row, fixed_row(problem, point)), point
        assert row["test_loss"] == pytest.approx(by_hand_row(problem, point)[-1], abs=1e-5)


@pytest.mark.parametrize("model", [Mlp((6,)), Lr()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("more", [{"local_steps": 3}, {"local_steps": 0, "local_epochs": Integer("local_epochs", 1, 3), "momentum": 0.5}],
                         ids=["steps", "epochs"])
def test_a_range_of_batch_sizes_trains_as_fixed_ones_up_to_rounding(model, more):
    """Mini-batches are filled up to the next power of two, so sums over them are rounded in another order."""
    problem = federation(model, batch_size=Integer("batch_size", 3, 60), **more)
    points = [{"batch_size": b, **({"local_epochs": e} if "local_epochs" in more else {})} for b, e in ((9, 2), (16, 1), (11, 1), (60, 3))]
    each_by_itself(problem, points)
    for point, row in zip(points, measured(problem, points), strict=True):
        alone = fixed_row(problem, point)
        assert row.keys() == alone.keys()
        assert {name: row[name] for name in COSTS} == {name: alone[name] for name in COSTS}
        assert row["test_loss"] == pytest.approx(alone["test_loss"], abs=1e-5)
        assert row["test_loss"] == pytest.approx(by_hand_row(problem, point)[-1], abs=1e-5)


COSTS = ("training_seconds", "training_seconds_worst", "gu24_eq4", "upload_bytes", "download_bytes", "kang23_eq14")


def test_a_row_depends_on_itself_alone_however_many_train_beside_it():
    problem = federation(batch_size=Integer("batch_size", 4, 64), **unset("local_epochs"), momentum=Float("momentum", 0.0, 0.9), block=4)
    draw = np.random.default_rng(0)
    points = [problem.space.decode(draw.random((1, 3))) for _ in range(11)]
    points = [{name: column[0] for name, column in p.items()} for p in points]
    together = measured(problem, points)
    for i in (0, 4, 10):
        assert same(measured(problem, [points[i]])[0], together[i])
    assert all(map(same, measured(problem, points[::-1])[::-1], together))


def test_searched_widths_batches_and_what_clients_keep_go_together():
    mechanism = Sparsification(Float("connection_probability", 0.3, 1.0), Float("private_fraction", 0.0, 0.6))
    problem = federation(Mlp((Integer("hidden_1", 2, 8),)), mechanism=mechanism, batch_size=Integer("batch_size", 4, 30), block=3)
    points = [{"batch_size": b, "hidden_1": h, "connection_probability": c, "private_fraction": f}
              for b, h, c, f in ((5, 2, 0.5, 0.3), (7, 8, 1.0, 0.0), (30, 5, 0.8, 0.5), (8, 4, 0.4, 0.6))]
    each_by_itself(problem, points)
    shared = replace(problem, training=replace(problem.training, batch_size=Choice("batch_size", (5, 7, 8, 30))))
    for row, other in zip(measured(problem, points), measured(shared, points), strict=True):
        assert row["test_loss"] == pytest.approx(other["test_loss"], abs=1e-5)
        assert row["kang23_eq15"] == pytest.approx(other["kang23_eq15"], abs=1e-4)


@pytest.mark.parametrize("batch", [Integer("batch_size", 3, 60), Choice("batch_size", (9, 16, 11))])
def test_a_kept_model_is_the_one_that_its_row_was_measured_on(batch):
    problem = federation(batch_size=batch, **unset("local_epochs"))
    points = [{"batch_size": b, "local_epochs": e} for b, e in ((9, 2), (16, 3), (11, 1))]
    for point, row in zip(points, measured(problem, points), strict=True):
        _, measures = problem.train(point, SEED)
        assert same({name: row[name] for name in measures}, measures)


KNOWN = [(Data("digits", 6), {"sample_ratio": 1.0, "local_steps": 0, "local_epochs": Integer("local_epochs", 1, 2)}),
         (Data("digits", 6), {"local_steps": Integer("local_steps", 1, 5)}), (Data("digits", 6, "shards"), {"local_steps": 2}),
         (Data("digits", 13), {"sample_ratio": 1.0})]


@pytest.mark.parametrize(("data", "training"), KNOWN)
@pytest.mark.parametrize("batch", [Integer("batch_size", 8, 60), Choice("batch_size", (4, 60, 16))], ids=["range", "choice"])
def test_costs_known_beforehand_are_those_measured(data, training, batch):
    problem = federation(Lr(), data, Quantization(4), batch_size=batch, **training)
    draw = np.random.default_rng(1)
    values = problem.space.decode(draw.random((5, len(problem.space))))
    told = problem.known(values, list(COSTS))
    found = problem.measure(values, [SEED] * 5)
    assert set(told) == set(COSTS)
    assert len(set(told["training_seconds"])) > 1
    for name, column in told.items():
        np.testing.assert_allclose(column, found[name], rtol=1e-12, err_msg=name)


def test_time_is_not_claimed_where_a_larger_batch_would_make_clients_differ():
    """Clients of 110 and 111 images take equal batches of up to 110, and not of 120."""
    for top, known in ((110, True), (120, False)):
        problem = federation(Lr(), Data("digits", 13), Quantization(4), batch_size=Integer("batch_size", 20, top))
        assert ("training_seconds" in problem.known({"batch_size": [20]}, ["training_seconds", "upload_bytes"])) is known


@pytest.mark.parametrize("training", [{"batch_size": Integer("batch_size", 4, 32)}, unset("local_steps"),
                                      {"momentum": Float("momentum", 0.1, 0.9)}], ids=["batch", "steps", "momentum"])
def test_how_long_clients_train_does_not_change_the_true_epsilon(training):
    problem = federation(**training)
    columns = problem.columns({name: [v.decode(0.0), v.decode(1.0)] for name, v in zip(problem.space.names, problem.space.variables,
                                                                                          strict=True)}, 2)
    assert columns["epsilon_server"][0] == columns["epsilon_server"][1] == federation().columns({}, 1)["epsilon_server"][0]
    assert np.isfinite(columns["epsilon_server"]).all()


RECORDS = Privacy(unit="record")


@pytest.mark.parametrize(("batches", "training"), [
    ("poisson", {"local_steps": Integer("local_steps", 1, 6), "batch_size": Integer("batch_size", 2, 10)}),
    ("poisson", unset("local_epochs") | {"batch_size": Choice("batch_size", (4, 6))}),
    ("shuffled", unset("local_epochs") | {"momentum": Float("momentum", 0.1, 0.9)})], ids=["steps", "epochs", "shuffled"])
def test_steps_that_hide_records_may_be_searched_too(training, batches):
    problem = replace(federation(Lr(), **training), local=DpSgd(0.8, 0.5, batches), privacy=RECORDS)
    points = [problem.space.decode(np.full((1, 3), u)[:, : len(problem.space)]) for u in (0.1, 0.9, 0.5)]
    points = [{name: column[0] for name, column in p.items()} for p in points]
    each_by_itself(problem, points)
    for point, row in zip(points, measured(problem, points), strict=True):
        alone = fixed_row(problem, point)
        assert row["test_loss"] == pytest.approx(alone["test_loss"], abs=1e-5)
        assert {name: row[name] for name in COSTS} == {name: alone[name] for name in COSTS}
        assert row["epsilon_record"] == alone["epsilon_record"]
        if "local_steps" in point:
            assert same(row, alone)


@pytest.mark.parametrize(("given", "message"), [
    ({"local_steps": Integer("local_steps", 0, 5)}, r"local_steps: must be at least 1 where it is searched, found \[0, 5\]."),
    ({"local_steps": 0, "local_epochs": Choice("local_epochs", (0, 2))}, r"local_epochs: must be at least 1 where it is searched, found \[0, 2\]."),
    ({"local_epochs": Integer("local_epochs", 1, 2)},
     r"exactly one of local_epochs and local_steps must be given, found local_epochs = \[1, 2\], local_steps = 3."),
    ({"local_epochs": Integer("local_epochs", 1, 2), "local_steps": Choice("local_steps", (3, 4))},
     r"exactly one of .* found local_epochs = \[1, 2\], local_steps = \[3, 4\]."),
])
def test_lengths_that_cannot_be_searched_are_refused(given, message):
    with pytest.raises(SettingError, match=message):
        federation(**given)


@pytest.mark.parametrize("batch", [Integer("batch_size", 2, 400), Choice("batch_size", (16, 400))])
def test_batches_larger_than_every_client_are_refused_where_they_are_searched(batch):
    with pytest.raises(SettingError, match=r"training\.batch_size: must be at most the 240 images that the largest client holds, where it is "
                                           "searched, found 400"):
        federation(data=Data("digits", 6), batch_size=batch).check()
    federation(data=Data("digits", 6), batch_size=400).check()  # one fixed size may stand for all that a client has
