"""The log ratio of likelihoods of T rounds with secret cohorts, and what it says of the noise.

It is computed from densities on a grid, and shares no code with the accountants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq
from scipy.stats import binom

from fedpareto.audit.bounds import Counted
from fedpareto.space import FloatArray

CELLS = 20_001  # of what a round shows
BINS = 1 << 18  # of the sum of all rounds, at the most
RARE = -45.0  # logarithm of a chance that is left out


@dataclass(frozen=True)
class Rounds:
    """T rounds, in each of which a canary is in a secret share of the sums.

    Sums lie at `there` with the canary and at `out` with its neighbour, and at `before` where the
    client does not come, all in clipping norms. Of several draws in a round each moves what is seen
    as far, and a round shows their sum.
    """

    share: float
    rounds: int
    there: float
    out: float
    before: float
    draws: int = 1

    def scores(self, x: FloatArray, z: FloatArray | float) -> FloatArray:
        """Return the log ratio of likelihoods of what rounds show, x in norms, at noise z."""
        return self._world(x, self.there, z) - self._world(x, self.out, z)

    @cached_property
    def _often(self) -> tuple[FloatArray, FloatArray]:
        """How often a client comes in one round, and the logarithms of the chances, [j]."""
        often = np.arange(self.draws + 1.0)
        logs = binom.logpmf(often, self.draws, self.share)
        kept = logs > RARE
        return np.asarray(often[kept]), np.asarray(logs[kept])

    def _world(self, x: FloatArray, place: float, z: FloatArray | float) -> FloatArray:
        """Return log(Σ_j P(j) N(x; j times as far) / N(x; before)); with one draw j is 0 or 1."""
        total = np.full(np.broadcast_shapes(np.shape(x), np.shape(z)), -math.inf)
        for often, log in zip(*self._often, strict=True):
            far = often * (place - self.before)
            total = np.logaddexp(total, log + far * (x - self.before - far / 2) / np.square(z))
        return np.asarray(total)

    def _mass(self, x: FloatArray, place: float, z: float) -> FloatArray:
        """Return the probabilities of cells of x where the client is at a place, if it comes."""
        mixed = np.zeros(x.shape)
        for often, log in zip(*self._often, strict=True):
            at = self.before + often * (place - self.before)
            here = np.exp(-0.5 * np.square((x - at) / z))
            mixed += math.exp(log) * here / here.sum()
        return np.asarray(mixed / mixed.sum())

    def roc(self, z: float) -> Roc:
        """Return how the sum of all rounds' ratios is distributed in both worlds, at noise z."""
        most = self._often[0].max()
        ends = (self.before + most * (place - self.before) for place in (self.there, self.out))
        places = (*ends, self.before)
        x = np.linspace(min(places) - 9 * z, max(places) + 9 * z, CELLS)
        masses = [self._mass(x, place, z) for place in (self.there, self.out)]
        loss = self.scores(x, z)
        low, high = float(loss.min()), float(loss.max())
        spread = math.sqrt(float(masses[0] @ np.square(loss - masses[0] @ loss)) + 1e-12)
        step = max((high - low) * self.rounds / BINS, min(0.01, spread / 50), 1e-9)
        first = math.floor(low / step)
        cells = math.ceil(high / step) - first + 2
        sums = [_composed(_binned(loss / step - first, m, cells), self.rounds) for m in masses]
        losses = step * (first * self.rounds + np.arange(len(sums[0]), dtype=np.float64))
        return Roc(losses, sums[0], sums[1])


@dataclass(frozen=True)
class Roc:
    """The distribution of a log ratio of likelihoods with the canary and without it."""

    losses: FloatArray  # [b]
    there: FloatArray  # [b] probabilities with the canary
    out: FloatArray  # [b] and with its neighbour

    def above(self) -> tuple[FloatArray, FloatArray]:
        """Return the probability of more than each loss, in both worlds."""
        ends = [np.cumsum(p[::-1])[::-1] - p for p in (self.there, self.out)]
        return ends[0], ends[1]

    def right_at(self, wrong: float, upward: bool) -> float:
        """Return how often the best rule is right that is wrong so often."""
        right, of_out = self.above()
        if upward:  # "in" above a threshold
            return float(np.interp(wrong, of_out[::-1], right[::-1]))
        return float(np.interp(wrong, 1 - right, 1 - of_out))  # "out" up to a threshold

    def epsilon(self, delta: float) -> float:
        """Return ε at δ, the larger of both directions."""
        forth = _epsilon(self.losses, self.there, delta)
        return max(forth, _epsilon(-self.losses[::-1], self.out[::-1], delta))


def _binned(places: FloatArray, masses: FloatArray, cells: int) -> FloatArray:
    """Return masses at places between whole numbers, shared by both neighbours."""
    left = np.floor(places).astype(np.int64)
    part = places - left
    out = np.bincount(left, masses * (1 - part), cells)
    out += np.bincount(left + 1, masses * part, cells)
    return np.asarray(out / out.sum())


def _composed(mass: FloatArray, rounds: int) -> FloatArray:
    """Return the distribution of the sum of so many independent losses."""
    if rounds == 1:
        return mass
    size = (len(mass) - 1) * rounds + 1
    room = next_fast_len(size, real=True)
    return np.asarray(np.maximum(irfft(rfft(mass, room) ** rounds, room)[:size], 0.0))


def _epsilon(losses: FloatArray, mass: FloatArray, delta: float) -> float:
    """Return the least ε ≥ 0 with Σ (1 − e^{ε − L}) over L > ε at most δ."""

    def excess(epsilon: float) -> float:
        over = losses > epsilon
        return float(mass[over] @ -np.expm1(epsilon - losses[over])) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, float(losses[-1]), xtol=1e-6))


def inverted(rounds: Rounds, found: Counted, upward: bool, claimed: float, delta: float) -> float:
    """Return ε at the most noise with which the best rule is as right and wrong as was found.

    claimed is the noise that is stated, in norms on the sum.
    """

    def excess(log_z: float) -> float:
        return rounds.roc(math.exp(log_z)).right_at(found.wrong, upward) - found.right

    if found.right <= found.wrong:
        return 0.0
    low, high = math.log(claimed / 8), math.log(claimed * 8)
    if excess(high) >= 0:
        return rounds.roc(claimed * 8).epsilon(delta)
    if excess(low) <= 0:
        low -= math.log(8)
        if excess(low) <= 0:
            return rounds.roc(claimed / 64).epsilon(delta)
    place = float(brentq(excess, low, high, xtol=2e-3))
    return rounds.roc(math.exp(place + 2e-3)).epsilon(delta)
