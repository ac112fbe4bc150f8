"""Measures after every round, and populations of which few clients take part."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from fedpareto import Data, Federation, Float, Integer, Mlp, Objective, Randomization, Training

OBJECTIVES = (Objective("utility_loss", "test_error"), Objective("leakage", "kang23_eq13"))
VALUES = {"learning_rate": [0.3, 0.05, 0.1], "sigma": [0.01, 0.2, 0.05]}
JUDGED = ("test_error", "test_loss", "test_error_worst", "test_loss_worst")


def federation(block: int = 3, top: float = 0.5, **training) -> Federation:
    settings = {"learning_rate": Float("learning_rate", 0.01, top, log=True), "rounds": 5, "local_steps": 3, "batch_size": 8,
                "sample_ratio": 0.6} | training
    mechanism = Randomization(Float("sigma", 0.001, 0.5, log=True), 1.0)
    return Federation(Data("digits", 5), Mlp((8,)), Training(**settings), mechanism, OBJECTIVES, block)


@pytest.mark.parametrize("training", [{}, {"momentum": 0.9}, {"weighting": "uniform", "sample_ratio": 1.0}])
def test_column_t_is_what_a_federation_of_t_rounds_measures(training):
    every = federation(**training).every_round(VALUES, [4, 4, 4])
    for t in range(5):
        measured = federation(rounds=t + 1, **training).measure(VALUES, [4, 4, 4])
        assert set(every) == set(measured) - {"diverged_round"}
        for name, columns in every.items():
            assert columns.shape == (3, 5)
            np.testing.assert_array_equal(columns[:, t], measured[name], err_msg=f"{name} after round {t + 1}")
    assert (np.diff(every["upload_bytes"], axis=1) > 0).all()
    assert np.ptp(every["test_loss"], axis=1).min() > 1e-3, "training must move the models, else nothing was compared"


def test_every_seed_and_every_block_tells_all_of_its_rounds():
    values = {name: [column[i % 3] for i in range(7)] for name, column in VALUES.items()}
    seeds = [4, 5, 4, 4, 5, 4, 4]  # of seed 4 there are more rows than fit into a block
    every = federation(block=2).every_round(values, seeds)
    for i, seed in enumerate(seeds):
        alone = federation(block=2).every_round({name: [column[i]] for name, column in values.items()}, [seed])
        np.testing.assert_array_equal(every["test_loss"][i], alone["test_loss"][0])


def test_rounds_that_are_searched_end_where_each_federation_does():
    searched = federation(rounds=Integer("rounds", 1, 9))
    every = searched.every_round(VALUES | {"rounds": [2, 4, 1]}, [0] * 3)
    assert every["test_loss"].shape == (3, 4)
    for name, columns in every.items():
        assert [int(np.isfinite(row).sum()) for row in columns] == [2, 4, 1], name
        for row, last, found in zip(columns, (2, 4, 1), searched.measure(VALUES | {"rounds": [2, 4, 1]}, [0] * 3)[name], strict=True):
            assert row[last - 1] == found
            assert np.isnan(row[last:]).all()


@pytest.mark.parametrize(("every", "judged"), [(2, [2, 4, 5]), (3, [3, 5]), (5, [5]), (100, [5])])
def test_rounds_between_evaluations_are_nan_and_the_last_is_always_there(every, judged):
    sparse, dense = federation(evaluate_every=every).every_round(VALUES, [4] * 3), federation().every_round(VALUES, [4] * 3)
    for name in JUDGED:
        assert [t + 1 for t in range(5) if np.isfinite(sparse[name][:, t]).all()] == judged, name
        assert np.isnan(sparse[name]).any(axis=0).sum() == 5 - len(judged), name
        for t in judged:
            np.testing.assert_array_equal(sparse[name][:, t - 1], dense[name][:, t - 1])
    for name in set(dense) - set(JUDGED):  # what needs no judging is there after every round
        np.testing.assert_array_equal(sparse[name], dense[name])
    measured = federation(evaluate_every=every).measure(VALUES, [4] * 3)
    np.testing.assert_array_equal(measured["test_loss"], dense["test_loss"][:, -1])


def test_a_diverging_federation_tells_the_rounds_before_it_diverged_and_no_others():
    wild = federation(top=1e9, rounds=4)
    values = {"learning_rate": [0.1, 30.0, 1e9], "sigma": [0.01, 0.01, 0.01]}
    every, measured = wild.every_round(values, [0] * 3), wild.measure(values, [0] * 3)
    assert np.isfinite(every["test_loss"][0]).all()
    assert measured["diverged_round"][2] == 1
    for row, lost in zip(every["test_loss"], measured["diverged_round"], strict=True):
        until = 4 if np.isnan(lost) else int(lost) - 1
        assert np.isfinite(row[:until]).all()
        assert np.isnan(row[until:]).all()


def test_which_rounds_are_judged_does_not_depend_on_neighbours():
    searched = federation(rounds=Integer("rounds", 1, 9), evaluate_every=2)
    alone = searched.every_round({name: [v[0]] for name, v in VALUES.items()} | {"rounds": [5]}, [0])
    beside = searched.every_round({name: [v[0]] * 2 for name, v in VALUES.items()} | {"rounds": [5, 3]}, [0, 0])
    np.testing.assert_array_equal(beside["test_loss"][0], alone["test_loss"][0])


# A population of 100,000.

ROWS = """
import numpy as np

