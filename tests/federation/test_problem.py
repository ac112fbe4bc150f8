"""The simulated federation as a problem."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

from fedpareto import Data, Federation, Float, Integer, Mlp, Objective, Randomization, Training
from fedpareto.errors import DataError
from fedpareto.federation.blocks import _repeated
from fedpareto.federation.blocks import grids as blocks
from fedpareto.testing import check_problem

OBJECTIVES = (Objective("utility_loss", "test_error"), Objective("leakage", "kang23_eq13", limit=0.8))


def federation(block: int = 4, clients: int = 5, **training) -> Federation:
    settings = {"learning_rate": Float("learning_rate", 0.01, 0.5, log=True), "rounds": 2, "local_epochs": 1, "batch_size": 32}
    mechanism = Randomization(Float("sigma", 0.001, 0.5, log=True), Float("clipping_norm", 0.5, 4.0))
    return Federation(Data("digits", clients), Mlp((8,)), Training(**(settings | training)), mechanism, OBJECTIVES, block)


def values(n: int, **fixed):
    base = {"learning_rate": [0.1] * n, "sigma": [0.01] * n, "clipping_norm": [1.0] * n}
    return base | {name: [v] * n for name, v in fixed.items()}


@pytest.mark.parametrize("searched", [{}, {"sample_ratio": Float("sample_ratio", 0.2, 1.0)},
                                      {"rounds": Integer("rounds", 1, 3)}])
def test_a_row_depends_on_its_settings_and_seed_alone(searched):
    check_problem(federation(block=4, **searched), n=6)


def test_a_short_block_gives_the_same_bits_as_a_full_one():
    problem = federation(block=5)
    full = problem.measure(values(5) | {"sigma": [0.01, 0.02, 0.03, 0.04, 0.05]}, [3] * 5)
    for i in range(5):
        alone = problem.measure(values(1, sigma=[0.01, 0.02, 0.03, 0.04, 0.05][i]), [3])
        assert alone["test_loss"][0] == full["test_loss"][i]


def test_repeats_differ_and_trials_of_one_repeat_share_their_luck():
    out = federation().measure(values(4), [1, 1, 2, 2])
    assert out["test_loss"][0] == out["test_loss"][1]
    assert out["test_loss"][2] == out["test_loss"][3]
    assert out["test_loss"][0] != out["test_loss"][2]


def test_a_run_of_many_rounds_tells_the_result_of_every_shorter_one():
    searched = federation(rounds=Integer("rounds", 1, 4))
    together = searched.measure(values(4) | {"rounds": [1, 2, 3, 4]}, [0] * 4)
    for i, rounds in enumerate([1, 2, 3, 4]):
        alone = federation(rounds=rounds).measure(values(4), [0] * 4)
        assert alone["test_error"][0] == together["test_error"][i]
        assert alone["upload_bytes"][0] == together["upload_bytes"][i]


def test_a_diverging_row_is_nan_and_says_when():
    wild = federation(learning_rate=Float("learning_rate", 0.01, 1e7, log=True))
    out = wild.measure(values(2) | {"learning_rate": [0.1, 1e6]}, [0, 0])
    assert np.isfinite(out["test_error"][0])
    assert np.isnan(out["test_error"][1])
    assert list(np.isfinite(out["diverged_round"])) == [False, True]
    assert "diverged in round 1" in wild.failures["diverged_round"].format(out["diverged_round"][1])


def test_leakage_is_the_formula_of_the_settings():
    out = federation().measure(values(1, sigma=0.1, clipping_norm=2.0), [0])
    parameters = 64 * 8 + 8 + 8 * 10 + 10
    assert out["kang23_eq13"][0] == pytest.approx(1 - (0.1 / 2) ** 2 * np.sqrt(parameters))


def test_gentle_protection_changes_nothing():
    out = federation(block=1).measure(values(1, sigma=0.001, clipping_norm=4.0), [0])
    bare = dataclasses.replace(federation(block=1), mechanism=Randomization(0.0, 1e9)).measure({"learning_rate": [0.1]}, [0])
    assert out["test_loss"][0] == pytest.approx(bare["test_loss"][0], abs=1e-2)


def test_more_clients_than_images_are_refused_before_anything_runs():
    with pytest.raises(DataError, match=r"every client needs an image, so at most 1,438 clients for digits, found 5,000"):
        federation(clients=5000).check()


def test_seeds_join_a_block_only_where_each_has_the_same_settings():
    problem, settings = federation(), values(4) | {"sigma": [0.01, 0.02, 0.01, 0.02]}
    assert _repeated(problem, settings, [1, 1, 2, 2])
    assert not _repeated(problem, settings, [1, 2, 2, 1])
    assert not _repeated(problem, settings, [1, 1, 1, 2])
    assert [grid.tolist() for grid in blocks([1, 1, 2, 2], rows=4, repeats=2)] == [[[0, 1], [2, 3]]]


def test_cuda_does_not_complain_of_a_context_that_torch_makes_itself(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert federation().device == "cuda"
        warnings.warn("Attempting to run cuBLAS, but there was no current CUDA context! Attempting to set the primary context...", UserWarning, 2)
        warnings.warn("something else", UserWarning, 2)
    assert [str(w.message) for w in heard] == ["something else"]
