"""NSGA-II (Deb 2002), with the constraint penalty of CMOFL-NSGA-II (Kang 2023, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpareto.front import crowding, ranks
from fedpareto.history import History
from fedpareto.noise import rng
from fedpareto.optimizers.random import first
from fedpareto.optimizers.replay import Rows, replayed
from fedpareto.optimizers.variation import distinct, offspring
from fedpareto.problem import Problem, excess, judges, penalised
from fedpareto.settings import setting
from fedpareto.space import FloatArray, Space


@dataclass(frozen=True)
class Nsga2:
    """Breed the next generation from the best so far; parents are never evaluated again."""

    population: int = setting(
        20,
        help="points per generation, and how many survive",
        at_least=2,
        at_most=100_000,
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
    penalty: bool = setting(
        True,
        help="add each limit's penalty (CMOFL); false leaves limits to the report (MOFL)",
        search=False,
    )
    constraint: str = setting(
        "penalty",
        help="how limits count: by a penalty (Kang 2023), or points within them come first "
        "(Deb 2002)",
        options=("penalty", "domination"),
        search=False,
    )
    start: str = setting(
        "sobol",
        help="how the first generation is drawn",
        options=("sobol", "uniform"),
        search=False,
    )

    @property
    def batch(self) -> int:
        return self.population

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        y, over = self._judged(problem, history), self._over(problem, history)
        alive = self._survivors(history, y, over)
        if len(alive) == 0:
            return self.first(problem.space, n, seed, history.asked)
        draw = rng(seed, "nsga2", history.asked)
        rank = ranked(y[alive], over[alive])
        return self._children(
            problem, history, alive, rank, _crowding_by_rank(y[alive], rank), n, draw
        )

    def first(self, space: Space, n: int, seed: int, skip: int) -> FloatArray:
        return first(space, self.start, n, seed, skip)

    def _judged(self, problem: Problem, history: History) -> FloatArray:
        """Return the objectives [n,m] by which rows are compared, with penalties if wanted."""
        if self.penalty and self.constraint == "penalty":
            return penalised(judges(problem), history.judged)
        return history.y

    def _over(self, problem: Problem, history: History) -> FloatArray:
        """Return by how much each row exceeds limits in all, in units of the limits.

        It is 0 where the penalty deals with them.
        """
        if not self.penalty or self.constraint != "domination":
            return np.zeros(len(history))
        return np.asarray(excess(judges(problem), history.judged).sum(axis=1))

    def _survivors(self, history: History, y: FloatArray, over: FloatArray) -> Rows:
        """Replay the selection batch by batch and return the rows alive now."""

        def fittest(rows: Rows) -> Rows:
            return select(rows, y, self.population, over)

        return replayed(self, history, np.column_stack([y, over]), fittest)

    def _children(
        self,
        problem: Problem,
        history: History,
        alive: Rows,
        rank: Rows,
        room: FloatArray,
        n: int,
        draw: np.random.Generator,
    ) -> FloatArray:
        """Return n children, none evaluated before or twice, as far as the space allows."""

        def breed(pairs: int) -> FloatArray:
            parents = alive[tournament(rank, room, 2 * pairs, draw)]
            return offspring(
                problem.space,
                history.x[parents[:pairs]],
                history.x[parents[pairs:]],
                draw,
                self.crossover,
                self.crossover_index,
                self.mutation,
                self.mutation_index,
            )

        return distinct(problem.space, n, history.tried, breed)


def select(rows: Rows, y: FloatArray, size: int, over: FloatArray | None = None) -> Rows:
    """Return the best `size` of these rows by rank, then by crowding.

    over [n] is by how much each exceeds limits.
    """
    if len(rows) <= size:
        return rows
    rank = ranked(y[rows], None if over is None else over[rows])
    room = _crowding_by_rank(y[rows], rank)
    return rows[np.lexsort((-room, rank))[:size]]


def ranked(y: FloatArray, over: FloatArray | None = None) -> Rows:
    """Return the rank of each row of y [n,m].

    Those that exceed a limit come after all others, the least excess first (Deb 2002).
    """
    if over is None or not (over > 0).any():
        return ranks(y)
    held = over <= 0
    rank = np.empty(len(y), dtype=np.int64)
    rank[held] = ranks(y[held])
    rank[~held] = len(y) + np.unique(over[~held], return_inverse=True)[1]
    return rank


def tournament(rank: Rows, room: FloatArray, n: int, draw: np.random.Generator) -> Rows:
    """Return n winners of contests between two, by rank and then by crowding.

    Contestants come from shuffled passes over the population, so that everyone is drawn about
    equally often.
    """
    passes = [draw.permutation(len(rank)) for _ in range(-(-2 * n // len(rank)))]
    a, b = np.concatenate(passes)[: 2 * n].reshape(2, n)
    first = (rank[a] < rank[b]) | ((rank[a] == rank[b]) & (room[a] >= room[b]))
    return np.where(first, a, b)


def _crowding_by_rank(y: FloatArray, rank: Rows) -> FloatArray:
    room = np.empty(len(y))
    for r in np.unique(rank):
        room[rank == r] = crowding(y[rank == r])
    return room