def rows():
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(20, 4)).astype(np.float32)
    y = {"train": np.arange(300_000) % 20, "test": np.arange(1_000) % 20}
    x = {part: centres[y[part]] + 0.5 * draw.standard_normal((len(y[part]), 4), np.float32) for part in y}
    return x["train"], y["train"], x["test"], y["test"]
"""
POPULATION = """
import json, resource, sys, time
import torch
from fedpareto import Data, Federation, Float, Lr, Objective, Randomization, Training

torch.set_num_threads(1)
clients = int(sys.argv[1])
training = Training(learning_rate=0.5, rounds=10, local_epochs=1, batch_size=8, sample_ratio=100 / clients)
mechanism = Randomization(Float("sigma", 1e-4, 1.0), 1.0)
problem = Federation(Data("population:rows", clients), Lr(), training, mechanism, (Objective("test_error"),), block=4)
from fedpareto.federation.blocks import slots
assert slots(problem, [0]) == 100
problem.check()
begun = time.process_time()
measured = problem.measure({"sigma": [1e-4, 1e-3, 1e-2, 1.0]}, [0] * 4)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"seconds": time.process_time() - begun, "peak": peak, "error": list(measured["test_error"]),
                  "sent": list(measured["upload_bytes"])}))
"""
PARAMETERS = 4 * 20 + 20


@pytest.fixture
def population(tmp_path):
    """Train four federations of a population, 100 clients a round, in a process of its own; return what it took."""
    (tmp_path / "population.py").write_text(ROWS, encoding="utf-8")
    (tmp_path / "run.py").write_text(POPULATION, encoding="utf-8")

    def run(clients: int) -> dict:
        ended = subprocess.run([sys.executable, "-W", "error", str(tmp_path / "run.py"), str(clients)], capture_output=True, text=True,
                               check=False)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return run


def test_a_hundred_thousand_clients_take_seconds_and_no_memory_but_their_index_arrays(population):
    few, many = population(1_000), population(100_000)
    assert many["sent"] == few["sent"] == [100 * 10 * 4 * PARAMETERS] * 4
    assert many["error"][0] < many["error"][-1], "little noise must learn more than much noise, else nothing was trained"
    assert many["seconds"] < 20
    index_arrays = 8 * 8 * 100_000  # starts, sizes, shares and the round's order of clients, with room for copies
    judged = 3 * 4 * 4 * 100_000  # four federations, a figure per client, while the worst client is looked for
    slack = 16 * 2**20  # what the system gives a process at its pleasure
    one_update_each = 4 * 4 * PARAMETERS * 100_000
    assert many["peak"] - few["peak"] < index_arrays + judged + slack < one_update_each / 5


def test_what_protection_costs_is_told_after_every_round_against_the_same_round_without_it():
    def asked(rounds):
        training = Training(0.3, rounds=rounds, local_epochs=1, batch_size=64)
        return Federation(Data("digits", 4), Mlp((8,)), training, Randomization(0.3, 1.0), (Objective("utility_lost"),), block=1)

    _, way = asked(4).measure_along({}, [5])
    for t in range(1, 5):
        assert way["utility_lost"][0, t - 1] == asked(t).measure({}, [5])["utility_lost"][0]
