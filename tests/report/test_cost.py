"""What is left to train, and about how long it takes, said before it is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedpareto import (
    Data,
    Federation,
    Integer,
    Mlp,
    Objective,
    Randomization,
    Study,
    Training,
    load_study,
    run,
)
from fedpareto.federation.timing import LONG, block_seconds
from fedpareto.optimizers import Random
from fedpareto.problem import listening
from fedpareto.report import cost
from fedpareto.report.cost import estimate
from fedpareto.trials import Trial


@pytest.fixture
def long_study(tiny_study):
    """A study of 240 trials, five times each, that need not be run."""
    return replace(load_study(tiny_study), budget=240, repeats=5)


SEARCHED = Integer("rounds", 2, 9)


def federation(block=0, rounds=SEARCHED):
    training = Training(0.1, rounds=rounds, local_steps=1)
    return Federation(Data("digits", 4), Mlp((4,)), training, Randomization(0.1, 1.0), (Objective("test_error"),), block)


def test_before_the_first_training_a_few_rounds_are_timed(long_study, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(cost, "block_seconds", lambda problem: asked.append(problem) or 0.5)
    said = estimate(long_study, tmp_path / "none.db")
    size = long_study.problem.block
    assert asked == [long_study.problem]
    assert said == f"240 trials × 5 repeats: about {round(5 * 240 / size * 0.5 / 60)} min of training"


def test_a_study_that_is_soon_over_is_only_counted(tiny_study, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "block_seconds", lambda problem: pytest.fail("nothing should be tried"))
    assert estimate(replace(load_study(tiny_study), budget=1), tmp_path / "none.db") == "1 trial"


def test_what_was_trained_tells_what_the_rest_takes(tiny_study):
    study = load_study(tiny_study)
    with run(study) as store:
        (work,) = store.works().values()
    assert estimate(study, tiny_study.with_suffix(".db")) == "nothing is left to train"
    said = estimate(replace(study, budget=2000), tiny_study.with_suffix(".db"))
    assert said.startswith("1998 trials: about ")
    assert said.endswith(" of training, by those so far")
    assert work.seconds > 0


def test_private_data_are_not_trained_on_to_tell_the_time(long_study, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "block_seconds", lambda problem: pytest.fail("nothing should be tried"))
    problem = long_study.problem
    hidden = replace(long_study, problem=replace(problem, privacy=replace(problem.privacy, private_data=True), objectives=(), block=1))
    assert estimate(hidden, tmp_path / "none.db") == "240 trials × 5 repeats"


def test_own_code_that_fails_says_nothing_here(long_study, tmp_path, monkeypatch):
    def failing(problem):
        raise SystemExit(3)

    monkeypatch.setattr(cost, "block_seconds", failing)
    assert estimate(long_study, tmp_path / "none.db") == "240 trials × 5 repeats"


def test_the_command_says_it_on_its_error_stream_and_json_stays_json(tiny_study, fedpareto):
    done = fedpareto("run", tiny_study, "--json")
    assert done.out.startswith("{")
    assert done.err.startswith("tiny: 2 trials\n")
    assert fedpareto("run", tiny_study).err.startswith("tiny: nothing is left to train\n")


def test_the_estimate_counts_what_comes_once_and_what_each_round_costs(monkeypatch):
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])  # the first, one round in 1 s, three in 2 s
    assert block_seconds(federation(), lambda: next(ticks)) == 1 + 0.5 * 8
    ticks = iter([0.0, LONG + 1])
    assert block_seconds(federation(), lambda: next(ticks)) == (LONG + 1) * 9


def test_a_block_is_timed_for_real():
    assert 0 < block_seconds(federation(rounds=3)) < 60


def test_a_lone_row_is_padded_in_a_study_and_not_elsewhere(monkeypatch):
    from fedpareto.federation import blocks

    sizes, prepared = [], blocks.prepared
    monkeypatch.setattr(blocks, "prepared", lambda problem, values, given, rows, *more: sizes.append(len(rows)) or prepared(problem, values, given, rows, *more))
    problem = federation()
    problem.measure({"rounds": [2]}, [0])
    problem.measure({"rounds": [2] * 23}, [0] * 23)
    study = Study("of its own", problem, Random(), budget=1)
    study.problem.measure({"rounds": [2]}, [0])
    assert sizes == [1, 20, 3, 20]
    assert study.identity["problem"]["block"] == 20


def test_a_lone_row_is_measured_the_same_but_for_last_bits_however_many_are_beside_it():
    alone = federation().measure({"rounds": [5]}, [3])
    padded = federation(block=7).measure({"rounds": [5]}, [3])
    assert alone.keys() == padded.keys()
    for name, column in alone.items():
        assert column == pytest.approx(padded[name], rel=1e-4, nan_ok=True), name


def test_what_is_told_of_a_block_are_the_trainings_that_are_done():
    from fedpareto.evaluate import results_of

    told = []
    jobs = [(Trial(i, 0, (), {"rounds": 4}, repeats_left=(0,)), 0) for i in range(3)]
    with listening(told.append):
        results_of(federation(block=2, rounds=Integer("rounds", 4, 5)), jobs, 0)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(3)
    assert any(v == pytest.approx(2) for v in told)  # the first block had two of the three
