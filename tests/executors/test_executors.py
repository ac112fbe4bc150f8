"""What executors must hold, what is noted of who trained what, and what is said before a run on a cluster."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_spending import Noisy, study_of

from fedpareto import Random, run
from fedpareto.cli.studies import EXECUTORS as WORDS
from fedpareto.errors import FedparetoError, SettingError
from fedpareto.evaluate import blocks_of, results_of
from fedpareto.executors import EXECUTORS, More, here, on_ray
from fedpareto.executors import ray as on_ray_file
from fedpareto.executors.worker import Unreachable, check, said_by, terms, trained
from fedpareto.problem import Problem
from fedpareto.report import cost
from fedpareto.report.cost import cost_left
from fedpareto.store.sessions import Work
from fedpareto.study import load_study
from fedpareto.testing import check_executor
from fedpareto.testing.executors import Awkward
from fedpareto.trials import Ran, Result, Trial


def test_this_process_is_an_executor() -> None:
    check_executor(here)


def test_the_command_line_knows_every_executor() -> None:
    assert set(WORDS) == set(EXECUTORS)


def backwards(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    """Train the last block of all that may be trained first."""
    blocks: list[Any] = []
    while True:
        blocks += blocks_of(problem, more())
        if not blocks:
            return
        yield results_of(problem, blocks.pop(), seed)


def test_an_executor_may_train_in_any_order() -> None:
    check_executor(backwards)


def loses(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    for results in here(problem, more, seed):
        yield [r for r in results if r.trial != 10]


def repeats(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    for results in here(problem, more, seed):
        yield [*results, results[0]]


def rounds(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    for results in here(problem, more, seed):
        yield [replace(r, measures={k: float(np.float32(v)) for k, v in r.measures.items()}) for r in results]


def invents(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    for results in here(problem, more, seed):
        yield [*results, Result(99, 0, {})]


def stops(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    for jobs in blocks_of(problem, more()):
        yield results_of(problem, jobs, seed)


def swallows(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    try:
        yield from here(problem, more, seed)
    except FedparetoError:
        while more():
            pass


def says_less(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    try:
        yield from here(problem, more, seed)
    except FedparetoError as error:
        raise FedparetoError("something went wrong") from error


def makes_up(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    trials = more()
    if not trials:
        yield [Result(0, 0, {})]
    for jobs in blocks_of(problem, trials):
        yield results_of(problem, jobs, seed)
    yield from here(problem, more, seed)


@pytest.mark.parametrize(("executor", "said"), [
    (loses, "more must be asked until it gives none"),
    (repeats, "must come once, found twice"),
    (rounds, "trial 0, repeat 0: must be "),
    (invents, "trial 99, repeat 0: must be one that was asked for"),
    (stops, "more must be asked until it gives none, found that it was not"),
    (swallows, "what the user must mend must be raised"),
    (says_less, "what the user must mend must be said, found 'something went wrong'"),
    (makes_up, "no trials must give no results"),
])
def test_a_careless_executor_is_found_out(executor: Any, said: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_executor(executor)
    assert said in str(found.value)


def test_a_training_that_never_comes_back_is_found_out() -> None:
    def forgets(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
        for results in here(problem, more, seed):
            yield [r for r in results if r.trial != 19]

    with pytest.raises(AssertionError, match=r"must be trained, found none of \(19, 0\)"):
        check_executor(forgets)


def test_who_trained_what_is_noted_and_added_up_over_sessions(tmp_path: Path) -> None:
    asked = study_of(Noisy(), Random(batch=2), budget=2, repeats=3)
    run(asked, tmp_path / "noted.db").close()
    with run(replace(asked, budget=4), tmp_path / "noted.db") as store:
        (work,) = store.works().values()
        assert store.works().keys() == {"this process"}
        assert (work.trainings, work.trial) == (12, 3)
        assert work.device.startswith("CPU ")
        assert 0 < work.seconds < 60


def test_another_kind_of_device_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def elsewhere(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
        for results in here(problem, more, seed):
            yield [replace(r, ran=Ran("there", "H200", 1.0)) for r in results]

    asked = study_of(Noisy(), Random(batch=2), budget=2)
    with caplog.at_level(logging.WARNING, "fedpareto"):
        run(asked, tmp_path / "two.db").close()
        assert caplog.text == ""
        run(replace(asked, budget=4), tmp_path / "two.db", evaluate=elsewhere).close()
    assert caplog.text.count("trial 2 was trained on H200, others on CPU ") == 1
    assert caplog.text.count("WARNING") == 1


def test_what_is_left_costs_what_was_measured_so_far(tmp_path: Path) -> None:
    asked = study_of(Noisy(), Random(batch=2), budget=100, repeats=2)
    assert cost_left(asked, None).startswith("cost: at most 200 trainings; what one takes is not known before the first.")

    def costly(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
        for results in here(problem, more, seed):
            yield [replace(r, ran=Ran("there", "CPU", 3.0 + r.repeat)) for r in results]

    with run(replace(asked, budget=10), tmp_path / "costly.db", evaluate=costly) as store:
        assert store.works() == {"there": Work("CPU", 20, 70.0, 9)}
        assert cost_left(asked, store, 10) == (
            "cost: at most 180 trainings of 3.5 s (the mean of 20 so far) are 630 s of one worker, 0.175 hours; 10 workers need at least 63 s")
        assert cost_left(replace(asked, budget=10), store) == "cost: nothing is left to train"


def test_before_the_first_training_its_cost_is_that_of_a_few_rounds_here(tiny_study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = load_study(tiny_study, budget=30)  # blocks of 2 trials, 1 round
    few = "what one takes is not known before the first. To know it, run with a small --budget, then again: nothing is trained twice."
    monkeypatch.setattr(cost, "block_seconds", lambda problem: None)
    assert cost_left(asked, None) == f"cost: at most 30 trainings; {few}"
    monkeypatch.setattr(cost, "block_seconds", lambda problem: 4.0)
    assert cost_left(asked, None, 3) == (
        "cost: at most 30 trainings; by a few rounds on this machine, 60 s of one worker; 3 workers need at "
        "least 20 s. Other machines may take longer or less: to know it, run with a small --budget, then again: nothing is trained twice.")


def test_the_token_of_a_machine_is_shown_unless_ray_was_imported_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A past finding: after a first cluster of its own had made the token, a process could begin no second one."""
    monkeypatch.setattr(on_ray_file, "TOKEN", tmp_path / "auth_token")
    assert on_ray_file._shown(imported=False) == {}
    (tmp_path / "auth_token").write_text("0" * 64)
    assert on_ray_file._shown(imported=False) == {"RAY_AUTH_MODE": "token"}
    assert on_ray_file._shown(imported=True) == {}


