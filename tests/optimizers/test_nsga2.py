"""NSGA-II: against a peer library, by its laws, and by contract."""

from __future__ import annotations

import numpy as np
import pytest
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.optimize import minimize
from pymoo.problems import get_problem

from fedpareto.front import crowding, hypervolume, ranks
from fedpareto.optimizers import Nsga2
from fedpareto.optimizers.nsga2 import select, tournament
from fedpareto.optimizers.variation import (
    flip,
    offspring,
    polynomial,
    simulated_binary,
    single_point,
)
from fedpareto.problem import penalised
from fedpareto.space import Choice, Float, Space
from fedpareto.testing import check_optimizer, continuous, optimize

POPULATION, GENERATIONS, SEEDS = 60, 60, 10
PEERS = {"zdt1": ({"n_var": 8}, 2), "zdt2": ({"n_var": 8}, 2), "zdt3": ({"n_var": 8}, 2),
         "dtlz2": ({"n_var": 7, "n_obj": 3}, 3)}


def test_nsga2_keeps_the_contract_of_an_optimizer():
    check_optimizer(Nsga2(population=8))


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in ("zdt2", "zdt3") else ()) for name in PEERS])
def test_hypervolume_is_within_one_percent_of_a_peer_with_the_same_operators(name):
    arguments, m = PEERS[name]
    peer = get_problem(name, **arguments)
    low, high = peer.bounds()
    ours = continuous(lambda x: peer.evaluate(low + x * (high - low)), peer.n_var, m)
    corner = np.full(m, 1.1)
    reached = {"ours": [], "peer": []}
    for seed in range(SEEDS):
        history = optimize(ours, Nsga2(population=POPULATION), POPULATION * GENERATIONS, seed)
        reached["ours"].append(hypervolume(_last_population(history), corner))
        algorithm = NSGA2(pop_size=POPULATION, crossover=SBX(prob=0.9, eta=2), mutation=PM(prob=1.0, prob_var=0.1, eta=20))
        result = minimize(peer, algorithm, ("n_gen", GENERATIONS), seed=seed)
        reached["peer"].append(hypervolume(result.pop.get("F"), corner))
    ours_mean, peer_mean = np.mean(reached["ours"]), np.mean(reached["peer"])
    assert ours_mean >= 0.99 * peer_mean, f"{name}: {ours_mean:.4f} against the peer's {peer_mean:.4f}"


def _last_population(history):
    alive = np.empty(0, dtype=np.int64)
    for batch in range(history.batches):
        alive = select(np.concatenate([alive, np.flatnonzero(history.batch == batch)]), history.y, POPULATION)
    return history.y[alive]


def schaffer(x):
    return np.stack([x[:, 0] ** 2, (x[:, 0] - 0.5) ** 2], axis=1)


def test_no_point_is_evaluated_twice_while_the_space_has_others():
    history = optimize(continuous(schaffer, 2, 2), Nsga2(population=10), 200, seed=3)
    assert len({row.tobytes() for row in history.x}) == 200


def test_the_penalty_keeps_dominance_and_moves_only_crowding():
    """Eq. 8 rises strictly in each objective, so it cannot change who dominates whom: docs/design.md says so."""
    y = np.random.default_rng(0).random((200, 2))
    problem = continuous(schaffer, 1, 2, limit=0.3)
    judged = penalised(problem.objectives, y)
    assert (ranks(judged) == ranks(y)).all()
    assert (crowding(judged) != crowding(y)).any()


def test_the_penalty_can_be_turned_off():
    problem = continuous(lambda x: np.stack([1 - x[:, 0], x[:, 0] * (1 + x[:, 1])], axis=1), 2, 2, limit=0.3)
    on, off = (optimize(problem, Nsga2(population=10, penalty=penalty), 60, seed=0) for penalty in (True, False))
    assert (on.x[:20] == off.x[:20]).all()  # the first generation, and the second from tournaments among equals
    assert (on.x != off.x).any()


def test_a_failed_point_is_never_a_parent():
    broken = lambda x: np.where(x[:, :1] > 0.5, np.nan, schaffer(x))  # noqa: E731
    problem, optimizer = continuous(broken, 1, 2), Nsga2(population=10, mutation=0.0)
    history = optimize(problem, optimizer, 10, seed=0)
    parents = history.x[~history.failed]
    children = optimizer.propose(problem, history, 10, seed=0)
    assert children.max() <= parents.max() + 0.5 * np.ptp(parents) + 1e-9


def test_selection_prefers_rank_then_room():
    y = np.array([[0.0, 1.0], [0.5, 0.5], [0.51, 0.49], [1.0, 0.0], [2.0, 2.0]])
    assert set(select(np.arange(5), y, 3)) >= {0, 3}
    assert 4 not in select(np.arange(5), y, 4)


def test_tournaments_let_everyone_enter_and_the_better_rank_win():
    rank, room = np.array([0, 1, 1, 1]), np.array([1.0, 1.0, 2.0, 3.0])
    winners = tournament(rank, room, 1000, np.random.default_rng(0))
    counts = np.bincount(winners, minlength=4)
    assert counts[0] > counts[3] > counts[2] > counts[1]


def test_crossover_keeps_the_mean_of_parents_away_from_the_bounds():
    first, second = np.full((20_000, 1), 0.45), np.full((20_000, 1), 0.55)
    one, two = simulated_binary(first, second, np.random.default_rng(0), 1.0, 20.0)
    assert (one + two) / 2 == pytest.approx(np.full((20_000, 1), 0.5), abs=1e-3)
    assert one.std() > 0


@pytest.mark.parametrize("index", [0.0, 2.0, 20.0])
def test_variation_stays_in_the_cube_even_from_its_corners(index):
    draw = np.random.default_rng(1)
    corners = draw.integers(0, 2, (500, 4)).astype(float)
    for child in (*simulated_binary(corners, corners[::-1], draw, 0.9, index), polynomial(corners, draw, 1.0, index)):
        assert np.isfinite(child).all()
        assert ((child >= 0) & (child <= 1)).all()


def test_mutation_touches_the_stated_share_of_variables():
    x = np.full((20_000, 3), 0.3)
    assert (polynomial(x, np.random.default_rng(0), 0.1, 20.0) != x).mean() == pytest.approx(0.1, abs=0.01)
    assert (flip(x, np.random.default_rng(0), 0.1) != x).mean() == pytest.approx(0.1, abs=0.01)


def test_binary_variables_are_swapped_and_flipped_but_never_blended():
    space = Space((Choice("a", (0, 1)), Float("b", 0.0, 1.0), Choice("c", ("x", "y"))))
    draw = np.random.default_rng(2)
    first, second = (np.column_stack([draw.choice([0.25, 0.75], (200, 1)), draw.random(200), draw.choice([0.25, 0.75], 200)])
                     for _ in range(2))
    children = offspring(space, first, second, draw, 0.9, 2.0, 0.1, 20.0)
    assert set(np.unique(children[:, [0, 2]])) == {0.25, 0.75}


def test_single_point_crossover_swaps_a_tail():
    ones, zeros = np.ones((300, 6)), np.zeros((300, 6))
    one, two = single_point(ones, zeros, np.random.default_rng(0), 1.0)
    assert (np.diff(one, axis=1) <= 0).all()
    assert (one + two == 1).all()
