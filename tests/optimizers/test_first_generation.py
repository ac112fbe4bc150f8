"""The first generation: around the means that variables have, within their ranges, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import truncnorm

from fedpareto import Objective, load_study
from fedpareto.errors import SettingError, StudyError
from fedpareto.history import History
from fedpareto.optimizers import OPTIMIZERS, FedMoeac, Nsga2, StartsAround
from fedpareto.optimizers.random import first, start
from fedpareto.space import Choice, Float, Integer, Space
from fedpareto.study.table import as_range
from fedpareto.testing.functions import Function
from tests.conftest import STUDY

# Xiao 2025, 5.1: a prune rate from N(0.3, 0.1), a noise multiplier from N(6, 2.5), bits from the choices
RATE = Float("prune_rate", 0.0, 0.95, mean=0.3, spread=0.1)
NOISE = Float("noise_multiplier", 0.1, 12.0, mean=6.0, spread=2.5)
PAPER = Space((RATE, NOISE, Choice("bits", (8, 16, 32)), Integer("rounds", 1, 9)))


@pytest.mark.parametrize("optimizer", [FedMoeac(population=2000), Nsga2(population=2000, start="uniform")])
def test_the_first_generation_has_the_paper_s_distribution(optimizer):
    problem = Function(lambda x: x[:, :2], PAPER, (Objective("f1"), Objective("f2")))
    x = optimizer.propose(problem, History.empty(4, 2), 2000, seed=3)
    values = PAPER.decode(x)
    for v in (RATE, NOISE):
        ends = (np.array([v.low, v.high]) - v.mean) / v.spread
        law = truncnorm(*ends, loc=v.mean, scale=v.spread)
        found = np.array(values[v.name])
        assert found.min() >= v.low
        assert found.max() <= v.high
        for share in (0.05, 0.25, 0.5, 0.75, 0.95):
            assert (found <= law.ppf(share)).mean() == pytest.approx(share, abs=0.04)
    assert {b: values["bits"].count(b) / 2000 for b in (8, 16, 32)} == pytest.approx(dict.fromkeys((8, 16, 32), 1 / 3), abs=0.04)


def test_a_log_range_has_its_mean_in_real_units():
    space = Space((Float("sigma", 0.01, 100.0, log=True, mean=6.0, spread=0.5),))
    values = space.decode(first(space, "uniform", 500, seed=1))["sigma"]
    assert np.mean(values) == pytest.approx(6.0, abs=0.1)
    assert np.std(values) == pytest.approx(0.5, abs=0.1)


def test_without_means_it_is_the_sequence_as_before():
    space = Space((Float("a", 0.0, 1.0), Choice("b", (1, 2))))
    assert np.array_equal(first(space, "sobol", 7, 5, skip=3), start("sobol", 2, 7, 5, skip=3))


def searched(path, sigma, optimizer="fedmoeac"):
    text = STUDY.replace("sigma = { low = 0.01, high = 1.0, log = true }", f"sigma = {sigma}").replace('"nsga2"', f'"{optimizer}"')
    path.write_text(text if optimizer in ("nsga2", "fedmoeac") else text.replace("population = 2", ""))
    return load_study(path)


AROUND = "{ low = 0.01, high = 1.0, mean = 0.3, spread = 0.1 }"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_mean_is_used_or_refused(tmp_path, name):
    path = tmp_path / "study.toml"
    if issubclass(OPTIMIZERS[name], StartsAround):
        assert searched(path, AROUND, name).problem.mechanism.sigma == Float("sigma", 0.01, 1.0, False, 0.3, 0.1)
        return
    with pytest.raises(StudyError, match=r"mechanism\.sigma: must have no mean and spread with an optimizer that draws no first generation"):
        searched(path, AROUND, name)


def test_a_mean_is_part_of_what_the_study_is(tmp_path):
    path = tmp_path / "study.toml"
    with_mean = searched(path, AROUND).identity["mechanism"]["sigma"]
    assert with_mean == {"low": 0.01, "high": 1.0, "log": False, "mean": 0.3, "spread": 0.1}
    assert searched(path, "[0.01, 1.0]").identity["mechanism"]["sigma"] == {"low": 0.01, "high": 1.0, "log": False}
    assert as_range(RATE)["mean"] == 0.3


@pytest.mark.parametrize(("given", "said"), [
    ("low = 0.01, high = 1.0, mean = 0.3", "mean and spread must go together, found mean = 0.3 and spread = None"),
    ("low = 0.01, high = 1.0, mean = 3, spread = 1", "the mean must lie in [0.01, 1.0], found 3.0"),
    ("low = 0.01, high = 1.0, mean = 0.3, spread = 0", "the spread must be above 0 and finite, found 0.0"),
    ("low = 0.01, high = 1.0, mean = nan, spread = 1", "must be a finite number, found nan"),
    ("choices = [0.1, 0.2], mean = 0.1, spread = 1", "or a range written as"),
])
def test_a_first_distribution_that_is_none_is_refused(tmp_path, given, said):
    with pytest.raises(StudyError) as found:
        searched(tmp_path / "study.toml", f"{{ {given} }}")
    assert "mechanism.sigma" in str(found.value)
    assert said in str(found.value)


def test_a_spread_made_in_python_is_checked():
    with pytest.raises(SettingError, match="sigma: the spread must be above 0 and finite, found inf"):
        Float("sigma", 0.0, 1.0, mean=0.5, spread=float("inf"))


def test_whole_numbers_have_no_mean(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace("rounds = 1", "rounds = { low = 1, high = 3, mean = 2, spread = 1 }"))
    with pytest.raises(StudyError, match=r"training\.rounds: must be a whole number or a range written as"):
        load_study(path)
