"""What is known and what is asked: shapes, batches, limits and penalties."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpareto.errors import SettingError
from fedpareto.history import History
from fedpareto.problem import Objective, feasible, limits, penalised, reference

ROWS = {"x": np.zeros((3, 2)), "y": np.zeros((3, 4)), "batch": np.zeros(3, dtype=np.int64)}
WRONG = {
    "fewer points": {"x": np.zeros((2, 2))},
    "fewer measurements": {"y": np.zeros((2, 4))},
    "fewer batches": {"batch": np.zeros(2, dtype=np.int64)},
    "flat points": {"x": np.zeros(3)},
    "flat measurements": {"y": np.zeros(3)},
    "batches in a column": {"batch": np.zeros((3, 1), dtype=np.int64)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_history_whose_arrays_disagree_is_refused_with_their_shapes(name: str) -> None:
    arrays = ROWS | WRONG[name]
    with pytest.raises(SettingError) as refused:
        History(**arrays)
    shapes = ", ".join(str(a.shape) for a in arrays.values())
    assert str(refused.value) == f"history: x [n,d], y [n,m] and batch [n] must agree, found {shapes}."


def test_an_empty_history_knows_its_width_and_nothing_else() -> None:
    history = History.empty(3, 2)
    assert (len(history), history.batches) == (0, 0)
    assert (history.x.shape, history.y.shape, history.batch.shape) == ((0, 3), (0, 2), (0,))
    assert history.failed.shape == (0,)


def test_a_history_cannot_be_given_other_arrays() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        History.empty(1, 1).x = np.zeros((5, 1))  # type: ignore[misc]


sizes = st.lists(st.integers(0, 4), max_size=6)


def grown(sizes: list[int]) -> History:
    """Return a history of batches of these sizes; each point is its own row number."""
    history = History.empty(1, 2)
    for size in sizes:
        rows = len(history) + np.arange(float(size))
        history = history.extend(rows[:, None], np.stack([rows, -rows], axis=1))
    return history


@given(sizes)
def test_extending_adds_one_batch_after_another(sizes: list[int]) -> None:
    filled = [size for size in sizes if size]
    history = grown(sizes)
    assert history.x[:, 0].tolist() == list(range(sum(sizes)))
    assert history.y[:, 1].tolist() == [-row for row in range(sum(sizes))]
    assert history.batch.tolist() == [b for b, size in enumerate(filled) for _ in range(size)]
    assert history.batches == len(filled)


@given(sizes, st.integers(0, 7))
def test_what_was_before_a_batch_is_the_history_at_that_time(sizes: list[int], batch: int) -> None:
    filled = [size for size in sizes if size]
    then, now = grown(filled[:batch]), grown(sizes).before(batch)
    assert all((getattr(then, name) == getattr(now, name)).all() for name in ("x", "y", "batch"))
    assert len(then) == len(now)


def test_extending_leaves_the_earlier_history_as_it_was() -> None:
    first = grown([2])
    second = first.extend(np.zeros((1, 1)), np.zeros((1, 2)))
    second.y[:] = 7.0
    assert len(first) == 2
    assert first.y.tolist() == [[0.0, 0.0], [1.0, -1.0]]


def test_a_row_that_lacks_any_measurement_failed() -> None:
    y = np.array([[1.0, 2.0], [math.nan, 2.0], [1.0, math.inf], [math.nan, math.nan]])
    assert History(np.zeros((4, 1)), y, np.zeros(4, dtype=np.int64)).failed.tolist() == [False, True, True, True]


def test_an_objective_measures_what_it_is_called_unless_told_otherwise() -> None:
    assert Objective("test_error").measure == "test_error"
    assert Objective("loss", "test_error").measure == "test_error"


@pytest.mark.parametrize("key", ["limit", "penalty", "reference"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_with_a_number_that_is_not_finite_is_refused(key: str, value: float) -> None:
    with pytest.raises(SettingError) as refused:
        Objective("loss", **{key: value})
    assert str(refused.value) == f"objective loss: {key} must be a finite number, found {value}."


def test_a_negative_penalty_is_refused() -> None:
    with pytest.raises(SettingError) as refused:
        Objective("loss", penalty=-0.5)
    assert str(refused.value) == "objective loss: penalty must be at least 0, found -0.5."
    assert Objective("loss", penalty=0.0).penalty == 0.0


ASKED = (Objective("a", limit=1.0, penalty=10.0, reference=3.0), Objective("b"), Objective("c", limit=-2.0))


def test_an_objective_without_limit_has_an_infinite_one() -> None:
    assert limits(ASKED).tolist() == [1.0, math.inf, -2.0]
    assert reference(ASKED).tolist() == [3.0, 1.0, 1.0]


def test_a_row_is_feasible_when_it_was_measured_and_holds_every_limit() -> None:
    y = np.array([[1.0, 1e9, -2.0], [1.1, 0.0, -3.0], [0.0, 0.0, -1.9], [math.nan, 0.0, -3.0], [0.0, math.inf, -3.0]])
    assert feasible(ASKED, y).tolist() == [True, False, False, False, False]
    assert feasible(ASKED, np.empty((0, 3))).shape == (0,)


def test_the_penalty_grows_with_what_exceeds_the_limit() -> None:
    y = np.array([[1.0, 5.0, -2.0], [1.5, 5.0, -1.0], [0.0, 5.0, -9.0]])
    assert penalised(ASKED, y).tolist() == [[1.0, 5.0, -2.0], [1.5 + 10 * 0.5, 5.0, -1.0 + 20 * 1.0], [0.0, 5.0, -9.0]]


@given(arrays(np.float64, (5, 3), elements=st.floats(-1e6, 1e6)))
def test_only_rows_beyond_a_limit_are_penalised(y: np.ndarray) -> None:
    found = penalised(ASKED, y)
    assert ((found == y).all(axis=1) == feasible(ASKED, y)).all()
    assert (found >= y).all()


def test_a_row_that_was_not_measured_stays_so_and_disturbs_no_other() -> None:
    found = penalised(ASKED, np.array([[math.nan] * 3, [2.0, 0.0, -2.0]]))
    assert np.isnan(found[0]).all()
    assert found[1].tolist() == [12.0, 0.0, -2.0]
