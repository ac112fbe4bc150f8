"""Which setting moves what: known indices are found, noise is not believed, and the page is told of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpareto import Random, Study, view
from fedpareto.report.importance import FEWEST, as_data, importances
from fedpareto.report.page import page_data
from fedpareto.testing import continuous
from fedpareto.trials import Trial


def seen_of(f, n=400, d=3, seed=0):
    """Return a view of n random points of d settings, with the values of f [n] and one that is constant."""
    x = np.random.default_rng(seed).random((n, d))
    problem = continuous(lambda at: np.stack([f(at), np.ones(len(at))], axis=1), d, 2, reference=100.0)
    settings = problem.space.decode(x)
    y = f(x)
    trials = [Trial(i, 0, tuple(x[i]), {k: v[i] for k, v in settings.items()}, "done", {"f1": float(y[i]), "f2": 1.0}) for i in range(n)]
    return view(Study("moved", problem, Random(), budget=n), trials)


@pytest.mark.parametrize(("f", "alone", "total"), [
    (lambda x: x[:, 0] + 0.5 * x[:, 1], [0.8, 0.2, 0], [0.8, 0.2, 0]),
    (lambda x: (0.2 + x[:, 0]) * (0.2 + x[:, 1]), [0.461, 0.461, 0], [0.539, 0.539, 0]),  # 0.7²/12 each, and 1/144 together
    (lambda x: (x[:, 0] - 0.5) * (x[:, 1] - 0.5), [0, 0, 0], [1, 1, 0]),
], ids=["a sum", "a product", "an interaction alone"])
def test_indices_that_are_known_are_found(f, alone, total):
    (found,) = importances(seen_of(f))
    assert found.holds
    assert list(found.alone.values()) == pytest.approx(alone, abs=0.08)
    assert list(found.total.values()) == pytest.approx(total, abs=0.15)
    assert all(found.alone[name] <= found.total[name] <= 1 for name in found.total)


def test_noise_is_not_believed():
    random = np.random.default_rng(1)
    (found,) = importances(seen_of(lambda x: random.random(len(x))))
    assert not found.holds
    assert as_data(seen_of(lambda x: x[:, 0]))[0]["holds"]


def test_what_spans_decades_is_taken_by_its_logarithm():
    (found,) = importances(seen_of(lambda x: 10.0 ** (4 * x[:, 0] + 2 * x[:, 1])))
    assert found.log
    assert list(found.total.values()) == pytest.approx([0.8, 0.2, 0], abs=0.08)


def test_the_same_rows_say_the_same():
    seen = seen_of(lambda x: x[:, 0] + x[:, 2] ** 2, n=60)
    assert importances(seen) == importances(seen)
    assert page_data(seen)["importance"] == as_data(seen)


def test_few_trials_one_setting_and_settings_of_another_space_have_none():
    assert importances(seen_of(lambda x: x[:, 0], n=FEWEST - 1)) == []
    assert len(importances(seen_of(lambda x: x[:, 0], n=FEWEST))) == 1
    assert importances(seen_of(lambda x: x[:, 0], d=1)) == []
    seen = seen_of(lambda x: x[:, 0], n=30)
    assert importances(replace(seen, points=tuple(replace(p, settings={"other": 1.0}) for p in seen.points))) == []


def test_a_trial_counts_once_however_many_of_its_rounds_are_points():
    seen = seen_of(lambda x: x[:, 0] + x[:, 1], n=40)
    early = replace(seen.points[3], settings=seen.points[3].settings | {"x1": 0.01})
    assert importances(replace(seen, points=(*seen.points, early))) == importances(seen)
