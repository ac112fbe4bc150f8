"""The checks for third parties: each capability is checked, and a broken one is found."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from fedpareto.errors import DataError
from fedpareto.optimizers import Bayesian, ChoosesRepeats, Finishes, Random
from fedpareto.problem import Checks, Knows, Objective, TellsOnTheWay, free_variable
from fedpareto.space import Choice, Float, Integer, Space
from fedpareto.testing import check_optimizer, check_problem, continuous


@dataclass(frozen=True)
class Runs:
    """Error falls with the rounds; bytes are known. Each subclass below breaks one promise."""

    rounds: Integer | Choice | None = Integer("rounds", 2, 20)
    block: int = 100

    failures = {}  # noqa: RUF012
    objectives = (Objective("error"), Objective("bytes", reference=21.0))

    @property
    def space(self):
        rate = Float("rate", 0.0, 1.0)
        return Space((rate, self.rounds) if self.rounds else (rate,))

    @property
    def free(self):
        return "rounds" if self.rounds else None

    def check(self):
        pass

    def known(self, values, names=None):
        told = {"bytes": np.asarray(values.get("rounds", [5] * len(values["rate"])), dtype=float)}
        return {name: column for name, column in told.items() if names is None or name in names}

    def measure(self, values, seeds):
        bytes_ = self.known(values)["bytes"]
        error = np.asarray(values["rate"]) + np.exp(-bytes_) + np.asarray(seeds)
        return {"error": np.where(np.asarray(values["rate"]) > 0.95, np.nan, error), "bytes": bytes_, "seed": np.asarray(seeds, float)}

    def measure_along(self, values, seeds):
        longest = max(values["rounds"])
        way = {name: np.full((len(seeds), longest), np.nan) for name in ("error", "bytes")}
        for i, last in enumerate(values["rounds"]):
            for t in range(1, last + 1):
                there = self.measure({"rate": [values["rate"][i]], "rounds": [t]}, [seeds[i]])
                for name, curve in way.items():
                    curve[i, t - 1] = there[name][0]
        return self.measure(values, seeds), way


def test_a_problem_that_keeps_every_promise_passes():
    problem = Runs()
    assert isinstance(problem, Knows)
    assert isinstance(problem, TellsOnTheWay)
    assert isinstance(problem, Checks)
    assert free_variable(problem) == "rounds"
    check_problem(problem, n=6)
    check_problem(Runs(rounds=None), n=6)


def test_a_problem_that_promises_nothing_more_is_not_asked():
    plain = continuous(lambda x: x, 2, 2)
    assert not isinstance(plain, Knows | TellsOnTheWay | Checks)
    assert free_variable(plain) is None
    assert free_variable(Runs(rounds=None)) is None
    check_problem(plain)


class KnowsWrongly(Runs):
    def known(self, values, names=None):
        found = super().known(values, names)
        return {name: column * (1 + 1e-6) for name, column in found.items()} if names else found


class KnowsTooMuch(Runs):
    def known(self, values, names=None):
        return super().known(values)


class KnowsOneRow(Runs):
    def known(self, values, names=None):
        found = super().known(values, names)
        return found if names is None else {name: column[:1] for name, column in found.items()}


class CheckAnswers(Runs):
    def check(self):
        return ["the data are missing"]


class CheckBreaks(Runs):
    def check(self):
        raise KeyError("data")


class FreeIsNotSearched(Runs):
    free = "steps"


class OtherEnds(Runs):
    def measure_along(self, values, seeds):
        ends, way = super().measure_along(values, seeds)
        return ends | {"error": ends["error"] + 1}, way


class FewerEnds(Runs):
    def measure_along(self, values, seeds):
        ends, way = super().measure_along(values, seeds)
        return {name: ends[name] for name in way}, way


class CurvesMissing(Runs):
    def measure_along(self, values, seeds):
        ends, way = super().measure_along(values, seeds)
        return ends, {"error": way["error"]}


class CurvesTooLong(Runs):
    def measure_along(self, values, seeds):
        ends, way = super().measure_along(values, seeds)
        return ends, {name: np.hstack([curve, curve[:, :1]]) for name, curve in way.items()}


class CurvesGoOn(Runs):
    def measure_along(self, values, seeds):
        ends, way = super().measure_along(values, seeds)
        return ends, {name: np.nan_to_num(curve) for name, curve in way.items()}


class CurvesLag(Runs):
    """After each step they show what was there a step before; at the end, the end."""

    def measure_along(self, values, seeds):
        ends, way = super().measure_along(values, seeds)
        for i, last in enumerate(values["rounds"]):
            way["error"][i, 1 : last - 1] = way["error"][i, : last - 2].copy()
            way["error"][i, 0] = np.nan
        return ends, way


class CurvesEndUnjudged(Runs):
    def measure_along(self, values, seeds):
        ends, way = super().measure_along(values, seeds)
        for i, last in enumerate(values["rounds"]):
            way["error"][i, last - 1] = np.nan
        return ends, way


BROKEN_PROBLEMS = {
    KnowsWrongly: "known: bytes: must be what measure gives",
    KnowsTooMuch: r"known: must tell only what is asked, \[\], found 'bytes'",
    KnowsOneRow: r"known: bytes: must have shape \(6,\), found \(1,\)",
    CheckAnswers: r"check: must raise what is wrong and return nothing, found \['the data are missing'\]",
    CheckBreaks: r"check: must raise a FedparetoError that says what is wrong, found KeyError\('data'\)",
    FreeIsNotSearched: r"free: must be one of the variables \['rate', 'rounds'\], found 'steps'",
    OtherEnds: "measure_along: error: must be what measure gives",
    FewerEnds: r"measure_along: must measure what measure does, \['bytes', 'error', 'seed'\], found \['bytes', 'error'\]",
    CurvesMissing: r"measure_along: must tell 'bytes' on the way, found \['error'\]",
    CurvesTooLong: r"measure_along: error on the way must have shape \(6, \d+\), found \(6, \d+\)",
    CurvesGoOn: "measure_along: error on the way must be nan beyond a run's own end",
    CurvesLag: "measure_along: error on the way: must be what measure gives",
    CurvesEndUnjudged: "measure_along: error at a run's end: must be what measure gives",
}


@pytest.mark.parametrize("broken", BROKEN_PROBLEMS, ids=lambda cls: cls.__name__)
def test_a_problem_that_breaks_a_promise_is_found(broken):
    with pytest.raises(AssertionError, match=BROKEN_PROBLEMS[broken]):
        check_problem(broken(), n=6)


def test_a_free_variable_must_be_a_whole_number():
    with pytest.raises(AssertionError, match=r"free: must be a whole number, found Choice"):
        check_problem(Runs(rounds=Choice("rounds", (2, 5))), n=4)


def test_what_check_finds_wrong_is_said_as_it_is():
    class Missing(Runs):
        def check(self):
            raise DataError("digits: must be there, found nothing.")

    with pytest.raises(DataError, match="must be there"):
        check_problem(Missing())


@dataclass(frozen=True)
class Thrifty:
    """Random points; it trains again what is good, and ends after eight rows."""

    batch: int = 4
    calls: list[int] = field(default_factory=list)

    def propose(self, problem, history, n, seed):
        return Random(batch=self.batch).propose(problem, history, n, seed)

    def finished(self, problem, history, seed):
        return len(history) >= 8

    def worth_repeating(self, problem, history, x, y, runs):
        return (y < 0.5).all(axis=1)


def test_an_optimizer_that_keeps_every_promise_passes():
    assert isinstance(Thrifty(), Finishes)
    assert isinstance(Thrifty(), ChoosesRepeats)
    assert not isinstance(Random(), Finishes | ChoosesRepeats)
    check_optimizer(Thrifty())


class FinishedSaysWhy(Thrifty):
    def finished(self, problem, history, seed):
        return "enough" if len(history) else ""


class FinishedForgets(Thrifty):
    def finished(self, problem, history, seed):
        self.calls.append(1)
        return len(self.calls) % 2 == 0


class FinishedChangesHistory(Thrifty):
    def finished(self, problem, history, seed):
        history.y[:] = 0.0
        return False


class RepeatsByWeight(Thrifty):
    def worth_repeating(self, problem, history, x, y, runs):
        return 1.0 / runs


class RepeatsForAll(Thrifty):
    def worth_repeating(self, problem, history, x, y, runs):
        return np.ones(1, dtype=bool)


class RepeatsForget(Thrifty):
    def worth_repeating(self, problem, history, x, y, runs):
        self.calls.append(1)
        return np.full(len(x), len(self.calls) % 2 == 0)


class RepeatsTheBestOfTheBatch(Thrifty):
    def worth_repeating(self, problem, history, x, y, runs):
        return y[:, 0] <= np.median(y[:, 0])


class RepeatsWhenNoiseIsKnownByBatch(Thrifty):
    """It judges rows by themselves until the noise is known, and then by one another."""

    def worth_repeating(self, problem, history, x, y, runs):
        known = np.isfinite(history.spread).any()
        return y[:, 0] <= (np.median(y[:, 0]) if known else 0.5)


class RepeatsChangeRuns(Thrifty):
    def worth_repeating(self, problem, history, x, y, runs):
        history.runs[:] = 9
        return np.ones(len(x), dtype=bool)


BROKEN_OPTIMIZERS = {
    FinishedSaysWhy: "mixed variables: finished must answer true or false, found ''",
    FinishedForgets: "mixed variables: finished must give the same answer to the same question",
    FinishedChangesHistory: "mixed variables: the history and all arguments must be left as they were",
    RepeatsByWeight: "mixed variables: worth_repeating must answer true or false, found float64",
    RepeatsForAll: r"mixed variables: worth_repeating must answer for each of 4 rows, found shape \(1,\)",
    RepeatsForget: "mixed variables: worth_repeating must give the same answer to the same question",
    RepeatsTheBestOfTheBatch: r"mixed variables: worth_repeating must judge each row by itself, found another answer for row \d",
    RepeatsWhenNoiseIsKnownByBatch: "mixed variables: worth_repeating must judge each row by itself",
    RepeatsChangeRuns: "mixed variables: the history and all arguments must be left as they were",
}


@pytest.mark.parametrize("broken", BROKEN_OPTIMIZERS, ids=lambda cls: cls.__name__)
def test_an_optimizer_that_breaks_a_promise_is_found(broken):
    with pytest.raises(AssertionError, match=BROKEN_OPTIMIZERS[broken]):
        check_optimizer(broken())


@pytest.mark.slow
def test_bayesian_keeps_its_promises_where_it_chooses_and_ends():
    check_optimizer(Bayesian(batch=2, start=4, candidates=10, tolerance=0.5, repeat_all=False))
