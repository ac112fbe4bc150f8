"""Kang 2023, Eq. 15 is the mean over the rounds of a training, as in Algorithm 1, or of its last ones where that is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpareto import Study, load_study, run
from fedpareto.errors import StoreError
from fedpareto.federation import Data, Federation, Lr, Training
from fedpareto.federation.measures import MEASURES
from fedpareto.mechanisms import Chain, Quantization, Sparsification
from fedpareto.optimizers import Random
from fedpareto.privacy import kang23_eq15
from fedpareto.problem import Objective
from fedpareto.space import Integer

ROUNDS = 4


def federation(mechanism, rounds=ROUNDS):
    training = Training(0.2, rounds=rounds, local_steps=2, batch_size=8, sample_ratio=0.5)
    return Federation(Data("digits", 6), Lr(), training, mechanism, (Objective("kang23_eq15"), Objective("kang23_eq15_worst")))


def by_round(problem):
    """Return the leakage of each client of each round, [T,M], from what the clients withheld."""
    from fedpareto.federation import blocks
    from fedpareto.federation.columns import given_of

    values = {v.name: [ROUNDS] for v in problem.space.variables}
    grid = np.zeros((1, 1), dtype=np.int64)
    trace, _ = blocks.trained(problem, values, given_of(problem, values, 1), grid, [3])
    return kang23_eq15(trace.withheld[0], 8.0)


@pytest.mark.parametrize(("count", "kept"), [(0, slice(None)), (1, slice(-1, None)), (3, slice(-3, None)), (9, slice(None))])
def test_it_is_the_mean_over_as_many_of_the_last_rounds_as_are_asked_for(count, kept):
    problem = federation(Sparsification(private_fraction=0.4, leakage_rounds=count))
    each = by_round(problem)
    assert each.shape == (ROUNDS, 3)
    assert np.ptp(each.mean(1)) > 1e-3  # rounds differ
    found = problem.measure({}, [3])
    assert found["kang23_eq15"] == pytest.approx(each[kept].mean(1).mean())
    assert found["kang23_eq15_worst"] == pytest.approx(each[kept].max(1).mean())


def test_all_rounds_count_unless_asked_otherwise_and_every_earlier_round_is_the_end_of_a_shorter_run():
    problem = federation(Sparsification(private_fraction=0.4), Integer("rounds", 1, ROUNDS))
    each = by_round(problem).mean(1)
    curve = problem.every_round({"rounds": [ROUNDS]}, [3], ["kang23_eq15"])["kang23_eq15"][0]
    np.testing.assert_allclose(curve, np.cumsum(each) / np.arange(1, ROUNDS + 1))
    assert "mean over clients and rounds" in MEASURES["kang23_eq15"].help


@pytest.mark.parametrize("chain", [False, True])
def test_a_database_of_the_last_round_s_leakage_goes_on_only_where_the_study_asks_for_it(tmp_path, chain):
    def study(count):
        mechanism = Sparsification(private_fraction=0.4, leakage_rounds=count)
        made = federation(Chain((mechanism, Quantization(8))) if chain else mechanism)
        return Study("s", replace(made, training=replace(made.training, rounds=Integer("rounds", 1, 2))), Random(batch=1), 1)

    held = study(1).identity["problem"]["mechanism"]
    assert "leakage_rounds" not in str(held)  # as before the setting was there
    run(study(1), tmp_path / "a.db").close()
    with pytest.raises(StoreError, match="leakage_rounds"):
        run(study(0), tmp_path / "a.db")
    run(study(1), tmp_path / "a.db").close()


def test_the_example_asks_for_the_paper_s(tmp_path):
    assert load_study("examples/sparsification.toml").problem.mechanism.leakage_rounds == 0
