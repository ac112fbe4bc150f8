"""Canaries: how much of a stated ε an auditor can show who knows all but the honest noise."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpareto.audit import records
from fedpareto.audit.base import ENCRYPTED, OF_STEPS, Finding, Points, parts, told, where_noisy
from fedpareto.audit.estimates import by_counting, of_gaussians, of_secret
from fedpareto.audit.planted import SIZE, Auditor, Game, game
from fedpareto.audit.standin import room_of, seed_of, stand_in
from fedpareto.federation.run import run
from fedpareto.mechanisms import adds_noise, noise_comes_last
from fedpareto.problem import tell
from fedpareto.settings import check_fields, setting
from fedpareto.space import FloatArray

AT_ONCE = 250  # repeats of a block
ROOM = 2e7  # numbers of a block's local updates
LEAST = 100  # canaries of which something can be said
PILOT = 4  # repeats that are timed beforehand


@dataclass(frozen=True)
class Canary:
    """Plant updates of the worst kind, and bound ε from below by how well they are found."""

    canaries: int = setting(
        1000,
        help="canaries of each point, in either world; where chance hides who or what takes part "
        "three times as many, since what is seen then says less",
        at_least=LEAST,
        at_most=1_000_000,
        search=False,
    )
    confidence: float = setting(
        0.999,
        help="the chance that ε̂ is not above the true ε",
        at_least=0.5,
        at_most=0.999999,
        search=False,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def inapplicable(self, points: Points, view: str) -> str | None:
        """Return why nothing can be audited: no ε is stated, or nothing is seen of a client."""
        if view == "server" and points.encrypted:
            return ENCRYPTED
        if points.hidden_in_steps:
            return None if view == "server" else OF_STEPS
        if not adds_noise(points.problem.mechanism):
            return "no noise is added, so no ε is stated"
        if np.isnan(points.claim(view)).all():
            return "no ε is stated: nothing bounds what one client adds to a sum"
        return None

    def seconds(self, points: Points, view: str) -> float:
        """Return about how long the attack takes, from a few repeats."""
        points = points.where(points.noisy)
        if not len(points):
            return 0.0
        if points.hidden_in_steps:
            return self._seconds_of_records(points)
        played = game(points, view)
        _scores(points, played, range(1))  # what is done once takes no part
        began = time.perf_counter()
        _scores(points, played, range(1, 1 + PILOT))
        each = (time.perf_counter() - began) / PILOT
        return each * self._repeats(points, played) + (3.0 * len(points) if played.secret else 0.0)

    def _seconds_of_records(self, points: Points) -> float:
        """Return about how long canaries take that are records, from one training of each point."""
        every = [points.at([i]) for i in range(len(points))]
        records.scores(every[0], records.terms_of(every[0]), [0, 1])
        began = time.perf_counter()
        for one in every:
            records.scores(one, records.terms_of(one), [0, 1])
        each = time.perf_counter() - began
        return each * 3 * self.canaries / records.CLIENTS + 3.0 * len(points)

    def within(self, share: float) -> Canary:
        return replace(self, canaries=max(LEAST, int(self.canaries * share)))

    def audit(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Bound ε from below; what is above the claim is tried again before it is an alarm."""
        return where_noisy(points, lambda noisy: self._audited(noisy, view, seed))

    def _audited(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Return what is found of points that all have noise."""
        claims = points.claim(view)
        found = self._measured(points, view, seed, 0)
        above = [m["epsilon_hat"] > claim for m, claim in zip(found, claims, strict=True)]
        if any(above):
            again = iter(self._measured(points.where(above), view, seed, 1))
            for i in np.flatnonzero(above):
                second = next(again)
                first = found[i]["epsilon_hat"]
                alarm = second["epsilon_hat"] > claims[i]
                found[i] = {**second, "tried_before": first, "alarm": alarm}
        return [
            Finding({"epsilon": float(claim), **measures})
            for measures, claim in zip(found, claims, strict=True)
        ]

    def _repeats(self, points: Points, played: Game) -> int:
        """Return how many repeats have the canaries of every point."""
        wanted = self.canaries * (3 if played.view == "release" else 1)
        each = len(played.canaries)
        if played.came == "first":
            least = int(points.columns["cohort"].min()) - len(played.colluders)
            each = max(1, min(each, least))
        return math.ceil(wanted / each)

    def _measured(self, points: Points, view: str, seed: int, again: int) -> list[dict[str, Any]]:
        """Return what one audit measures of each point."""
        found = self._of_records if points.hidden_in_steps else self._of_clients
        return [
            {
                **measures,
                "confidence": self.confidence,
                "delta": points.delta,
                "unit": points.problem.privacy.unit,
                "alarm": False,
            }
            for measures in found(points, view, seed, again)
        ]

    def _of_clients(
        self, points: Points, view: str, seed: int, again: int
    ) -> Iterator[dict[str, Any]]:
        """Yield what canaries show that are clients."""
        played = game(points, view)
        numbers = range(self._repeats(points, played))
        seeds = [seed_of(points.problem, seed, "canary", view, again, i) for i in numbers]
        scores = _scores(points, played, seeds)
        wanted = self.canaries * (3 if view == "release" else 1)
        for i in range(len(points)):
            mine = scores[i][:wanted]
            yield {**_told(points, i, played, self.confidence, mine), "canaries": len(mine)}

    def _of_records(
        self, points: Points, view: str, seed: int, again: int
    ) -> Iterator[dict[str, Any]]:
        """Yield what canaries show that are records of a client."""
        for i in range(len(points)):
            one = points.at([i])
            terms = records.terms_of(one)
            wanted = self.canaries * (1 if terms.shown.share == 1 else 3)
            seeds = records.seeds_for(points, wanted, seed, again)
            scores = records.scores(one, terms, seeds)[:wanted]
            tell((i + 1) / len(points))
            if terms.shown.share == 1:
                measures = of_gaussians(scores, points.delta, self.confidence)
            else:
                shown = (terms.shown, terms.noise)
                measures = of_secret(scores, *shown, points.delta, self.confidence)
            yield {**measures, "canaries": len(scores)}


def _told(
    points: Points, i: int, played: Game, confidence: float, scores: FloatArray
) -> dict[str, Any]:
    """Return what the statistics [N,2] of one point tell."""
    mechanism, delta = points.problem.mechanism, points.delta
    # whether every round shows the same, so that the statistic has a known shape
    one_kind = played.view != "release" or (played.secret and not played.colluders)
    if not noise_comes_last(mechanism) or not one_kind:
        return by_counting(scores, delta, confidence)
    if not played.secret:
        return of_gaussians(scores, delta, confidence)
    row = Auditor(points.at([i]), played, [0])
    z = float(row.sigma[0] * row.expected[0] ** 0.5 / row.norm[0])
    return of_secret(scores, row.secret_rounds(0), z, delta, confidence)


def _scores(points: Points, played: Game, seeds: Any) -> list[FloatArray]:
    """Train pairs of neighbours; return the statistics of each point's canaries, [N,2]."""
    clients = points.problem.data.clients
    rows = np.repeat(np.arange(len(points)), 2).tolist()
    room = _room(points, played)
    size = max(1, min(AT_ONCE, int(ROOM / (room * len(rows) * SIZE))))
    found: list[list[FloatArray]] = [[] for _ in points.trials]
    blocks = parts(len(seeds), size)
    for b, block in enumerate(blocks):
        some = [seeds[i] for i in block]
        auditor = Auditor(points, played, some)
        run(stand_in(points, rows, some, SIZE, min(room, clients)), auditor)
        told(blocks, b)
        always = played.came == "drawn"  # a canary that is never drawn is one too
        for i, into in enumerate(found):
            pair = auditor.scores[:, :, 2 * i : 2 * i + 2]
            into.append(pair[auditor.seen[:, :, 2 * i] | always])
    return [np.concatenate(each) for each in found]


def _room(points: Points, played: Game) -> int:
    """Return how many clients a round has at the most."""
    if played.came == "everyone":
        return points.problem.data.clients
    if played.came == "first" and points.problem.training.sampling == "poisson":
        return len(played.colluders) + 1
    return room_of(points)
