"""Pareto set learning (Lin et al. 2022) as CMOFL-PSL and MOFL-PSL (Kang 2023, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpareto.front import hypervolume, nondominated
from fedpareto.history import History
from fedpareto.noise import derive, rng
from fedpareto.optimizers.composite import telling
from fedpareto.optimizers.random import start
from fedpareto.optimizers.surrogate import Surrogate, filled, fit, sloped, torch_alone, widths
from fedpareto.problem import Problem, judges, limits, penalised, reference, units
from fedpareto.settings import setting
from fedpareto.space import FloatArray

CANDIDATES = 1000
PREFERENCES = 10  # a step
MARGIN = 0.1  # of the ideal point below the best seen, in standard deviations
# The local step of each candidate, times the slope. It is long for lopsided preferences, which is
# how other pieces of a front are found.
LOCAL = 0.01
HIDDEN = 256  # width of the two hidden layers
EDGE = 0.05  # how far from the ends of its variables the network starts, as it hardly moves there
# x [p,d] → lower confidence bounds [p,m], standardised, and their slopes [p,m,d]
Bounds = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Psl:
    """Learn a network from preferences to solutions, and propose what adds most hypervolume.

    The network is trained on Gaussian processes. Everything is learned anew from all rows at each
    call. With the penalty it is CMOFL-PSL, without MOFL-PSL.
    """

    batch: int = setting(5, help="points proposed at once", at_least=1, at_most=1000, search=False)
    start: int = setting(
        5, help="points drawn before anything is learned", at_least=1, at_most=10_000, search=False
    )
    penalty: bool = setting(
        True,
        help="add each limit's penalty to what is predicted (CMOFL); false leaves limits to "
        "the report (MOFL)",
        search=False,
    )
    learning_rate: float = setting(
        1e-3,
        help="of the network; Kang 2023 prints 1e-5, its method's authors use 1e-3",
        above=0,
        at_most=1,
        search=False,
    )
    steps: int = setting(
        1000, help="training steps of the network", at_least=1, at_most=100_000, search=False
    )
    noise: bool = setting(
        True,
        help="let the Gaussian processes expect noise; its authors' code does not",
        search=False,
    )
    optimism: float = setting(
        0.1,
        help="standard deviations below the mean that are aimed at",
        at_least=0,
        at_most=100,
        search=False,
    )
    anchor: bool = setting(
        True,
        help="start the network at the point seen that balances the objectives best; its authors' "
        "code starts it at the centre of the space, where a plateau can hold it",
        search=False,
    )

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        if len(problem.space) == 0:
            return np.empty((n, 0))
        if len(history) < self.start or history.failed.all():
            return start("sobol", len(problem.space), n, seed, skip=history.asked)
        draw = rng(seed, "psl", len(history))
        with torch_alone(derive(seed, "psl", len(history))):
            told = telling(history)
            learned = self._learned(problem, told)
            bounds, ideal = self._bounds(problem, learned), _ideal(learned, problem)
            network = self._trained(told, bounds, ideal, draw)
            x = _with_local_step(network, bounds, ideal, _preferences(draw, CANDIDATES, len(ideal)))
        return self._chosen(problem, history, learned, problem.space.snap(x), n)

    def pareto_set(
        self, problem: Problem, history: History, seed: int, preferences: FloatArray
    ) -> FloatArray:
        """Return the points [p,d] that a network, learned anew, gives for preferences [p,m].

        A preference is a weight per objective, of any scale: the larger, the smaller that objective
        is meant to be.
        """
        if len(problem.space) == 0 or history.failed.all():
            return np.tile(start("sobol", len(problem.space), 1, seed), (len(preferences), 1))
        inverse = 1 / np.maximum(preferences, 1e-6)  # the network's own preferences divide
        with torch_alone(derive(seed, "psl", len(history))):
            told = telling(history)
            learned = self._learned(problem, told)
            network = self._trained(
                told,
                self._bounds(problem, learned),
                _ideal(learned, problem),
                rng(seed, "psl", len(history)),
            )
            return problem.space.snap(network(inverse / inverse.sum(axis=1, keepdims=True)))

    def _learned(self, problem: Problem, history: History) -> list[Surrogate]:
        """Return a process for each objective and, if penalties are wanted, each limit beside."""
        columns = filled(history.judged if self.penalty else history.y).T
        return [fit(problem.space, history.x, column, self.noise) for column in columns]

    def _bounds(self, problem: Problem, learned: list[Surrogate]) -> Bounds:
        """Return the bounds of the objectives, with penalties for limits beside them."""
        bounds = lower_bounds(learned, self.optimism)
        beside = len(learned) > len(problem.objectives)
        return penalised_bounds(bounds, problem, learned) if beside else bounds

    def _trained(
        self, history: History, bounds: Bounds, ideal: FloatArray, draw: np.random.Generator
    ) -> Network:
        """Return a network trained to reduce the Tchebycheff distance of all preferences alike."""
        balanced = history.x[np.argmin((bounds(history.x)[0] - ideal).max(axis=1))]
        network = Network(
            len(ideal),
            np.clip(balanced, EDGE, 1 - EDGE) if self.anchor else np.full_like(balanced, 0.5),
            self.learning_rate,
        )
        for preferences in np.split(
            _preferences(draw, self.steps * PREFERENCES, len(ideal)), self.steps
        ):
            slope = tchebycheff_slope(*bounds(network(preferences)), preferences, ideal)
            length = np.linalg.norm(slope, axis=1, keepdims=True)
            network.learn(slope / np.maximum(length, 1e-12))
        return network

    def _chosen(
        self, problem: Problem, history: History, learned: list[Surrogate], x: FloatArray, n: int
    ) -> FloatArray:
        """Return n candidates of x [c,d] that, one by one, are expected to add most hypervolume."""
        y = np.stack(
            [mean - self.optimism * sd for mean, sd in (s.predict(x) for s in learned)], axis=1
        )
        found = history.y[~history.failed]
        if self.penalty:
            y = penalised(judges(problem), y)
            found = penalised(judges(problem), history.judged[~history.failed])
        seen = {row.tobytes() for row in history.tried}
        fresh = np.array([row.tobytes() not in seen for row in x])
        x, y = (x[fresh], y[fresh]) if fresh.any() else (x, y)
        rows = greedy(y, found[nondominated(found)], n)
        return x[rows]


def greedy(y: FloatArray, front: FloatArray, n: int) -> list[int]:
    """Return n rows of y [c,m] that, one by one, add most hypervolume to a front [k,m].

    The reference is at the worst of all.
    """
    corner = np.vstack([y, front]).max(axis=0)
    y, front, corner = y - corner, front - corner, np.zeros(y.shape[1])
    chosen: list[int] = []
    gain = np.full(len(y), np.inf)
    for _ in range(n):
        base = hypervolume(front, corner)
        best, at = -1.0, 0
        for i in np.argsort(
            -gain, kind="stable"
        ):  # gains only shrink, so a stale one that is smaller needs no fresh look
            if gain[i] <= best:
                break
            gain[i] = -1.0 if i in chosen else hypervolume(np.vstack([front, y[i]]), corner) - base
            if gain[i] > best:
                best, at = gain[i], int(i)
        chosen.append(at)
        front = np.vstack([front, y[at]])
    return chosen


def lower_bounds(learned: list[Surrogate], optimism: float) -> Bounds:
    """Return a function that gives lower confidence bounds of all objectives, and their slopes."""
    space = learned[0].space
    lengths = np.stack([s.lengths for s in learned])[:, None]  # [m,1,f]
    inputs = np.stack([s.inputs / s.lengths for s in learned])  # [m,n,f]
    squares = (inputs**2).sum(axis=2)[:, None]  # [m,1,n]
    turned = np.ascontiguousarray(inputs.transpose(0, 2, 1))  # [m,f,n]
    weights = np.stack([s.weights for s in learned])[:, None]  # [m,1,n]
    precision = np.stack([s.precision for s in learned])  # [m,n,n]
    height = np.array([s.height for s in learned])[:, None, None]
    mean = np.array([s.mean for s in learned])[:, None]
    first = np.cumsum([0, *widths(space)])[:-1]  # [d], of each variable's features

    def lower(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        features, growth = sloped(space, x)
        scaled = features / lengths  # [m,p,f]
        squared = (scaled**2).sum(axis=2)[:, :, None] + squares - 2 * (scaled @ turned)
        r = np.sqrt(5 * np.maximum(squared, 0))  # [m,p,n]
        decay = height * np.exp(-r)
        across = decay * (1 + r + r * r / 3)  # Matérn 5/2
        explained = across @ precision
        left = height - (explained * across).sum(axis=2, keepdims=True)  # [m,p,1]
        sd = np.sqrt(np.maximum(left, 1e-8))
        value = mean + (across * weights).sum(axis=2) - optimism * sd[:, :, 0]
        # How strongly each input pulls along what lies between it and x.
        pull = (weights + optimism / sd * explained) * decay * (1 + r) * (-5 / 3)
        slope = (pull.sum(axis=2, keepdims=True) * scaled - pull @ inputs) / lengths * growth
        return value.T, np.add.reduceat(slope, first, axis=2).transpose(1, 0, 2)

    return lower


def penalised_bounds(bounds: Bounds, problem: Problem, learned: list[Surrogate]) -> Bounds:
    """Return bounds of the objectives alone, grown by what is beyond limits beside them.

    As `penalised` has it, in the standardised units of the processes.
    """
    m = len(problem.objectives)
    beside = judges(problem)[m:]
    centre, scale = np.array([(s.centre, s.scale) for s in learned]).T
    goal = units(reference(problem.objectives)) / scale[:m]
    edge = (limits(beside) - centre[m:]) / scale[m:]
    share = scale[m:] / units(limits(beside))
    weight = share * np.array([o.penalty for o in beside])  # [c]

    def grown(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, slope = bounds(x)
        over = np.maximum(value[:, m:] - edge, 0.0)
        more = over @ weight  # [p]
        steeper = np.einsum("pc,pcd->pd", (over > 0) * weight, slope[:, m:])
        return (
            value[:, :m] + goal * more[:, None],
            slope[:, :m] + goal[:, None] * steeper[:, None],
        )

    return grown


class Network:
    """Preferences [p,m] to points [p,d]: two hidden layers, ReLU and sigmoid, learned by Adam.

    Before anything is learned, every point is near a given one [d].
    """

    def __init__(self, m: int, near: FloatArray, rate: float) -> None:
        import torch
        from torch.nn import Linear, ReLU, Sigmoid

        last = Linear(HIDDEN, len(near))
        self.module = torch.nn.Sequential(
            Linear(m, HIDDEN), ReLU(), Linear(HIDDEN, HIDDEN), ReLU(), last, Sigmoid()
        )
        with torch.no_grad():
            last.bias.add_(torch.from_numpy(np.log(near / (1 - near))))
        self.adam = torch.optim.Adam(self.module.parameters(), lr=rate, fused=True)

    def __call__(self, preferences: FloatArray) -> FloatArray:
        import torch

        self.points = self.module(torch.from_numpy(preferences).float())
        return np.asarray(self.points.detach().double().numpy())

    def learn(self, slope: FloatArray) -> None:
        """Take one step against a slope [p,d] in the points last returned."""
        import torch

        self.adam.zero_grad()
        self.points.backward(torch.from_numpy(slope).float())
        self.adam.step()


def tchebycheff_slope(
    value: FloatArray, slope: FloatArray, preferences: FloatArray, ideal: FloatArray
) -> FloatArray:
    """Return the slope [p,d] of the augmented Tchebycheff distance (Lin et al. 2022, Eq. 8).

    It is that of bounds [p,m] with slopes [p,m,d].
    """
    worst = np.argmax((value - ideal) / preferences, axis=1)
    rows = np.arange(len(worst))
    return np.asarray(
        slope[rows, worst] / preferences[rows, worst, None] + 0.01 * slope.sum(axis=1)
    )


def _with_local_step(
    network: Network, bounds: Bounds, ideal: FloatArray, preferences: FloatArray
) -> FloatArray:
    """Return the points [2c,d] of preferences [c,m], each also a step down its distance."""
    x = network(preferences)
    step = LOCAL * tchebycheff_slope(*bounds(x), preferences, ideal)
    return np.vstack([x, np.clip(x - step, 0, 1)])


def _preferences(draw: np.random.Generator, n: int, m: int) -> FloatArray:
    """Return n preferences [n,m] from a flat Dirichlet distribution, kept away from 0."""
    return np.asarray(draw.dirichlet(np.ones(m), n) + 1e-4)


def _ideal(learned: list[Surrogate], problem: Problem) -> FloatArray:
    """Return the ideal point [m], a little below the best seen."""
    goals = learned[: len(problem.objectives)]
    return np.array([s.targets.min() - MARGIN for s in goals])
