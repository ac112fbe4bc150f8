"""Canaries: how much of a stated ε an auditor can show who knows all but the honest noise."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpareto.audit.base import ENCRYPTED, IN_STEPS, Finding, Points, parts, told
from fedpareto.audit.bounds import Counted, by_fit, counted, normality, promising
from fedpareto.audit.planted import SIZE, Auditor, Game, game
from fedpareto.audit.sampled import Rounds, inverted
from fedpareto.audit.standin import room_of, seed_of, stand_in
from fedpareto.federation.run import run
from fedpareto.mechanisms import adds_noise, noise_comes_last
from fedpareto.settings import check_fields, setting
from fedpareto.space import FloatArray

AT_ONCE = 250  # repeats of a block
ROOM = 2e7  # numbers of a block's local updates
LEAST = 100  # canaries of which something can be said
UNLIKELY = 1e-6  # statistics that look normal so rarely are not taken for normal
PILOT = 4  # repeats that are timed beforehand


@dataclass(frozen=True)
class Canary:
    """Plant updates of the worst kind, and bound ε from below by how well they are found."""

    canaries: int = setting(
        1000,
        help="canaries of each point, in either world; of models alone three times as many, "
        "since what is seen of them says less",
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
        if points.hidden_in_steps:
            return IN_STEPS
        if not adds_noise(points.problem.mechanism):
            return "no noise is added, so no ε is stated"
        if view == "server" and points.encrypted:
            return ENCRYPTED
        if np.isnan(points.claim(view)).all():
            return "no ε is stated: nothing bounds what one client adds to a sum"
        return None

    def seconds(self, points: Points, view: str) -> float:
        """Return about how long the attack takes, from a few repeats."""
        played = game(points, view)
        _scores(points, played, range(1))  # what is done once takes no part
        began = time.perf_counter()
        _scores(points, played, range(1, 1 + PILOT))
        each = (time.perf_counter() - began) / PILOT
        return each * self._repeats(points, played) + (3.0 * len(points) if played.secret else 0.0)

    def within(self, share: float) -> Canary:
        return replace(self, canaries=max(LEAST, int(self.canaries * share)))

    def audit(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Bound ε from below; what is above the claim is tried again before it is an alarm."""
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
        played = game(points, view)
        numbers = range(self._repeats(points, played))
        seeds = [seed_of(points.problem, seed, "canary", view, again, i) for i in numbers]
        scores = _scores(points, played, seeds)
        wanted = self.canaries * (3 if view == "release" else 1)
        out = []
        for i in range(len(points)):
            mine = scores[i][:wanted]
            told_of = _Told(points, i, played, self.confidence)
            out.append(
                {
                    **told_of.measures(mine),
                    "confidence": self.confidence,
                    "canaries": len(mine),
                    "delta": points.delta,
                    "unit": points.problem.privacy.unit,
                    "alarm": False,
                }
            )
        return out


@dataclass(frozen=True)
class _Told:
    """What the statistics of one point tell."""

    points: Points
    place: int
    game: Game
    confidence: float

    def measures(self, scores: FloatArray) -> dict[str, Any]:
        """Return ε̂, and how it was found, from statistics [N,2]."""
        if not noise_comes_last(self.points.problem.mechanism) or not self._one_kind:
            return self._by_counting(scores)
        return self._of_models(scores) if self.game.secret else self._of_gaussians(scores)

    @property
    def _one_kind(self) -> bool:
        """Whether every round shows the same, so that the statistic has a known shape."""
        return self.game.view != "release" or (self.game.secret and not self.game.colluders)

    @property
    def _of_two(self) -> float:
        """The confidence of each of two rules, of which the better is taken."""
        return 1 - (1 - self.confidence) / 2

    def _of_gaussians(self, scores: FloatArray) -> dict[str, Any]:
        """Return ε̂ where the canary is in every round: the statistic is Gaussian."""
        delta = self.points.delta
        normal = normality(scores)
        counts = counted(scores, 0.0, self._of_two)
        by_counts = max(c.gaussian(delta) for c in counts)
        fit = by_fit(scores, delta, self.confidence)
        is_normal = normal > UNLIKELY
        return {
            "epsilon_hat": fit if is_normal else by_counts,
            "form": "Gaussian fit" if is_normal else "counting",
            "epsilon_hat_fit": fit,
            "epsilon_hat_counting": by_counts,
            "normality": normal,
        }

    def _of_models(self, scores: FloatArray) -> dict[str, Any]:
        """Return ε̂ where who took part is secret: counts, and the noise that explains them."""
        delta, (rounds, claimed) = self.points.delta, self._rounds()
        roc = rounds.roc(claimed)
        right, wrong = roc.above()
        kept = np.unique(np.linspace(0, len(roc.losses) - 1, 4000).astype(int))
        best, plain = 0.0, 0.0
        for upward in (True, False):
            rates = (right[kept], wrong[kept]) if upward else (1 - wrong[kept], 1 - right[kept])
            place = promising(*_thinned(*rates), len(scores), self.confidence)
            edge = roc.losses[kept][_thinned_places(rates[1])[place]]
            found: Counted = counted(scores, float(edge), self._of_two)[0 if upward else 1]
            best = max(best, inverted(rounds, found, upward, claimed, delta))
            plain = max(plain, found.plain(delta))
        return {
            "epsilon_hat": best,
            "form": "loss distribution",
            "epsilon_hat_counting": plain,
        }

    def _by_counting(self, scores: FloatArray) -> dict[str, Any]:
        """Return ε̂ from counts alone, where either world is stated to be as likely."""
        counts = counted(scores, 0.0, self._of_two)
        found = max(c.plain(self.points.delta) for c in counts)
        return {"epsilon_hat": found, "form": "counting", "epsilon_hat_counting": found}

    def _rounds(self) -> tuple[Rounds, float]:
        """Return what rounds show, and the noise on their sums, in norms."""
        row = Auditor(self.points.at([self.place]), self.game, [0])
        z = row.sigma[0] * row.expected[0] ** 0.5 / row.norm[0]
        return row.secret_rounds(0), float(z)


def _thinned_places(wrong: FloatArray) -> list[int]:
    """Return about a hundred thresholds, evenly spread over the logarithm of being wrong."""
    logs = np.log10(np.clip(wrong, 1e-6, 1.0))
    spread = np.linspace(logs.min(), logs.max(), 120)
    return sorted({int(np.argmin(np.abs(logs - s))) for s in spread})


def _thinned(right: FloatArray, wrong: FloatArray) -> tuple[FloatArray, FloatArray]:
    places = _thinned_places(wrong)
    return right[places], wrong[places]


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
