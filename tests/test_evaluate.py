"""A trial that fails is a row that says so; a block too large for memory is halved."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np
import pytest

from fedpareto import Float, Objective, Space
from fedpareto.errors import DataError, DeviceLost
from fedpareto.executors import here
from fedpareto.noise import derive
from fedpareto.testing import Function, continuous
from fedpareto.trials import Trial


@dataclass(frozen=True)
class Square:
    """x² with a memory of so many rows, and a value of x that breaks it."""

    memory: int = 100
    breaks_at: float = -1.0
    raises: type[Exception] = ValueError
    block: int = 8
    calls: list[int] = field(default_factory=list)

    space = Space((Float("x", 0.0, 10.0),))
    objectives = (Objective("y"),)
    failures = {"lost_in": "lost in round {:.0f}"}  # noqa: RUF012

    def measure(self, values, seeds):
        self.calls.append(len(seeds))
        if self.block > self.memory:
            raise RuntimeError("CUDA out of memory. Tried to allocate 3.00 GiB")
        if self.breaks_at in values["x"]:
            raise self.raises(f"cannot take x = {self.breaks_at}\nsecond line")
        x = np.array(values["x"])
        return {"y": np.where(x == 7, np.nan, x**2), "lost_in": np.where(x == 6, 3.0, np.nan), "seed": np.array(seeds, float)}


def trials(n, repeats=(0,)):
    return [Trial(i, 0, (i / 10,), {"x": float(i)}, repeats_left=tuple(repeats)) for i in range(n)]


def once(todo):
    left = [todo, []]
    return lambda: left.pop(0)


def collect(problem, todo, seed=0):
    return [result for block in here(problem, once(todo), seed) for result in block]


def test_every_repeat_of_every_trial_is_measured_in_full_blocks():
    problem = Square(block=3)
    results = collect(problem, trials(5, repeats=(0, 1)))
    assert [(r.trial, r.repeat) for r in results] == [(t, r) for r in (0, 1) for t in range(5)]
    assert problem.calls == [3, 2, 3, 2]


def test_trials_of_one_repeat_share_their_seed():
    results = collect(Square(), trials(3, repeats=(0, 2)), seed=9)
    assert {(r.repeat, r.measures["seed"]) for r in results} == {(r, float(derive(9, "repeat", r))) for r in (0, 2)}


def test_a_culprit_fails_alone_with_its_reason():
    results = collect(Square(breaks_at=4.0), trials(6))
    assert [r.error for r in results] == [None, None, None, None, "ValueError: cannot take x = 4.0", None]
    assert results[5].measures["y"] == 25.0


def test_a_measure_that_is_not_finite_fails_the_trial():
    results = collect(Square(), trials(8))
    assert results[7].error == "y must be a finite number, found nan"
    assert results[6].error == "lost in round 3"


@dataclass(frozen=True)
class OnDevice(Square):
    """The same, measured on a device that may be lost."""

    device: str = "cuda"


def test_no_row_follows_from_a_device_that_is_lost(monkeypatch):
    """A past finding: one illegal memory access made failed rows of all trials that were left."""
    monkeypatch.setattr("torch.cuda.synchronize", lost)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    found = []
    blocks = here(OnDevice(breaks_at=4.0, block=3), once(trials(9)), 3)
    with pytest.raises(DeviceLost, match=r"trials 3 to 5: the GPU must answer .* found RuntimeError: CUDA error: an illegal memory access"):
        found.extend(r for block in blocks for r in block)
    assert [r.trial for r in found] == [0, 1, 2]
    assert all(r.error is None for r in found)


def lost():
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nSearch for it.")


def test_a_failure_on_a_device_that_still_answers_is_a_row(monkeypatch):
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    results = collect(OnDevice(breaks_at=2.0), trials(4))
    assert [r.error is None for r in results] == [True, True, False, True]


def test_running_out_of_memory_halves_the_block_and_says_so(caplog):
    problem = Square(memory=2)
    with caplog.at_level(logging.WARNING, "fedpareto"):
        results = collect(problem, trials(8))
    assert [r.error for r in results[:6]] == [None] * 6
    assert "out of memory: going on with blocks of 4" in caplog.text
    assert "out of memory: going on with blocks of 2" in caplog.text


def test_a_trial_too_large_even_alone_fails_with_that_reason():
    results = collect(Square(memory=0), trials(2))
    assert all(r.error.startswith("out of memory, even trained alone: CUDA out of memory") for r in results)


def test_what_the_user_must_mend_stops_the_run():
    with pytest.raises(DataError, match="cannot take"):
        collect(Square(breaks_at=1.0, raises=DataError), trials(3))


def test_repeats_are_measured_in_one_call_where_the_problem_joins_them():
    calls = []

    @dataclass(frozen=True)
    class Joined:
        inner: Function
        repeats_at_once: int
        block: int = 2
        failures: dict = field(default_factory=dict)

        @property
        def space(self):
            return self.inner.space

        @property
        def objectives(self):
            return self.inner.objectives

        def measure(self, values, seeds):
            calls.append(tuple(seeds))
            return self.inner.measure(values, seeds)

    inner = continuous(lambda x: x, 2, 2)
    trials = [Trial(i, 0, (0.1 * i, 0.5), {"x1": 0.1 * i, "x2": 0.5}, repeats_left=(0, 1, 2)) for i in range(3)]
    rows = {}
    for together in (1, 2, 5):
        calls.clear()
        found = [r for block in here(Joined(inner, together), once(trials), 7) for r in block]
        rows[together] = sorted((r.trial, r.repeat, tuple(r.measures.items())) for r in found)
        assert [len(set(seeds)) for seeds in calls] == {1: [1] * 6, 2: [2, 2, 1, 1], 5: [3, 3]}[together]
    assert rows[1] == rows[2] == rows[5]
    assert len(rows[1]) == 9
