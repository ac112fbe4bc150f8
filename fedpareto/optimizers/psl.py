"""Pareto set learning (Lin et al. 2022) as CMOFL-PSL and MOFL-PSL (Kang 2023, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.front import hypervolume, nondominated
from fedpareto.history import History
from fedpareto.noise import derive, rng
from fedpareto.optimizers.random import start
from fedpareto.optimizers.surrogate import Surrogate, columns_of, filled, fit, torch_alone
from fedpareto.problem import Problem, penalised
from fedpareto.settings import setting
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

CANDIDATES = 1000
PREFERENCES = 10  # a step
MARGIN = 0.1  # of the ideal point below the best seen, in standard deviations
LOCAL = 0.01  # length of the local step of each candidate
Bounds = Callable[["Tensor"], "Tensor"]  # x [p,d] → lower confidence bounds [p,m], standardised


@dataclass(frozen=True)
class Psl:
    """Learn a network from preferences to solutions on Gaussian processes, and propose the batch that adds most hypervolume.

    Everything is learned anew from all rows at each call. With the penalty it is CMOFL-PSL, without MOFL-PSL.
    """

    batch: int = setting(5, help="points proposed at once", at_least=1, at_most=1000, search=False)
    start: int = setting(5, help="points drawn before anything is learned", at_least=1, at_most=10_000, search=False)
    penalty: bool = setting(True, help="add each limit's penalty to what is predicted (CMOFL); false leaves limits to the report (MOFL)",
                            search=False)
    learning_rate: float = setting(1e-3, help="of the network; Kang 2023 prints 1e-5, its method's authors use 1e-3", above=0, at_most=1,
                                   search=False)
    steps: int = setting(1000, help="training steps of the network", at_least=1, at_most=100_000, search=False)
    noise: bool = setting(True, help="let the Gaussian processes expect noise; its authors' code does not", search=False)
    optimism: float = setting(0.1, help="standard deviations below the mean that are aimed at", at_least=0, at_most=100, search=False)

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        if len(problem.space) == 0:
            return np.empty((n, 0))
        if len(history) < self.start or history.failed.all():
            return start("sobol", len(problem.space), n, seed, skip=len(history))
        draw = rng(seed, "psl", len(history))
        with torch_alone(derive(seed, "psl", len(history))):
            learned = self._learned(problem, history)
            network, bounds, ideal = self._trained(problem, learned, draw)
            x = _with_local_step(network(_preferences(draw, CANDIDATES, len(learned))), bounds, ideal)
        return self._chosen(problem, history, learned, problem.space.snap(x), n)

    def pareto_set(self, problem: Problem, history: History, seed: int, preferences: FloatArray) -> FloatArray:
        """Return the points [p,d] that the network, learned from this history, holds best for preferences [p,m].

        A preference is a weight per objective, of any scale: the larger, the smaller that objective is meant to be.
        """
        if len(problem.space) == 0 or history.failed.all():
            return np.tile(start("sobol", len(problem.space), 1, seed), (len(preferences), 1))
        weights = np.maximum(preferences, 1e-6)
        inverse = 1 / weights  # the network's own preferences divide
        with torch_alone(derive(seed, "psl", len(history))):
            learned = self._learned(problem, history)
            network, _, _ = self._trained(problem, learned, rng(seed, "psl", len(history)))
            import torch

            with torch.no_grad():
                x = network(torch.from_numpy(inverse / inverse.sum(axis=1, keepdims=True))).numpy()
        return problem.space.snap(x)

    def _learned(self, problem: Problem, history: History) -> list[Surrogate]:
        return [fit(problem.space, history.x, column, self.noise) for column in filled(history.y).T]

    def _trained(self, problem: Problem, learned: list[Surrogate],
                 draw: np.random.Generator) -> tuple[Bounds, Bounds, Tensor]:
        """Return the trained network, the bounds it was trained on, and the ideal point [m].

        The loss is the augmented Tchebycheff distance of Lin et al. 2022, Eq. 8, its gradient in the objectives scaled to length one.
        """
        import torch

        d, m = len(problem.space), len(learned)
        network = torch.nn.Sequential(torch.nn.Linear(m, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
                                      torch.nn.Linear(256, d), torch.nn.Sigmoid()).double()
        bounds = _bounds(learned, self.optimism)
        ideal = torch.tensor([s.targets.min() - MARGIN for s in learned])
        adam = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        for preferences in torch.split(_preferences(draw, self.steps * PREFERENCES, m), PREFERENCES):
            value = bounds(network(preferences))
            loss = (_direction(value, preferences, ideal) * value).sum()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        return network, bounds, ideal

    def _chosen(self, problem: Problem, history: History, learned: list[Surrogate], x: FloatArray, n: int) -> FloatArray:
        """Return the n of the candidates x [c,d] that one after another add most hypervolume by their surrogate objectives."""
        y = np.stack([mean - self.optimism * sd for mean, sd in (s.predict(x) for s in learned)], axis=1)
        found = history.y[~history.failed]
        if self.penalty:
            y, found = penalised(problem.objectives, y), penalised(problem.objectives, found)
        seen = {row.tobytes() for row in history.x}
        fresh = np.array([row.tobytes() not in seen for row in x])
        x, y = (x[fresh], y[fresh]) if fresh.any() else (x, y)
        rows = greedy(y, found[nondominated(found)], n)
        return x[rows]


def greedy(y: FloatArray, front: FloatArray, n: int) -> list[int]:
    """Return n rows of y [c,m] that one after another add most hypervolume to a front [k,m], with the reference at the worst of all."""
    corner = np.vstack([y, front]).max(axis=0)
    y, front, corner = y - corner, front - corner, np.zeros(y.shape[1])
    chosen: list[int] = []
    gain = np.full(len(y), np.inf)
    for _ in range(n):
        base = hypervolume(front, corner)
        best, at = -1.0, 0
        for i in np.argsort(-gain, kind="stable"):  # gains only shrink, so a stale one that is smaller needs no fresh look
            if gain[i] <= best:
                break
            gain[i] = -1.0 if i in chosen else hypervolume(np.vstack([front, y[i]]), corner) - base
            if gain[i] > best:
                best, at = gain[i], int(i)
        chosen.append(at)
        front = np.vstack([front, y[at]])
    return chosen


def _preferences(draw: np.random.Generator, n: int, m: int) -> Tensor:
    """Return n preferences [n,m] from a flat Dirichlet distribution."""
    import torch

    return torch.from_numpy(np.maximum(draw.dirichlet(np.ones(m), n), 1e-6))


def _direction(value: Tensor, preferences: Tensor, ideal: Tensor) -> Tensor:
    """Return the gradient [p,m] of the augmented Tchebycheff distance in the objectives, each row of length one."""
    import torch

    with torch.no_grad():
        weighted = (value - ideal) / preferences
        worst = torch.nn.functional.one_hot(weighted.argmax(dim=1), value.shape[1])
        gradient = worst / preferences + 0.01
        return torch.nn.functional.normalize(gradient, dim=1)


def _with_local_step(x: Tensor, bounds: Bounds, ideal: Tensor) -> FloatArray:
    """Return the points x [c,d] and, for each, the point a small step down the gradient of its bounds."""
    import torch

    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(bounds(x).sum(), x)
    return torch.cat([x, x - LOCAL * slope]).clamp(0, 1).detach().numpy()


def _bounds(learned: list[Surrogate], optimism: float) -> Bounds:
    """Return the lower confidence bounds of all objectives as one differentiable function."""
    import torch

    space = learned[0].space
    rows = [tuple(map(torch.from_numpy, (s.inputs / s.lengths, s.lengths, s.weights, s.precision))) for s in learned]
    inputs, lengths, weights, precision = (torch.stack(column) for column in zip(*rows, strict=True))  # [m,n,f], [m,f], [m,n], [m,n,n]
    height, mean = (torch.tensor(v, dtype=torch.float64) for v in ([s.height for s in learned], [s.mean for s in learned]))

    def lower(x: Tensor) -> Tensor:
        scaled = columns_of(space, x)[None] / lengths[:, None]  # [m,p,f]
        squared = ((scaled[:, :, None] - inputs[:, None]) ** 2).sum(dim=-1)
        r = torch.sqrt(5 * squared + 1e-12)
        across = height[:, None, None] * (1 + r + r * r / 3) * torch.exp(-r)  # [m,p,n]
        middle = mean[:, None] + (across @ weights[:, :, None])[:, :, 0]
        left = height[:, None] - ((across @ precision) * across).sum(dim=-1)
        return (middle - optimism * torch.sqrt(left.clamp(min=1e-8))).T

    return lower
