"""The closed form as a problem: the contract, the true front, and optimizers that find it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedpareto import theory
from fedpareto.errors import SettingError
from fedpareto.front import hypervolume, nondominated
from fedpareto.optimizers.nsga2 import Nsga2
from fedpareto.problem import Objective, reference
from fedpareto.space import Choice, Float, Integer
from fedpareto.testing import check_problem, optimize

RATIO = Float("sample_ratio", 0.125, 1.0)
FORMS = {
    "as it comes": theory.ClosedForm(),
    "noisy": theory.ClosedForm(noise=0.1),
    "with sample ratio": theory.ClosedForm(k=110.0, clients=40, sample_ratio=RATIO, noise=0.01),
    "fixed noise": theory.ClosedForm(sigma=0.1),
    "fixed rounds": theory.ClosedForm(rounds=20),
    "late rounds": theory.ClosedForm(rounds=Integer("rounds", 20, 60)),
}


@pytest.mark.parametrize("name", FORMS)
def test_it_keeps_the_contract_of_a_problem(name):
    check_problem(FORMS[name], n=5)


@pytest.mark.parametrize("name", FORMS)
def test_no_point_of_the_box_is_beyond_the_front(name):
    problem = FORMS[name]
    exact = theory.ClosedForm(problem.k, problem.clients, problem.sigma, problem.rounds, problem.sample_ratio)
    x = np.random.default_rng(0).random((3000, len(exact.space)))
    measured = exact.measure(exact.space.decode(x), [0] * len(x))
    y = np.stack([measured["utility_loss"], measured["leakage"]], axis=1)
    y = y[nondominated(y)]
    front = exact.front(points=400 if problem.rounds == 20 else 40)
    assert not (y[None] < front[:, None] * (1 - 1e-9)).all(axis=2).any()
    ref = reference(exact.objectives)
    assert (front <= ref * (1 + 1e-12)).all()
    assert hypervolume(y, ref) <= hypervolume(front, ref) * 1.001


def test_measures_are_eq_8():
    problem = theory.ClosedForm(k=110.0, clients=40, sample_ratio=RATIO)
    values = {"sigma": [0.02, 0.1], "rounds": [7, 30], "sample_ratio": [0.5, 0.25]}
    f1, f2 = theory.objectives([7, 30], [0.02, 0.1], 110, 40, [0.5, 0.25])
    measured = problem.measure(values, [1, 2])
    assert np.array_equal(measured["utility_loss"], f1)
    assert np.array_equal(measured["leakage"], f2)
    assert list(problem.known(values)) == ["leakage"]
    assert np.array_equal(problem.known(values)["leakage"], f2)
    assert problem.free == "rounds"
    assert problem.space.names == ("sigma", "rounds", "sample_ratio")


def test_noise_comes_from_the_seed_and_the_settings():
    problem = theory.ClosedForm(noise=0.1)
    values = {"sigma": [0.1, 0.1, 0.1, 0.12], "rounds": [10, 10, 10, 10]}
    loss = problem.measure(values, [1, 1, 2, 1])["utility_loss"]
    assert loss[0] == loss[1]
    exact = theory.ClosedForm().measure(values, [1, 1, 2, 1])["utility_loss"]
    off = np.log(loss / exact)
    assert len(np.unique(off)) == 3
    many = problem.measure({"sigma": [0.1] * 1000, "rounds": [10] * 1000}, list(range(1000)))["utility_loss"]
    assert np.std(np.log(many)) == pytest.approx(0.1, rel=0.1)


def test_one_training_gives_every_round():
    problem = theory.ClosedForm(noise=0.1)
    every = problem.every_round({"sigma": [0.1, 0.05], "rounds": [3, 5]}, [1, 2])
    assert every["utility_loss"].shape == (2, 5)
    assert np.isnan(every["utility_loss"][0, 3:]).all()
    for t in range(1, 4):
        alone = problem.measure({"sigma": [0.1], "rounds": [t]}, [1])
        assert every["utility_loss"][0, t - 1] == alone["utility_loss"][0]
        assert every["leakage"][0, t - 1] == alone["leakage"][0]


def test_an_optimizer_finds_the_front():
    problem = theory.ClosedForm(sigma=Float("sigma", 0.02, 0.3), rounds=Integer("rounds", 1, 50))
    history = optimize(problem, Nsga2(), 600, seed=1)
    ref = reference(problem.objectives)
    assert hypervolume(history.y, ref) > 0.97 * hypervolume(problem.front(points=20), ref)


def test_objectives_may_be_given():
    limited = theory.ClosedForm(objectives=(Objective("utility_loss", limit=0.5), Objective("leakage", reference=100.0)))
    assert limited.objectives[0].limit == 0.5
    assert [o.reference for o in theory.ClosedForm().objectives] == pytest.approx([1 + 2.5 * 0.15**2, np.sqrt(200) / 0.01])


BAD = {
    "k": ({"k": 0.0}, "k: must be finite and above 0, found 0. Estimate it"),
    "clients": ({"sample_ratio": 0.01}, "sample_ratio: must ask for at least one client, found 0.01 of 10 clients. Raise it to 0.1."),
    "low ratio": ({"sample_ratio": Float("sample_ratio", 0.01, 1.0)}, "sample_ratio: must ask for at least one client, found 0.01 of 10"),
    "no noise": ({"sigma": Float("sigma", 0.0, 1.0)}, "sigma: must be finite and above 0, found 0."),
    "name": ({"sigma": Float("noise", 0.1, 1.0)}, "sigma: the variable must have this name, found 'noise'."),
    "kind": ({"rounds": Float("rounds", 1.0, 2.0)}, "rounds: must be a number or a Integer, found Float("),
    "choice": ({"sigma": Choice("sigma", (0.1, 0.2))}, "sigma: must be a number or a Float, found Choice("),
    "rounds": ({"rounds": 0}, "rounds: must be finite and at least 1"),
    "negative noise": ({"noise": -0.1}, "noise: must be finite and at least 0, found -0.1."),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused_in_words(name):
    change, message = BAD[name]
    with pytest.raises(SettingError, match=re.escape(message)):
        theory.ClosedForm(**change)