def test_a_signal_that_ends_a_run_does_what_it_did_before_ray() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with on_ray_file._signals_kept():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(("option", "value", "least"), [
    ("workers", 0, 1), ("gpus_per_block", -0.5, 0), ("gpus_per_block", float("nan"), 0), ("cpus_per_block", 0, 1)])
def test_a_cluster_of_nothing_is_refused(option: str, value: float, least: int) -> None:
    with pytest.raises(SettingError) as refused:
        on_ray(**{option: value})
    assert str(refused.value) == f"--{option.replace('_', '-')}: must be at least {least}, found {value}."


def test_options_of_a_cluster_without_one_are_refused(fedpareto: Any, tiny_study: Path) -> None:
    done = fedpareto("run", tiny_study, "--workers", 4)
    assert done.status == 2
    assert done.err == "error: --workers: must go with --on ray, found it without. Add --on ray, or leave it out.\n"


def test_versions_are_compared() -> None:
    check({"torch": "2"}, {"torch": "2", "more": "1"})
    for found in ({"torch": "3"}, {}):
        with pytest.raises(FedparetoError) as refused:
            check({"torch": "2"}, found)
        assert str(refused.value) == (
            f"worker: must have torch as the run was started with, 2, found {found.get('torch')}: rows would not be the same. "
            "Install that version there.")


def test_code_of_ones_own_must_be_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "travelling.py").write_text("def mine(x):\n    return x\n")
    need = replace(terms(1), own={"travelling:mine": "0" * 64}, folders=(str(tmp_path),))
    trials = [Trial(0, 0, (0.1,), {"x": 1.0}, repeats_left=(0,))]
    answer = trained(need, lambda: (Awkward(), None), [(trials[0], 0)], 0, "there")
    assert answer.refused.startswith("worker: must have travelling:mine as the run was started with, 0000")
    missing = replace(need, own={"nowhere_at_all:mine": "0" * 64})
    assert "'nowhere_at_all:mine' must be importable" in trained(missing, lambda: (Awkward(), None), [(trials[0], 0)], 0, "there").refused


def test_a_problem_that_cannot_be_opened_there_is_said() -> None:
    def fetch() -> Any:
        raise ModuleNotFoundError("No module named 'mine'")

    answer = trained(terms(1), fetch, [], 0, "there")
    assert answer.refused == (
        "worker: must be able to import all that the study names, found No module named 'mine'. Install it on every machine, or put "
        "it beside the study file.")


def test_a_block_whose_data_were_not_to_be_had_is_put_back_and_after_many_times_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch() -> Any:
        raise Unreachable("the owner is gone")

    with pytest.raises(Unreachable):
        trained(terms(1), fetch, [], 0, "there")
    monkeypatch.setattr(on_ray_file, "PAUSE", 0.0)
    under_way = on_ray_file._Run(on_ray(), None, Awkward(), 0)
    block = on_ray_file._Block([])
    for _ in range(on_ray_file.MISSES - 1):
        assert under_way._missed(block, "there") == ()
        assert under_way.waiting.popleft() is block
    with pytest.raises(FedparetoError, match=r"worker: must get at the data of the run, found 100 times that it did not \(on there\)\. Look"):
        under_way._missed(block, "there")


def test_what_a_worker_says_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fedpareto"):
        said_by("10.0.0.1", ["out of memory: going on with blocks of 2"] * 2)
        said_by("10.0.0.2", ["out of memory: going on with blocks of 2"])
    assert [r.getMessage() for r in caplog.records] == [f"10.0.0.{i}: out of memory: going on with blocks of 2" for i in (1, 2)]
