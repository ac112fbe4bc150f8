"""The checks for third parties: each capability is checked, and a broken one is found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fedpareto.contract import share_of_noise
from fedpareto.errors import DataError
from fedpareto.optimizers import Bayesian, ChoosesRepeats, Finishes, Random
from fedpareto.problem import Checks, Knows, Objective, TellsOnTheWay, free_variable
from fedpareto.space import Choice, Float, Integer, Space
from fedpareto.testing import check_mechanism, check_optimizer, check_problem, continuous


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

    def worth_repeating(self, problem, history, tried):
        return (tried.y < 0.5).all(axis=1)


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
    def worth_repeating(self, problem, history, tried):
        return 1.0 / tried.runs


class RepeatsForAll(Thrifty):
    def worth_repeating(self, problem, history, tried):
        return np.ones(1, dtype=bool)


class RepeatsForget(Thrifty):
    def worth_repeating(self, problem, history, tried):
        self.calls.append(1)
        return np.full(len(tried), len(self.calls) % 2 == 0)


class RepeatsTheBestOfTheBatch(Thrifty):
    def worth_repeating(self, problem, history, tried):
        return tried.y[:, 0] <= np.median(tried.y[:, 0])


class RepeatsWhenNoiseIsKnownByBatch(Thrifty):
    """It judges rows by themselves until the noise is known, and then by one another."""

    def worth_repeating(self, problem, history, tried):
        known = np.isfinite(history.spread).any()
        return tried.y[:, 0] <= (np.median(tried.y[:, 0]) if known else 0.5)


class RepeatsChangeRuns(Thrifty):
    def worth_repeating(self, problem, history, tried):
        history.runs[:] = 9
        return np.ones(len(tried), dtype=bool)


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


@dataclass(frozen=True)
class Noisy:
    """Clips and adds noise. Each subclass below breaks one promise."""

    sigma: float = 0.5
    clip: float = 1.0

    def gaussian(self, values):
        return values["sigma"], values["clip"]

    def protect(self, upload, values, noise):
        strength = values["sigma"] * share_of_noise(values["cohort"], values["participants"]) if "cohort" in values else values["sigma"]
        sent = self.before(upload, upload.values, values["clip"][:, None, None])
        return upload.dense(self.after(upload, sent, strength[:, None, None] * self.drawn(noise, upload.values), values["clip"][:, None, None]))

    def before(self, upload, sent, clip):
        infinite = sent.isinf().any(2, keepdim=True)
        sent = torch.where(infinite, torch.where(sent.isinf(), sent.sign(), 0.0), sent.nan_to_num(nan=0.0)).double()
        return (sent * (clip / sent.norm(dim=2, keepdim=True).clamp_min(1e-30)).clamp_max(1.0)).float()

    def drawn(self, noise, sent):
        return noise.normal(sent.shape[2])

    def after(self, upload, sent, noise, clip):
        return sent + noise


def test_a_mechanism_that_clips_and_adds_noise_passes():
    check_mechanism(Noisy())
    check_mechanism(Noisy(0.01, 100.0))


class RoundsBeforeItsNoise(Noisy):
    """Random rounding costs nothing where clipping and noise follow it."""

    def protect(self, upload, values, noise):
        uniform = noise.uniform(upload.values.shape[2])
        rounded = torch.where(upload.values.isfinite(), (upload.values + uniform).floor(), upload.values)
        return super().protect(dataclasses.replace(upload, values=rounded), values, noise)


class HidesParameters(Noisy):
    of = "parameters"

    def before(self, upload, sent, clip):
        return sent if upload.model is None else super().before(upload, sent + upload.model[:, None], clip)

    def after(self, upload, sent, noise, clip):
        return sent + noise if upload.model is None else sent + noise - upload.model[:, None]


@pytest.mark.parametrize("sound", [RoundsBeforeItsNoise, HidesParameters], ids=lambda cls: cls.__name__)
def test_what_is_done_before_the_noise_is_free(sound):
    check_mechanism(sound())


class ClipsByHalves(Noisy):
    def before(self, upload, sent, clip):
        return torch.cat([super(ClipsByHalves, self).before(upload, half, clip) for half in sent.chunk(2, dim=2)], dim=2)


class ClipsBySquares(Noisy):
    """Divides by the square of the norm over the clip: the longest is as long as the root of the clip."""

    def __init__(self):
        super().__init__(0.5, 0.25)

    def before(self, upload, sent, clip):
        sent = sent.nan_to_num(nan=0.0, posinf=1e6, neginf=-1e6).double()
        return (sent * (clip / sent.square().sum(2, keepdim=True).clamp_min(1e-30)).clamp_max(1.0)).float()


class ForgetsToClip(Noisy):
    def before(self, upload, sent, clip):
        return sent.nan_to_num(nan=0.0, posinf=1e6, neginf=-1e6).clamp(-1e6, 1e6)


class ClipsFiniteUpdatesAlone(Noisy):
    def before(self, upload, sent, clip):
        return sent * (clip / sent.norm(dim=2, keepdim=True).clamp_min(1e-30)).clamp_max(1.0)


class ClipsAfterItsNoise(Noisy):
    def before(self, upload, sent, clip):
        return sent.nan_to_num(nan=0.0, posinf=1e6, neginf=-1e6)

    def after(self, upload, sent, noise, clip):
        return super().before(upload, sent + noise, clip)


class AddsNoiseByTheUpdate(Noisy):
    def after(self, upload, sent, noise, clip):
        return sent + noise * (1 + sent.norm(dim=2, keepdim=True))


class AddsNoiseWhereTheUpdateIsLarge(Noisy):
    def after(self, upload, sent, noise, clip):
        return sent + noise * (sent.abs() >= sent.abs().median(dim=2, keepdim=True).values)


class RoundsAfterItsNoise(Noisy):
    def after(self, upload, sent, noise, clip):
        return ((sent + noise) * 8).round() / 8


class SharesItsNoise(Noisy):
    def drawn(self, noise, sent):
        return noise.normal(sent.shape[2])[:1].expand(sent.shape[1], -1)


class RepeatsItsNoise(Noisy):
    def drawn(self, noise, sent):
        return noise.normal((sent.shape[2] + 1) // 2).repeat_interleave(2, dim=1)[:, : sent.shape[2]]


class HasTheSameNoiseEveryRound(Noisy):
    def drawn(self, noise, sent):
        return torch.randn(sent.shape[1:], generator=torch.Generator().manual_seed(0))


class AddsUniformNoise(Noisy):
    def drawn(self, noise, sent):
        return (noise.uniform(sent.shape[2]) - 0.5) * 12**0.5


class DoesNotShareTheNoiseOfThoseExpected(Noisy):
    def protect(self, upload, values, noise):
        return super().protect(upload, {name: v for name, v in values.items() if name != "cohort"}, noise)


class HidesParametersAndDoesNotSaySo(HidesParameters):
    of = "update"


class ClipsByTheLongest(Noisy):
    """Scales all clients of a round by the longest of them."""

    joint = True

    def before(self, upload, sent, clip):
        sent = sent.nan_to_num(nan=0.0, posinf=1e6, neginf=-1e6).clamp(-1e6, 1e6)
        return sent * (clip / sent.norm(dim=2, keepdim=True).amax(1, keepdim=True).clamp_min(1e-30)).clamp_max(1.0)


class TellsWhichNumbersWereSent(Noisy):
    def protect(self, upload, values, noise):
        return dataclasses.replace(upload, values=super().protect(upload, values, noise).values)


class PromisesNoBound(Noisy):
    def gaussian(self, values):
        return values["sigma"], values["clip"] * torch.inf


LATE = "noise must be the same whatever is sent, and nothing may be done after it"
BROKEN_MECHANISMS = {
    ClipsByHalves: "a client must move its upload by at most",
    ClipsBySquares: "a client must move its upload by at most",
    ForgetsToClip: "a client must move its upload by at most",
    ClipsFiniteUpdatesAlone: "an upload must be finite if the update is infinite",
    ClipsAfterItsNoise: LATE,
    AddsNoiseByTheUpdate: LATE,
    AddsNoiseWhereTheUpdateIsLarge: LATE,
    RoundsAfterItsNoise: LATE,
    SharesItsNoise: "noise must be drawn anew for each client and number",
    RepeatsItsNoise: "noise must be drawn anew for each client and number",
    HasTheSameNoiseEveryRound: r"noise must have standard deviation .*, found \[0.0, 0.0, 0.0\]",
    AddsUniformNoise: "noise must be normal",
    DoesNotShareTheNoiseOfThoseExpected: "noise must have standard deviation .* where 4 clients came and 9 were expected",
    HidesParametersAndDoesNotSaySo: "a client must move its upload by at most",
    ClipsByTheLongest: "a client must not move the uploads of others",
    TellsWhichNumbersWereSent: "count, bits and sent must not depend on the update",
    PromisesNoBound: "gaussian must return noise of at least 0 and a norm above 0, both finite",
}


@pytest.mark.parametrize("broken", BROKEN_MECHANISMS, ids=lambda cls: cls.__name__)
def test_a_mechanism_that_breaks_a_promise_is_found(broken):
    with pytest.raises(AssertionError, match=BROKEN_MECHANISMS[broken]):
        check_mechanism(broken())


def test_an_update_of_zero_that_is_not_sent_as_zero_must_be_declared():
    @dataclass(frozen=True)
    class Flips:
        def protect(self, upload, values, noise):
            return dataclasses.replace(upload, values=noise.uniform(upload.values.shape[2]).sub(0.5).sign() + 0 * upload.values)

    class SaysSo(Flips):
        of = "parameters"

    with pytest.raises(AssertionError, match="an update of zero must be sent as zero"):
        check_mechanism(Flips())
    check_mechanism(SaysSo())
