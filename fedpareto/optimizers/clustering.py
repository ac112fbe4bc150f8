"""FedMOEAC (Xiao 2025, Algorithm 1): an evolutionary search by clusters of similar trade-offs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpareto.history import History
from fedpareto.noise import derive, rng
from fedpareto.optimizers.random import first
from fedpareto.optimizers.replay import Rows, replayed
from fedpareto.optimizers.variation import distinct, offspring
from fedpareto.problem import Problem, judges, penalised
from fedpareto.settings import setting
from fedpareto.space import FloatArray, Space


@dataclass(frozen=True)
class FedMoeac:
    """Breed among points of a similar trade-off, and keep the fittest of each direction.

    Where the paper is silent, its authors' MaOEA/C decides: as many mating clusters as objectives,
    fitness the sum of normalised objectives. One who is alone in a cluster mates with anyone.
    The paper has no limits: here they count in the fitness alone, so that a penalty bends no
    direction.
    """

    population: int = setting(
        10,
        help="points per generation, and how many survive",
        at_least=2,
        at_most=1000,
        search=False,
    )
    crossover: float = setting(
        0.9,
        help="probability that a pair of parents is crossed",
        at_least=0,
        at_most=1,
        search=False,
    )
    crossover_index: float = setting(
        2.0,
        help="distribution index of simulated binary crossover",
        at_least=0,
        at_most=1000,
        search=False,
    )
    mutation: float = setting(
        0.1, help="probability that a variable mutates", at_least=0, at_most=1, search=False
    )
    mutation_index: float = setting(
        20.0,
        help="distribution index of polynomial mutation",
        at_least=0,
        at_most=1000,
        search=False,
    )
    own_cluster: float = setting(
        1.0,
        help="probability that a mate comes from the same cluster; 1 as in Xiao 2025, where mating "
        "is within clusters; its authors' MaOEA/C has 0.8",
        at_least=0,
        at_most=1,
        search=False,
    )
    penalty: bool = setting(
        True,
        help="add each limit's penalty to the fitness; false leaves limits to the report",
        search=False,
    )

    @property
    def batch(self) -> int:
        return self.population

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        alive = self._survivors(problem, history)
        if len(alive) == 0:
            return self.first(problem.space, n, seed, history.asked)
        draw = rng(seed, "fedmoeac", history.asked)
        cluster = mating_clusters(
            history.y[alive], derive(seed, "fedmoeac", "clusters", len(history))
        )

        def breed(pairs: int) -> FloatArray:
            first = _in_turn(len(alive), pairs, draw)
            mates = [_mate(cluster, i, self.own_cluster, draw) for i in first]
            return offspring(
                problem.space,
                history.x[alive[first]],
                history.x[alive[mates]],
                draw,
                self.crossover,
                self.crossover_index,
                self.mutation,
                self.mutation_index,
            )

        return distinct(problem.space, n, history.tried, breed)

    def first(self, space: Space, n: int, seed: int, skip: int) -> FloatArray:
        return first(space, "sobol", n, seed, skip)

    def _survivors(self, problem: Problem, history: History) -> Rows:
        """Replay the selection batch by batch and return the rows alive now."""
        y = history.y
        judged = penalised(judges(problem), history.judged) if self.penalty else y

        def fittest(union: Rows) -> Rows:
            return union[survivors(y[union], self.population, judged[union])]

        return replayed(self, history, np.column_stack([y, judged]), fittest)


def _in_turn(size: int, n: int, draw: np.random.Generator) -> Rows:
    """Return n of the numbers below size, each about equally often: shuffled passes over all."""
    return np.concatenate([draw.permutation(size) for _ in range(-(-n // size))])[:n]


def _mate(cluster: Rows, i: int, own: float, draw: np.random.Generator) -> int:
    mates = (
        np.flatnonzero(cluster == cluster[i]) if draw.random() < own else np.arange(len(cluster))
    )
    others = mates[mates != i]
    return int(draw.choice(others)) if len(others) else int(draw.integers(len(cluster)))


def normalised(y: FloatArray) -> FloatArray:
    """Return y [n,m] between its ideal and nadir points, each column in [0, 1]."""
    low, high = y.min(axis=0), y.max(axis=0)
    return np.asarray((y - low) / np.where(high > low, high - low, 1.0))


def directions(y: FloatArray) -> FloatArray:
    """Return the direction [n,m] from the ideal point to each row of y [n,m].

    That of the ideal point itself is the diagonal.
    """
    z = normalised(y)
    z = np.where(z.any(axis=1, keepdims=True), z, 1.0)
    return np.asarray(z / np.linalg.norm(z, axis=1, keepdims=True))


def mating_clusters(y: FloatArray, seed: int) -> Rows:
    """Return the cluster [n] of each row of y [n,m], by k-means of directions.

    There are as many as objectives.
    """
    from sklearn.cluster import KMeans

    z = directions(y)
    k = min(y.shape[1], len(np.unique(z, axis=0)))
    return np.asarray(
        KMeans(k, n_init=10, random_state=seed % 2**32).fit_predict(z), dtype=np.int64
    )


def survivors(y: FloatArray, size: int, judged: FloatArray | None = None) -> Rows:
    """Return the rows of y [n,m] that survive, `size` of them: one of each cluster.

    Clusters merge by the least angle between their centres until so many are left.

    From each, the row of least fitness, the sum of normalised objectives, survives; judged [n,m]
    are the objectives with penalties.
    """
    if len(y) <= size:
        return np.arange(len(y))
    low, high = y.min(axis=0), y.max(axis=0)
    fitness = ((y if judged is None else judged) - low) @ (
        1 / np.where(high > low, high - low, 1.0)
    )
    z = directions(y)
    members = [[i] for i in range(len(y))]
    centres = z.copy()
    cosine = centres @ centres.T
    np.fill_diagonal(cosine, -np.inf)
    for _ in range(len(y) - size):
        a, b = sorted(np.unravel_index(int(np.argmax(cosine)), cosine.shape))
        members[a] += members[b]
        members[b] = []
        centre = z[members[a]].mean(axis=0)
        centres[a] = centre / np.linalg.norm(centre)
        cosine[a, :] = cosine[:, a] = np.where(
            np.isneginf(cosine[a]) & (np.arange(len(y)) != b), -np.inf, centres @ centres[a]
        )
        cosine[a, a] = -np.inf
        cosine[b, :] = cosine[:, b] = -np.inf
    return np.array(
        [min(rows, key=lambda i: (fitness[i], i)) for rows in members if rows], dtype=np.int64
    )
