"""Noise: whether what is really added is independent, Gaussian and as strong as stated."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpareto.audit import records
from fedpareto.audit.base import ENCRYPTED, OF_STEPS, Finding, Points, told, where_noisy
from fedpareto.audit.chances import (
    UNLIKELY,
    cohort_chances,
    cosines,
    noise_chances,
    of_normal,
    of_pairs,
)
from fedpareto.audit.residuals import Residuals
from fedpareto.audit.standin import room_of, seed_of, stand_in
from fedpareto.federation import Average
from fedpareto.federation.blocks import row_seeds
from fedpareto.federation.run import run
from fedpareto.mechanisms import adds_noise, hides_updates, noise_comes_last
from fedpareto.settings import check_fields, setting
from fedpareto.space import FloatArray

SIZE = 1024  # parameters of the stand-in


@dataclass(frozen=True)
class WhiteBox:
    """Plant updates, and test what is seen beyond them: strength, shape and what is shared."""

    trainings: int = setting(
        3, help="trainings that are compared", at_least=2, at_most=100, search=False
    )
    rounds: int = setting(
        12, help="rounds of each, at the most", at_least=2, at_most=1000, search=False
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def inapplicable(self, points: Points, view: str) -> str | None:
        """Return why the noise cannot be told from what it hides."""
        mechanism = points.problem.mechanism
        if view == "server" and points.encrypted:
            return ENCRYPTED
        if points.hidden_in_steps:
            return None if view == "server" else OF_STEPS
        if not adds_noise(mechanism):
            return "no noise is added"
        if not noise_comes_last(mechanism) or not hides_updates(mechanism):
            return "the noise is not the last that is done to an update"
        if points.problem.training.weighting != "uniform" and view != "server":
            return "sums are weighed by size, so that their noise is not stated"
        if view == "release" and not isinstance(points.problem.server, Average):
            return "the server remembers earlier rounds: its sums are looked at from view secagg"
        return None

    def seconds(self, points: Points, view: str) -> float:
        """Return about how long the attack takes, from one round of one training."""
        points = points.where(points.noisy)
        if not len(points):
            return 0.0
        began = time.perf_counter()
        first, seeds = points.at([0]), [seed_of(points.problem, 0, "noise")]
        if points.hidden_in_steps:
            records.noise_of(first, seeds, self.rounds)
            each = time.perf_counter() - began
            return each * self.trainings * len(points) + 0.5 * len(points)
        _watched(first, view, seeds, 2)
        one = time.perf_counter() - began
        return one * self.trainings * (1 + 0.2 * len(points)) + 0.5 * len(points)

    def within(self, share: float) -> WhiteBox:
        return replace(self, rounds=max(2, min(self.rounds, round(self.rounds * share))))

    def audit(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Look at the noise of each point; what is unlikely is looked at again."""
        return where_noisy(points, lambda noisy: self._audited(noisy, view, seed))

    def _audited(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Return what is found of points that all have noise."""
        found = self._looked(points, view, seed, 0)
        wrong = [m["least"] < UNLIKELY for m in found]
        if any(wrong):
            again = iter(self._looked(points.where(wrong), view, seed, 1))
            for i in np.flatnonzero(wrong):
                found[i] = _twice(found[i], next(again))
        return [Finding(measures) for measures in found]

    def _looked(self, points: Points, view: str, seed: int, again: int) -> list[dict[str, Any]]:
        """Return what one look shows of each point."""
        numbers = range(self.trainings)
        seeds = [seed_of(points.problem, seed, "noise", view, again, i) for i in numbers]
        private = points.problem.private
        if not private and not points.hidden_in_steps:
            watch = _watched(points, view, seeds, self.rounds)
            return [_measures(watch, r, points) for r in range(len(points))]
        found, rows = [], []
        for i in range(len(points)):
            one = points.at([i])
            own = seeds
            if private:
                own = [row_seeds(points.problem, one.values, [s])[0] for s in seeds]
            measures, values = self._alone(one, view, own)
            found.append(measures)
            rows.append(values)
            told(points.trials, i)
        if private:
            found = [_with(m, {"trials alike": _between(rows)}) for m in found]
        return found

    def _alone(self, one: Points, view: str, seeds: list[int]) -> tuple[dict[str, Any], FloatArray]:
        """Return what one look shows of one point, and the noise that was looked at, [n,P]."""
        if one.hidden_in_steps:
            draws = records.noise_of(one, seeds, self.rounds)
            return _with(_of(draws.values), noise_chances(draws)), draws.values
        watch = _watched(one, view, seeds, self.rounds)
        values = watch.draws(0).values if watch.rows[0] else np.zeros((0, SIZE))
        return _measures(watch, 0, one), values


def _watched(points: Points, view: str, seeds: list[int], rounds: int) -> Residuals:
    """Train stand-ins of these points and return what was seen of them."""
    rows = range(len(points))
    watch = Residuals(points, view, SIZE)
    block = stand_in(points, rows, seeds, SIZE, room_of(points), rounds)
    run(block, watch)
    return watch


def _measures(watch: Residuals, row: int, points: Points) -> dict[str, Any]:
    """Return how strong the noise of a point is, and how likely it is that it is as stated."""
    if not watch.rows[row]:  # nobody came in any round
        return {"numbers": 0, "chances": {}, "least": 1.0, "alarm": False}
    draws = watch.draws(row)
    z = draws.values
    came = np.array(watch.came[row])
    rounds = len(came) // len(set(draws.labels["training"].tolist()) or {0})
    chances = noise_chances(draws)
    if watch.along[row]:
        chances["along what was sent"] = of_normal(
            np.sum(watch.along[row]) / len(watch.along[row]) ** 0.5
        )
    ratio = watch.expected[row] / watch.clients
    present = came.reshape(rounds, -1, watch.clients).swapaxes(0, 1)
    chances |= cohort_chances(present, float(ratio))
    return _with(_of(z), chances)


def _of(z: FloatArray) -> dict[str, Any]:
    """Return how strong noise [n,P] is, in units of what is stated, and how it looks."""
    return {
        "strength": float(z.std()),
        "alike": cosines(z) if len(z) > 1 else 0.0,
        "kurtosis": float(np.mean(z**4) / max(float(np.mean(z**2)), 1e-150) ** 2),
        "numbers": int(z.size),
        "alarm": False,
    }


def _with(measures: dict[str, Any], more: dict[str, float]) -> dict[str, Any]:
    """Return measures with further chances, and the least of all."""
    chances = {**measures.get("chances", {}), **{name: min(1.0, p) for name, p in more.items()}}
    return measures | {"chances": chances, "least": min(chances.values())}


def _between(rows: list[FloatArray]) -> float:
    """Return the chance that rows of different trials are as much alike."""
    if len(rows) < 2:
        return 1.0
    return of_pairs(np.concatenate([each[:100] for each in rows]))


def _twice(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the second look, with an alarm for what both found unlikely."""
    both = [
        name
        for name, p in second["chances"].items()
        if p < UNLIKELY and first["chances"].get(name, 1.0) < UNLIKELY
    ]
    if not both:
        return second
    words = ", ".join(f"{name} ({second['chances'][name]:.0e})" for name in both)
    return second | {"alarm": True, "why": f"noise is not as stated, twice: {words}"}
