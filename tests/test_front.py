"""Fronts: dominance and ranks against an oracle written out in full, hypervolume against geometry."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpareto.front import crowding, hypervolume, knee, nondominated, ranks, share_of_box

DIMENSIONS = [2, 3, 4, 5, 6]


def dominates(a: np.ndarray, b: np.ndarray) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def front_by_hand(y: np.ndarray) -> list[bool]:
    return [not any(dominates(other, row) for other in y) for row in y]


def ranks_by_hand(y: np.ndarray) -> list[int]:
    rank, left, level = [-1] * len(y), list(range(len(y))), 0
    while left:
        best = [i for i in left if not any(dominates(y[j], y[i]) for j in left)]
        for i in best:
            rank[i] = level
        left, level = [i for i in left if i not in best], level + 1
    return rank


def volume_by_hand(y: np.ndarray, reference: np.ndarray) -> float:
    """Return the volume of a union of boxes, by inclusion and exclusion."""
    inside = [row for row in y if (row < reference).all()]
    total = 0.0
    for size in range(1, len(inside) + 1):
        for rows in itertools.combinations(inside, size):
            total -= (-1) ** size * float(np.prod(reference - np.max(rows, axis=0)))
    return total


def staircase(steps: int, m: int) -> np.ndarray:
    """Return every point of a grid [0, steps)^m whose coordinates add up to steps − 1."""
    grid = itertools.product(range(steps), repeat=m)
    return np.array([point for point in grid if sum(point) == steps - 1], dtype=np.float64)


def matrices(elements: st.SearchStrategy[float], m: st.SearchStrategy[int], most: int) -> st.SearchStrategy[np.ndarray]:
    shapes = st.tuples(st.integers(0, most), m)
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=elements))


small = st.integers(0, 5).map(float)  # ties and equal rows abound
anything = st.floats(-1e6, 1e6)
any_matrix = st.one_of(matrices(small, st.integers(1, 6), 25), matrices(anything, st.integers(1, 6), 15))


@pytest.mark.parametrize("m", DIMENSIONS)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_hypervolume_of_a_staircase_is_the_number_of_grid_cells_above_it(m: int, steps: int) -> None:
    y = staircase(steps, m)
    cells = steps**m - math.comb(steps + m - 2, m)  # all cells, less those whose corner lies below every stair
    assert hypervolume(y, np.full(m, float(steps))) == cells


@pytest.mark.parametrize("m", DIMENSIONS)
def test_the_hypervolume_scales_with_each_objective_and_moves_with_its_origin(m: int) -> None:
    y, reference = staircase(3, m), np.full(m, 3.0)
    scale, shift = np.arange(1.0, m + 1), np.arange(m) - 7.5
    moved = hypervolume(y * scale + shift, reference * scale + shift)
    assert moved == pytest.approx(hypervolume(y, reference) * math.factorial(m), rel=1e-12)


@given(matrices(small, st.integers(1, 6), 7))
def test_the_hypervolume_is_that_of_the_union_of_boxes(y: np.ndarray) -> None:
    reference = np.full(y.shape[1], 4.0)
    assert hypervolume(y, reference) == volume_by_hand(y, reference)


@given(matrices(small, st.integers(2, 6), 30))
def test_the_hypervolume_never_falls_as_rows_are_added(y: np.ndarray) -> None:
    volumes = [hypervolume(y[:n], np.full(y.shape[1], 5.0)) for n in range(len(y) + 1)]
    assert volumes == sorted(volumes)
    assert volumes[0] == 0.0


@given(matrices(st.floats(0, 1), st.integers(2, 4), 15))
def test_the_hypervolume_of_measured_rows_never_falls_by_more_than_rounding(y: np.ndarray) -> None:
    volumes = [hypervolume(y[:n], np.ones(y.shape[1])) for n in range(len(y) + 1)]
    assert all(after >= before - 1e-12 for before, after in itertools.pairwise(volumes))
    assert 0.0 <= volumes[-1] <= 1.0 + 1e-12


@given(matrices(small, st.integers(2, 6), 20), st.randoms(use_true_random=False))
def test_the_hypervolume_depends_neither_on_the_order_of_rows_nor_on_dominated_ones(y: np.ndarray, draw) -> None:
    reference = np.full(y.shape[1], 4.0)
    order = draw.sample(range(len(y)), len(y))
    assert hypervolume(y[order], reference) == hypervolume(y, reference)
    assert hypervolume(y[nondominated(y)], reference) == hypervolume(y, reference)


@pytest.mark.parametrize("row", [[1.0, 0.5], [0.5, 1.0], [2.0, 0.0], [math.nan, 0.0], [0.0, math.inf]])
def test_a_row_on_or_beyond_the_reference_or_not_measured_adds_no_hypervolume(row: list[float]) -> None:
    assert hypervolume(np.array([row]), np.ones(2)) == 0.0
    assert hypervolume(np.array([[0.5, 0.5], row]), np.ones(2)) == 0.25


def test_the_hypervolume_of_one_objective_is_the_way_from_the_best_row_to_the_reference() -> None:
    assert hypervolume(np.array([[0.75], [0.25], [3.0]]), np.array([2.0])) == 1.75


def test_the_hypervolume_leaves_its_rows_alone() -> None:
    y = staircase(4, 3)[::-1]
    before = y.copy()
    hypervolume(y, np.full(3, 4.0))
    nondominated(y)
    ranks(y)
    assert (y == before).all()


@given(any_matrix)
def test_the_front_is_what_no_other_row_dominates(y: np.ndarray) -> None:
    found = nondominated(y)
    assert found.dtype == bool
    assert found.tolist() == front_by_hand(y)


@given(any_matrix)
def test_ranks_are_fronts_peeled_off_one_after_another(y: np.ndarray) -> None:
    found = ranks(y)
    assert np.issubdtype(found.dtype, np.integer)
    assert found.tolist() == ranks_by_hand(y)


def test_of_equal_rows_all_are_on_the_front() -> None:
    y = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert nondominated(y).tolist() == [True, True, True, False]
    assert ranks(y).tolist() == [0, 0, 0, 1]


def test_no_rows_have_no_front_and_no_ranks() -> None:
    assert nondominated(np.empty((0, 3))).shape == (0,)
    assert ranks(np.empty((0, 3))).shape == (0,)


@given(matrices(anything, st.integers(1, 6), 20).filter(len))
def test_the_crowding_distance_is_infinite_at_both_ends_of_every_objective(y: np.ndarray) -> None:
    distance = crowding(y)
    assert distance.shape == (len(y),)
    assert (distance >= 0).all()
    for column in y.T:
        assert np.isinf(distance[column == column.min()]).any()
        assert np.isinf(distance[column == column.max()]).any()


@given(st.permutations(range(12)))
def test_the_crowding_distance_is_the_way_between_neighbours_in_units_of_the_range(order: list[int]) -> None:
    x = np.array([0.0, 1.0, 2.0, 4.0, 7.0, 8.0, 9.0, 10.0, 13.0, 14.0, 18.0, 20.0])
    y = np.stack([x, 200 - 10 * x], axis=1)[order]
    gaps = np.array([math.inf, *(2 * (b - a) / 20 for a, b in zip(x, x[2:], strict=False)), math.inf])
    assert crowding(y).tolist() == pytest.approx(gaps[order].tolist())


def test_an_objective_in_which_all_rows_agree_adds_nothing_between_the_ends() -> None:
    y = np.array([[0.0, 5.0], [1.0, 5.0], [3.0, 5.0], [4.0, 5.0]])
    assert crowding(y).tolist() == [math.inf, 0.75, 0.75, math.inf]


@pytest.mark.parametrize("rows", [1, 2])
def test_one_or_two_rows_are_never_crowded(rows: int) -> None:
    assert crowding(np.arange(rows * 3.0).reshape(rows, 3)).tolist() == [math.inf] * rows


def test_the_knee_is_the_row_nearest_to_the_best_of_every_objective() -> None:
    y = np.array([[0.0, 1.0], [0.1, 0.4], [0.3, 0.2], [1.0, 0.0]])
    assert knee(y, np.ones(2)) == 2
    assert knee(y, np.array([1.0, 100.0])) == 0  # measured by that reference, the second objective hardly counts
    assert knee(y, np.array([100.0, 1.0])) == 3


@given(matrices(st.floats(0, 1), st.integers(1, 5), 20).filter(len), st.sampled_from([0.5, 2.0, 1024.0]))
def test_the_knee_does_not_depend_on_the_units_of_an_objective(y: np.ndarray, unit: float) -> None:
    reference = np.full(y.shape[1], 2.0)
    scale = unit ** np.arange(y.shape[1])
    assert knee(y * scale, reference * scale) == knee(y, reference)


@given(matrices(st.floats(0, 1), st.integers(2, 5), 20).filter(len))
def test_no_row_dominates_the_knee(y: np.ndarray) -> None:
    y = np.round(y, 3)
    front = y[nondominated(y)]
    chosen = front[knee(front, np.full(y.shape[1], 2.0))]
    assert not any(dominates(row, chosen) for row in y)


def test_the_knee_of_one_row_is_that_row_even_where_it_lies_on_the_reference() -> None:
    assert knee(np.array([[1.0, 1.0]]), np.ones(2)) == 0
    assert knee(np.array([[1.0, 3.0], [1.0, 2.0]]), np.ones(2)) == 1


def test_the_share_is_the_hypervolume_over_the_reference_box_whatever_the_units():
    y = np.array([[0.2, 300.0], [0.5, 100.0]])
    reference = np.array([1.0, 500.0])
    volume = hypervolume(y, reference)
    assert volume == pytest.approx(0.8 * 200 + 0.5 * 200)
    assert share_of_box(volume, reference) == pytest.approx(volume / 500)
    thousandths = np.array([1.0, 1000.0])
    assert share_of_box(hypervolume(y * thousandths, reference * thousandths), reference * thousandths) == pytest.approx(volume / 500)


@pytest.mark.parametrize("reference", [[1.0, 0.0], [-1.0, -2.0]])
def test_without_a_box_above_zero_there_is_no_share(reference):
    assert math.isnan(share_of_box(1.0, np.array(reference)))
