"""Random search and Sobol starts."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto.optimizers import Random
from fedpareto.optimizers.random import start
from fedpareto.testing import check_optimizer, continuous, optimize


@pytest.mark.parametrize("sequence", ["sobol", "uniform"])
def test_random_search_keeps_the_contract_of_an_optimizer(sequence):
    check_optimizer(Random(sequence=sequence, batch=5))


def test_a_sobol_sequence_in_batches_is_the_sequence_in_one_go():
    whole = start("sobol", 3, 24, seed=5)
    parts = np.concatenate([start("sobol", 3, 8, seed=5, skip=s) for s in (0, 8, 16)])
    assert (whole == parts).all()


def test_sobol_fills_the_cube_more_evenly_than_chance():
    gap = {s: np.mean([np.abs(np.sort(start(s, 1, 64, seed)[:, 0]) - (np.arange(64) + 0.5) / 64).max() for seed in range(20)])
           for s in ("sobol", "uniform")}
    assert gap["sobol"] < 0.3 * gap["uniform"]


def test_another_seed_gives_other_points():
    problem = continuous(lambda x: x[:, :2], 2, 2)
    assert (optimize(problem, Random(), 20, 0).x != optimize(problem, Random(), 20, 1).x).any()


def test_a_space_too_wide_for_sobol_is_drawn_uniformly():
    assert start("sobol", 30_000, 2, seed=0).shape == (2, 30_000)
