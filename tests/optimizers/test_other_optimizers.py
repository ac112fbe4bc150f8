"""FedMOEAC, the grid, qLogNEHVI, NSGA-II's operators for mixed variables, and what runs show on the way."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpareto.errors import SettingError
from fedpareto.front import hypervolume
from fedpareto.history import History
from fedpareto.optimizers import OPTIMIZERS, FedMoeac, Grid, Nsga2, QLogNehvi
from fedpareto.optimizers.clustering import directions, mating_clusters, survivors
from fedpareto.optimizers.improvement import sweep
from fedpareto.optimizers.nsga2 import ranked
from fedpareto.optimizers.variation import offspring, redrawn
from fedpareto.problem import Objective, feasible
from fedpareto.space import Choice, Float, Integer, Space
from fedpareto.testing import Function, check_optimizer, continuous, optimize


def test_optimizers_load_without_torch():
    code = "import sys, fedpareto.optimizers; print('torch' in sys.modules, 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_point_measured_often_disturbs_nobody(name):
    problem = continuous(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1), 2, 2)
    history = History.empty(2, 2).extend(np.full((10, 2), 0.5), np.full((10, 2), 0.5))
    optimizer = OPTIMIZERS[name]()
    optimizer = replace(optimizer, steps=10) if hasattr(optimizer, "steps") else optimizer
    x = optimizer.propose(problem, history, 4, 0)
    assert x.shape == (4, 2)
    assert len(np.unique(x, axis=0)) > 1


# FedMOEAC


def test_fedmoeac_keeps_the_contract_of_an_optimizer():
    check_optimizer(FedMoeac(population=6))


def test_survivors_come_from_different_directions():
    angle = np.repeat([0.1, 0.8, 1.4], 5)
    y = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.tile([1.0, 1.1, 1.2, 1.3, 1.4], 3)[:, None]
    y = np.vstack([y, [[0.0, 0.0]]])[:15]
    kept = survivors(y, 3)
    assert sorted(kept // 5) == [0, 1, 2]


def test_merging_by_angle_agrees_with_merging_by_hand():
    draw = np.random.default_rng(3)
    y = draw.random((14, 3))
    z = directions(y)
    groups = [[i] for i in range(14)]
    while len(groups) > 5:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
        centre = [z[g].mean(axis=0) / np.linalg.norm(z[g].mean(axis=0)) for g in groups]
        a, b = max(pairs, key=lambda p: centre[p[0]] @ centre[p[1]])
        groups[b] += groups.pop(a)
    unit = (y - y.min(axis=0)) / np.ptp(y, axis=0)
    expected = {min(g, key=lambda i: unit[i].sum()) for g in groups}
    assert set(survivors(y, 5)) == expected


def test_a_penalty_decides_within_a_direction_and_bends_none():
    y = np.array([[0.0, 1.0], [0.01, 1.0], [1.0, 0.0], [1.0, 0.01]])
    assert survivors(y, 2).tolist() == [0, 2]
    judged = y + np.array([[0.0, 0.0], [0.0, 0.0], [1000.0, 0.0], [0.0, 0.0]])
    assert survivors(y, 2, judged).tolist() == [0, 3]


def test_mating_clusters_hold_similar_trade_offs():
    y = np.array([[0.0, 1.0], [0.05, 1.0], [0.1, 0.95], [1.0, 0.0], [1.0, 0.05], [0.95, 0.1]])
    cluster = mating_clusters(y, seed=0)
    assert len(set(cluster[:3])) == len(set(cluster[3:])) == 1
    assert cluster[0] != cluster[3]


def test_fedmoeac_finds_a_front():
    problem = continuous(lambda x: np.stack([x[:, 0], 1 - x[:, 0] + x[:, 1:].sum(axis=1)], axis=1), 3, 2)
    reached = [hypervolume(optimize(problem, FedMoeac(population=10), 200, seed).y, np.full(2, 1.1)) for seed in range(3)]
    first = [hypervolume(optimize(problem, FedMoeac(population=10), 10, seed).y, np.full(2, 1.1)) for seed in range(3)]
    assert np.mean(reached) > 1.5 * np.mean(first)


# The grid


def test_the_grid_keeps_the_contract_of_an_optimizer():
    check_optimizer(Grid(points=3, batch=7))


def test_the_grid_visits_every_combination_once_and_then_goes_on():
    space = Space((Float("sigma", 0.0, 1.0), Integer("width", 1, 2), Choice("kind", ("a", "b", "c"))))
    problem = Function(lambda x: x[:, :2], space, (Objective("f1"), Objective("f2")))
    history = optimize(problem, Grid(points=4, batch=5), 40, seed=0)
    first = history.x[: 4 * 2 * 3]
    assert len(np.unique(first, axis=0)) == 24
    assert set(space.decode(first)["sigma"]) == {0.0, 0.333333333333, 0.666666666667, 1.0}
    assert len(np.unique(history.x, axis=0)) == 40


def test_the_free_variable_stays_at_its_largest():
    @dataclass(frozen=True)
    class Rounds(Function):
        free: str = "rounds"

        def measure_along(self, values, seeds):
            raise AssertionError("a proposal trains nothing")

    space = Space((Float("sigma", 0.0, 1.0), Integer("rounds", 1, 30)))
    problem = Rounds(lambda x: x, space, (Objective("f1"), Objective("f2")))
    history = optimize(problem, Grid(points=3, batch=5), 10, seed=0)
    assert set(space.decode(history.x)["rounds"]) == {30}


# qLogNEHVI


def test_qlognehvi_keeps_the_contract_of_an_optimizer(fits):
    check_optimizer(QLogNehvi(batch=2, start=2, samples=4, restarts=1, steps=2))


def test_the_boxes_of_a_sweep_split_what_no_point_dominates():
    draw = np.random.default_rng(0)
    for ties in (False, True):
        front, corner = draw.normal(size=(40, 3)), np.full(3, -2.0)
        front = front.round(0) if ties else front
        low, high = sweep(front, corner)
        assert len(low) <= 2 * len(front) + 1
        assert (low < high).all()
        points = draw.uniform(-2.0, 4.0, size=(500, 3))
        held = ((points[:, None] > low) & (points[:, None] < high)).all(axis=2).sum(axis=1)
        free = ~(front[None] >= points[:, None]).all(axis=2).any(axis=1)
        assert (held == free).all()


def test_a_sweep_finds_the_hypervolume_that_botorch_finds():
    torch = pytest.importorskip("torch")
    from botorch.utils.multi_objective.box_decompositions import FastNondominatedPartitioning

    front, corner = np.random.default_rng(1).random((60, 3)), np.full(3, -0.1)
    low, high = sweep(front, corner)
    top = front.max(axis=0)
    left = np.maximum(np.minimum(high, top) - np.minimum(low, top), 0.0).prod(axis=1).sum()
    theirs = FastNondominatedPartitioning(torch.from_numpy(corner), torch.from_numpy(front)).compute_hypervolume()
    assert (top - corner).prod() - left == pytest.approx(float(theirs))


def test_qlognehvi_respects_a_limit():
    problem = continuous(lambda x: np.stack([x[:, 0], 1 - x[:, 0] + x[:, 1]], axis=1), 2, 2, limit=0.6)
    history = optimize(problem, QLogNehvi(), 20, seed=0)
    assert feasible(problem.objectives, history.y)[10:].mean() > 0.7


# NSGA-II


def test_with_domination_points_within_limits_come_first_and_then_the_least_excess():
    y = np.array([[0.0, 0.0], [1.0, 0.5], [0.5, 1.0], [2.0, 2.0]])
    assert ranked(y, np.array([3.0, 0.0, 0.0, 1.0])).argsort(kind="stable").tolist() == [1, 2, 3, 0]
    assert (ranked(y, np.zeros(4)) == ranked(y)).all()


def test_domination_keeps_more_points_within_limits():
    problem = continuous(lambda x: np.stack([x[:, 0], 1 - x[:, 0] + x[:, 1:].mean(axis=1)], axis=1), 4, 2, limit=0.3)
    share = {}
    for constraint in ("penalty", "domination"):
        histories = [optimize(problem, Nsga2(population=10, constraint=constraint), 150, seed) for seed in range(3)]
        share[constraint] = np.mean([feasible(problem.objectives, h.y).mean() for h in histories])
    assert share["domination"] > share["penalty"]


def test_domination_keeps_the_contract_of_an_optimizer():
    check_optimizer(Nsga2(population=6, constraint="domination"))


def test_a_choice_is_redrawn_among_its_other_values():
    x = np.full(30_000, 0.5 / 3)
    found = redrawn(x, np.random.default_rng(0), 0.1, 3)
    assert (found != x).mean() == pytest.approx(0.1, abs=0.01)
    assert np.unique(found) == pytest.approx(np.array([0.5, 1.5, 2.5]) / 3)


def test_choices_are_swapped_and_redrawn_but_never_blended():
    space = Space((Choice("kind", ("a", "b", "c", "d")), Float("rate", 0.0, 1.0)))
    draw = np.random.default_rng(1)
    first = np.column_stack([np.full(300, 0.125), draw.random(300)])
    second = np.column_stack([np.full(300, 0.875), draw.random(300)])
    assert set(np.unique(offspring(space, first, second, draw, 0.9, 2.0, 0.0, 20.0)[:, 0])) == {0.125, 0.875}


# What runs show on the way


def grown():
    history = History.empty(2, 1).extend(np.zeros((2, 2)), np.zeros((2, 1)), np.ones((3, 2)), np.ones((3, 1)), np.array([0, 0, 1]))
    return history.extend(np.zeros((1, 2)), np.zeros((1, 1)), np.full((1, 2), 0.5), np.full((1, 1), 2.0), np.array([0]))


def test_what_a_run_shows_on_the_way_belongs_to_its_trial():
    history = grown()
    assert history.free_of.tolist() == [0, 0, 1, 2]
    assert history.extend(np.zeros((1, 2)), np.zeros((1, 1))).free_of.tolist() == [0, 0, 1, 2]


def test_what_later_runs_showed_was_not_known_before():
    earlier = grown().before(1)
    assert earlier.free_of.tolist() == [0, 0, 1]
    assert earlier.free_y[:, 0].tolist() == [1.0, 1.0, 1.0]
    assert grown().before(0).free_x.shape == (0, 2)


def test_a_history_whose_free_rows_disagree_is_refused():
    with pytest.raises(SettingError, match=r"free_x \[e,d\], free_y \[e,m\] and free_of \[e\] must agree"):
        replace(grown(), free_y=np.zeros((1, 1)))


def test_qlognehvi_compiles_nothing(tmp_path):
    """A kernel that is compiled on first use leaves a lock if killed, and other points without a compiler."""
    code = (f"import os; os.environ['TORCH_EXTENSIONS_DIR'] = r'{tmp_path}'\n"
            "from fedpareto.testing import continuous, optimize\nfrom fedpareto.optimizers import QLogNehvi\nimport numpy as np\n"
            "f = continuous(lambda x: np.stack([x[:, 0], 1 - x.mean(axis=1)], axis=1), 2, 2)\n"
            "optimize(f, QLogNehvi(batch=2, start=2, samples=2, steps=2, restarts=1), 4, 0)\n"
            "from botorch.acquisition.multi_objective import logei\nassert logei._C is None")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    assert list(tmp_path.iterdir()) == []


def test_fedmoeac_mates_within_clusters_unless_asked_otherwise():
    from fedpareto.optimizers.clustering import _mate

    cluster, draw = np.array([0, 1, 0, 1, 0, 1]), np.random.default_rng(0)
    mates = [_mate(cluster, 0, FedMoeac().own_cluster, draw) for _ in range(200)]
    assert set(mates) == {2, 4}
