"""Check what an executor must hold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.errors import FedparetoError, SettingError
from fedpareto.executors import Executor, here
from fedpareto.problem import Objective
from fedpareto.space import Float, FloatArray, Space, Values
from fedpareto.trials import Result, Trial


@dataclass(frozen=True)
class Awkward:
    """A cheap problem with slow rows, rows that fail, and a value that the user must mend."""

    block: int = 4
    mend_at: float = -1.0
    slow: float = 0.02  # seconds of a call for the smallest x, so that blocks end out of order

    space = Space((Float("x", 0.0, 10.0),))
    objectives = (Objective("y"),)
    failures = {"lost_in": "lost in round {:.0f}"}  # noqa: RUF012

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        x = np.array(values["x"], dtype=np.float64)
        if self.mend_at in x:
            raise SettingError(f"x: must not be {self.mend_at:g}, found {self.mend_at:g}.")
        if 5.0 in x:
            raise ValueError("cannot take x = 5")
        time.sleep(self.slow * (10.0 - float(x.min())) / 10.0)
        luck = np.array([seed % 1009 for seed in seeds]) / 1009
        lost = np.where(x == 6.0, 3.0, np.nan)
        return {"y": np.where(x == 7.0, np.nan, np.sin(x) + luck), "lost_in": lost}


def check_executor(executor: Executor) -> None:
    """Check that an executor trains each repeat of each trial once, as this process does.

    Trials come in three waves, each once the results of the one before are known. Rows that fail,
    fail alone; what the user must mend is raised.
    """
    found = _trained(executor, Awkward())
    wanted = _trained(here, Awkward())
    missing = sorted(set(wanted) - set(found))
    assert not missing, f"every repeat of every trial must be trained, found none of {missing[0]}"
    for job, result in wanted.items():
        given = found[job]
        assert given == result, f"trial {job[0]}, repeat {job[1]}: must be {result}, found {given}"
    nothing = list(executor(Awkward(), lambda: [], 0))
    assert nothing == [], f"no trials must give no results, found {nothing}"
    _check_mended(executor)


def _check_mended(executor: Executor) -> None:
    """Check that what the user must mend ends the run, and is said."""
    waves = [_wave(range(9), (0,)), []]
    try:
        list(executor(Awkward(mend_at=3.0), lambda: waves.pop(0) if waves else [], 5))
    except FedparetoError as error:
        said = str(error)
        assert "x: must not be 3" in said, f"what the user must mend must be said, found {said!r}"
    else:
        raise AssertionError("what the user must mend must be raised, found that nothing was")


Row = tuple[dict[str, str], str | None, dict[str, Any]]


def _trained(executor: Executor, problem: Awkward) -> dict[tuple[int, int], Row]:
    """Return what an executor makes of three waves of trials, by trial and repeat."""
    waves = [_wave(range(9), (0, 1)), _wave(range(9, 11), (0,)), _wave(range(11, 20), (0, 2))]
    left = {(t.number, r) for t in waves[0] for r in t.repeats_left}
    begun = 0
    rows: dict[tuple[int, int], Row] = {}

    def more() -> list[Trial]:
        nonlocal begun, left
        if begun == len(waves) or (begun and left):
            return []
        begun += 1
        wave = waves[begun - 1]
        left = {(t.number, r) for t in wave for r in t.repeats_left}
        return wave

    for results in executor(problem, more, 5):
        for result in results:
            job = (result.trial, result.repeat)
            assert job not in rows, f"trial {job[0]}, repeat {job[1]}: must come once, found twice"
            assert job in left, f"trial {job[0]}, repeat {job[1]}: must be one that was asked for"
            left.remove(job)
            rows[job] = _row(result)
    assert begun == len(waves), "more must be asked until it gives none, found that it was not"
    return rows


def _row(result: Result) -> Row:
    """Return what counts of a result, its numbers to the last bit."""
    exact = {name: float(value).hex() for name, value in result.measures.items()}
    return exact, result.error, result.curves


def _wave(numbers: range, repeats: tuple[int, ...]) -> list[Trial]:
    return [Trial(i, 0, (i / 20,), {"x": float(i) / 2}, repeats_left=repeats) for i in numbers]
