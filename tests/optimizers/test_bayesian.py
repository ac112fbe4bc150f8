"""Bayesian optimization: the closed form against sampling, known objectives used exactly, checkpoints learned from, and by contract."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpareto.front import hypervolume, nondominated
from fedpareto.history import History
from fedpareto.optimizers import Bayesian
from fedpareto.optimizers.bayesian import design, on_the_way
from fedpareto.optimizers.composite import compressed, known, learn
from fedpareto.optimizers.improvement import boxes, expected_improvement, probability_within
from fedpareto.optimizers.surrogate import features, filled, fit, torch_alone
from fedpareto.problem import Objective, feasible, reference
from fedpareto.space import Choice, Float, Integer, Space
from fedpareto.testing import check_optimizer, continuous, optimize


@dataclass(frozen=True)
class Private:
    """Error measured, leakage and cost known: leakage saturates over most of the space, and must stay below 0.8."""

    free: str | None = None
    noise: float = 0.01
    block: int = 1000

    failures = {}  # noqa: RUF012
    space = Space((Float("sigma", 0.0, 1.0), Integer("rounds", 1, 50), Choice("bits", (8, 16, 32))))
    objectives = (Objective("error", reference=0.9), Objective("leakage", limit=0.8, reference=0.8), Objective("cost"))

    def known(self, values):
        sigma, rounds, bits = (np.asarray(values[name], dtype=float) for name in self.space.names)
        return {"leakage": 1 - np.minimum(1.0, 30 * sigma**2 / np.sqrt(rounds / 10)), "cost": rounds * bits / (50 * 32)}

    def measure(self, values, seeds):
        sigma, rounds, bits = (np.asarray(values[name], dtype=float) for name in self.space.names)
        error = 0.1 + 0.7 * np.exp(-rounds / 10) + 0.5 * sigma + 0.5 / bits
        lucky = [np.random.default_rng(abs(hash((seed, s, r)))).normal() for seed, s, r in zip(seeds, sigma, rounds, strict=True)]
        return {"error": error + self.noise * np.array(lucky), **self.known(values)}


def observed(problem, x, history=None):
    history = history or History.empty(len(problem.space), len(problem.objectives))
    y = problem.measure(problem.space.decode(x), [0] * len(x))
    return history.extend(x, np.stack([y[o.measure] for o in problem.objectives], axis=1))


def test_bayesian_keeps_the_contract_of_an_optimizer(fits):
    check_optimizer(Bayesian(batch=3, start=3, candidates=200, repeat_all=False))


def test_bayesian_keeps_the_contract_where_objectives_are_known():
    problem, optimizer = Private(), Bayesian(candidates=300)
    history = optimize(problem, optimizer, 15, seed=2)
    assert np.array_equal(optimizer.propose(problem, history, 5, 2), optimizer.propose(problem, history, 5, 2))


def test_torch_is_left_as_it_was():
    import torch

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    optimize(continuous(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1), 2, 2), Bayesian(candidates=100), 10, seed=0)
    assert torch.equal(torch.rand(2), expected)


def test_proposals_use_one_thread_and_give_back_the_others():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch_alone(0):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("sd", [(0.2, 0.0), (0.2, 0.0, 0.0), (0.15, 0.3), (0.1, 0.2, 0.0)], ids=str)
@pytest.mark.parametrize("limited", [False, True])
def test_expected_improvement_agrees_with_sampling(sd, limited):
    m, draw = len(sd), np.random.default_rng(5)
    corner, limits = np.full(m, 1.0), np.full(m, np.inf)
    if limited:
        limits[0] = 0.45
    front = draw.random((12, m))
    mean = draw.random((3, m)) * 0.6
    lower, upper = boxes(front, corner)
    exact = expected_improvement(mean, np.tile(sd, (3, 1)), limits, lower, upper)
    for i in range(3):
        y = mean[i] + np.array(sd) * draw.normal(size=(4000, m))
        gains = [(row <= limits).all() * (hypervolume(np.vstack([front, row]), corner) - hypervolume(front, corner)) for row in y]
        assert exact[i] == pytest.approx(np.mean(gains), abs=4 * np.std(gains) / np.sqrt(4000) + 1e-9)


def test_a_known_point_improves_by_its_hypervolume_exactly():
    draw = np.random.default_rng(0)
    front, y, corner = draw.random((20, 3)), draw.random((5, 3)) * 0.4, np.ones(3)
    gains = [hypervolume(np.vstack([front, row]), corner) - hypervolume(front, corner) for row in y]
    assert expected_improvement(y, np.zeros((5, 3)), np.full(3, np.inf), *boxes(front, corner)) == pytest.approx(np.array(gains))


def test_a_known_objective_beyond_its_limit_adds_nothing():
    lower, upper = boxes(np.empty((0, 2)), np.ones(2))
    gains = expected_improvement(np.array([[0.2, 0.5], [0.2, 0.3]]), np.array([[0.1, 0.0]] * 2), np.array([np.inf, 0.4]), lower, upper)
    assert gains[0] == 0.0
    assert gains[1] > 0.0


def test_one_objective_has_one_box():
    assert boxes(np.array([[0.5], [0.3], [2.0]]), np.ones(1))[1].tolist() == [[0.3]]


def test_the_likelier_point_comes_first_where_nothing_helps():
    mean, sd = np.array([[2.0, 0.0], [1.5, 0.0], [1.5, 3.0]]), np.array([[0.1, 0.0]] * 3)
    value = probability_within(mean, sd, np.array([1.0, 1.0]))
    assert value[1] > value[0]
    assert value[1] > value[2]


def test_nothing_beyond_a_known_limit_is_ever_proposed():
    history = optimize(Private(), Bayesian(candidates=400), 25, seed=1)
    assert feasible(Private.objectives, history.y).all()


def test_the_first_points_spread_over_what_is_known():
    leakage = known(Private(), design(Private(), 5, seed=0))[:, 1]
    assert leakage.max() - leakage.min() > 0.45
    assert leakage.max() <= 0.8


def test_the_design_in_parts_is_the_design_in_one_go():
    whole = design(Private(), 10, seed=4)
    parts = [design(Private(), 5, seed=4, skip=skip, total=10) for skip in (0, 5)]
    assert np.array_equal(whole, np.vstack(parts))


def test_without_known_objectives_the_first_points_are_a_sobol_sequence():
    problem = continuous(lambda x: x, 2, 2)
    assert len(np.unique(design(problem, 8, seed=0), axis=0)) == 8


def test_knowing_beats_measuring():
    """The same problem, its known objectives hidden, needs more evaluations."""
    @dataclass(frozen=True)
    class Hidden(Private):
        known = None  # type: ignore[assignment]

        def measure(self, values, seeds):
            return Private(noise=self.noise).measure(values, seeds)

    reached = {}
    for name, problem in {"known": Private(), "hidden": Hidden()}.items():
        histories = [optimize(problem, Bayesian(candidates=500), 20, seed) for seed in range(3)]
        fronts = [h.y[feasible(problem.objectives, h.y)] for h in histories]
        reached[name] = np.mean([hypervolume(y, reference(problem.objectives)) for y in fronts])
    assert reached["known"] > reached["hidden"]


def test_checkpoints_of_a_run_are_learned_from():
    problem, draw = Private(free="rounds"), np.random.default_rng(0)
    x = problem.space.snap(np.column_stack([draw.random(4), np.ones(4), np.full(4, 0.5)]))
    history = observed(problem, x)
    values = problem.space.decode(np.repeat(x, 9, axis=0))
    values["rounds"] = [5 * (1 + i % 9) for i in range(36)]
    y = problem.measure(values, [0] * 36)
    free_y = np.stack([y[o.measure] for o in problem.objectives], axis=1)
    free_x = problem.space.encode(values, 36)
    told = replace(history, free_x=free_x, free_y=free_y, free_of=np.repeat(np.arange(4), 9))
    short = problem.space.snap(np.column_stack([draw.random(20), np.full(20, 0.1), np.full(20, 0.5)]))
    truth = replace(problem, noise=0.0).measure(problem.space.decode(short), [0] * 20)["error"]
    with torch_alone(0):
        error = {n: np.abs(learn(problem, told, n).predict(short)[0][:, 0] - truth).mean() for n in (0, 4)}
    assert error[4] < 0.5 * error[0]


def test_where_a_long_run_tells_shorter_ones_first_runs_are_long_and_count_as_all_of_them():
    class Telling(Private):
        def measure_along(self, values, seeds):
            raise AssertionError("a proposal trains nothing")

    told, alone = Telling(free="rounds"), Private(free="rounds")  # the second promises nothing
    rounds = [min(p.space.decode(design(p, 20, seed=0))["rounds"]) for p in (told, alone)]
    assert rounds[0] > 25 > rounds[1]
    point = told.space.snap(np.full((1, 3), 0.9))[0]
    path = told.space.decode(on_the_way(told, point))
    assert path["rounds"] == sorted(path["rounds"])
    assert (path["rounds"][0], path["rounds"][-1]) == (1, told.space.decode(point[None])["rounds"][0])
    assert on_the_way(alone, point).tolist() == [point.tolist()]


def test_a_study_ends_when_little_is_left_to_gain():
    problem, optimizer = Private(), Bayesian(candidates=400, tolerance=0.02)
    early, late = (optimize(problem, optimizer, n, seed=0) for n in (5, 40))
    assert not optimizer.finished(problem, early, 0)
    assert optimizer.finished(problem, late, 0)
    assert not replace(optimizer, tolerance=0.0).finished(problem, late, 0)


def test_values_beyond_the_bound_are_drawn_in_and_keep_their_order():
    y = np.array([0.1, 0.4, 0.9, 5.0, 100.0])
    drawn = compressed(y, 1.0)
    assert (drawn[:3] == y[:3]).all()
    assert (np.diff(drawn) > 0).all()
    assert drawn[-1] < 10
    assert (compressed(np.ones(4), 0.5) == 1).all()


def test_a_failed_row_counts_as_the_worst():
    assert filled(np.array([[1.0, np.nan], [3.0, 2.0], [np.nan, np.nan]])).tolist() == [[1.0, 2.0], [3.0, 2.0], [3.0, 2.0]]
    assert filled(np.full((2, 1), np.nan)).tolist() == [[0.0], [0.0]]


def test_a_process_finds_function_and_noise():
    draw = np.random.default_rng(0)
    space = Space((Float("a", 0.0, 1.0), Float("b", 0.0, 1.0)))
    x = draw.random((60, 2))
    y = np.sin(4 * x[:, 0]) + 0.1 * draw.normal(size=60)
    with torch_alone(0):
        surrogate = fit(space, x, y)
    mean, sd = surrogate.predict(np.array([[0.5, 0.5]]))
    assert mean[0] == pytest.approx(np.sin(2), abs=0.1)
    assert surrogate.noise == pytest.approx(0.1, rel=0.4)
    assert surrogate.believe(np.array([[0.5, 0.5]])).predict(np.array([[0.5, 0.5]]))[1][0] < sd[0]


def test_a_process_agrees_with_botorch():
    import torch
    from botorch.models import SingleTaskGP
    from gpytorch.kernels import MaternKernel, ScaleKernel

    draw = np.random.default_rng(1)
    space = Space((Float("a", 0.0, 1.0), Float("b", 0.0, 1.0)))
    x, at = draw.random((30, 2)), draw.random((7, 2))
    with torch_alone(0):
        ours = fit(space, x, x.sum(axis=1) ** 2)
        model = SingleTaskGP(torch.from_numpy(x), torch.from_numpy(ours.targets)[:, None], outcome_transform=None,
                             covar_module=ScaleKernel(MaternKernel(2.5, ard_num_dims=2))).double()
        model.covar_module.base_kernel.lengthscale = torch.from_numpy(ours.lengths)
        model.covar_module.outputscale = ours.height
        model.mean_module.initialize(constant=ours.mean)
        model.likelihood.noise = max(ours.variance, 1.001e-4)
        posterior = model.posterior(torch.from_numpy(at))
    mean, sd = replace(ours, variance=max(ours.variance, 1.001e-4)).predict(at)
    assert mean == pytest.approx(ours.centre + ours.scale * posterior.mean[:, 0].detach().numpy(), abs=1e-4)
    assert sd == pytest.approx(ours.scale * posterior.variance[:, 0].detach().numpy() ** 0.5, abs=1e-3)


def test_unordered_choices_have_a_column_each():
    space = Space((Choice("kind", ("a", "b", "c")), Choice("bits", (8, 16, 32)), Float("rate", 0.0, 1.0)))
    assert features(space, np.array([[0.5, 0.5, 0.2]])).tolist() == [[0.0, 1.0, 0.0, 0.5, 0.2]]


def test_measured_objectives_only_are_searched_well_too():
    """Two measured objectives, no noise: close to the front within 40 evaluations."""
    problem = continuous(lambda x: np.stack([x[:, 0], 1 - np.sqrt(x[:, 0]) + 2 * ((x[:, 1:] - 0.3) ** 2).sum(axis=1)], axis=1), 3, 2)
    history = optimize(problem, Bayesian(candidates=1000), 40, seed=0)
    assert hypervolume(history.y, np.full(2, 1.1)) > 0.95 * 0.8767
    assert nondominated(history.y).sum() > 5
