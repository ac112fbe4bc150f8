"""Low-cost parameter design (Gu 2024, V-D): choose the noise of a federation without training it.

A small public experiment, the pre-experiment, gives k of the law, and with it noise and front.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.contract import cohort
from fedpareto.errors import SettingError
from fedpareto.federation import Federation
from fedpareto.federation.data import load
from fedpareto.loop import run
from fedpareto.mechanisms import Randomization
from fedpareto.optimizers import Grid
from fedpareto.problem import Objective
from fedpareto.report.cost import Shown, quietly
from fedpareto.settings import check_fields, largest, least, setting
from fedpareto.space import Choice, Float, FloatArray, Integer, Variable
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.trials import MOST_REPEATS, Trial

OURS = "low-cost design"  # the pre-experiment and the training that follows


@dataclass(frozen=True)
class Pre:
    """The pre-experiment: how small it is."""

    share: float = setting(0.1, help="share of the data", above=0, at_most=1)
    clients: int = setting(10, help="K₀", at_least=1)
    sample_ratio: float = setting(1.0, help="q₀", above=0, at_most=1)
    sigmas: int = setting(15, help="values of sigma", at_least=1, at_most=10_000)
    seeds: int = setting(4, help="trainings of each", at_least=1, at_most=MOST_REPEATS)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Asked:
    """What is asked of the real federation beside the study's own settings."""

    rounds: int | None = None  # T; the most that are allowed if left out
    sigma: float | None = None  # with it, the sample ratio is solved for
    seconds: float | None = None  # limit on the time of the real training, by the cost model
    compare: bool = False  # whether the real federation is searched by training too
    budget: float | None = None  # ε₀ of training with budget, √(qT)/σ; the front's median if None
    tolerance: float = 0.01  # of training until convergence: a loss falls by at least this share
    patience: int = 5  # within so many rounds


@dataclass(frozen=True)
class Designed:
    """What the pre-experiment says of the real federation, and what it cost."""

    designs: tuple[theory.Design, ...]  # one for each sample ratio of the study
    epsilon: FloatArray  # [rows of the front], the true ε of the study's view
    runs: theory.Runs  # of the pre-experiment
    points: Any  # its Pareto points: rounds, sigma, sample_ratio, loss, leakage
    clients: int  # K₀
    cost: theory.Spending
    seconds: float  # of wall clock
    # what searches found and cost if asked for: trainings, rounds, client_steps, seconds, points
    others: dict[str, dict[str, Any]]

    @property
    def design(self) -> theory.Design:
        """The design for the largest sample ratio."""
        return self.designs[-1]

    def as_plain(self) -> dict[str, Any]:
        """Return the form of `fedpareto design --json`."""
        plain = self.design.as_plain()
        front = []
        for row, epsilon in zip(plain["front"], self.epsilon, strict=True):
            shown = float(epsilon) if np.isfinite(epsilon) else None
            front.append(row | {"epsilon": shown})
        names = ("sample_ratio", "rounds", "sigma", "sigma_interval")
        ratios = [{name: d.as_plain()[name] for name in names} for d in self.designs]
        return plain | {
            "front": front,
            "ratios": ratios,
            "fitted_trainings": plain["trainings"],
            "trainings": self.cost.trainings,
            "rounds_trained": self.cost.rounds,
            "client_steps": self.cost.client_steps,
            "seconds": self.seconds,
            "others": self.others,
        }


def design_study(
    study: Study,
    pre: Pre,
    db: Path,
    asked: Asked | None = None,
    shown: Shown = quietly,
) -> Designed:
    """Run the pre-experiment, fit k, and predict noise and front of the study's own federation.

    Trainings are stored beside db like those of any study, and go on where they stood.
    """
    asked = asked or Asked()
    problem, sigma = _checked(study)
    ratios = _ratios(problem, asked)
    rounds = int(largest(problem.training.rounds))
    small = replace(
        problem,
        data=replace(problem.data, clients=pre.clients, share=pre.share),
        training=replace(problem.training, sample_ratio=pre.sample_ratio),
    )
    found, took = _grid(study, small, sigma, pre, db, shown)
    whole = theory.full_grid(found)
    estimate = theory.estimate_k(
        whole.points["rounds"],
        whole.points["sigma"],
        pre.clients,
        pre.sample_ratio,
        rounds_max=rounds,
        sigma_min=float(least(sigma)),
        sigma_max=float(largest(sigma)),
    )
    designs = tuple(_designed(problem, sigma, estimate, q, asked) for q in ratios)
    others: dict[str, dict[str, Any]] = {}
    if asked.compare:
        chosen = [d.sample_ratio for d in designs]
        others = _searches(study, problem, sigma, chosen, pre, db, asked, shown)
        others[OURS] = _ours(
            problem, designs, whole.cost, found.sigma, pre.seeds, took, others["full grid"]
        )
    return Designed(
        designs=designs,
        epsilon=_epsilons(problem, designs[-1]),
        runs=found,
        points=whole.points,
        clients=pre.clients,
        cost=whole.cost,
        seconds=took,
        others=others,
    )


def _designed(
    problem: Federation,
    sigma: Variable,
    estimate: theory.Estimate,
    ratio: float | None,
    asked: Asked,
) -> theory.Design:
    """Return the design for one sample ratio; None for the one that the law gives."""
    allowed = int(largest(problem.training.rounds))
    if asked.seconds is not None:
        q = float(largest(problem.training.sample_ratio)) if ratio is None else ratio
        per_round = _seconds_per_round(problem, float(least(sigma)), q)
        allowed = min(allowed, theory.rounds_within(asked.seconds, per_round))
    made = theory.design(
        estimate,
        clients=problem.data.clients,
        sample_ratio=ratio,
        sigma=asked.sigma,
        rounds=asked.rounds,
        rounds_max=allowed,
        sigma_min=float(least(sigma)),
        sigma_max=float(largest(sigma)),
    )
    _check_ratio(problem, made.sample_ratio)
    return made


def _epsilons(problem: Federation, made: theory.Design) -> FloatArray:
    """Return the true ε of every row of the predicted front, for the study's view."""
    asked = _with_noise(
        problem,
        Float("sigma", 1e-12, 1e6),
        rounds=Integer("rounds", 1, made.rounds_max + 1),
        sample_ratio=made.sample_ratio,
    )
    values = {"rounds": made.front["rounds"].tolist(), "sigma": made.front["sigma"].tolist()}
    return asked.columns(values, len(made.front), views=(problem.privacy.view,))["epsilon"]


def _checked(study: Study) -> tuple[Federation, Variable]:
    """Return the study's federation and the noise it searches, or say what is missing."""
    problem = study.problem
    if not isinstance(problem, Federation) or not isinstance(problem.mechanism, Randomization):
        raise SettingError(
            "design: needs a study of a federation with the mechanism randomization, found another."
            " The law is one of Gaussian noise."
        )
    if problem.private:
        raise SettingError(
            "design: privacy.private_data must be false, found true: its experiment is one on "
            "public data, and not priced. Design on public data, then set it to true."
        )
    sigma = problem.mechanism.sigma
    if not isinstance(sigma, Variable):
        raise SettingError(
            f"design: mechanism.sigma must be a range to design within, found {sigma}. "
            "Write sigma = [low, high]."
        )
    solved = ("sigma", "sample_ratio", "rounds")
    others = [name for name in problem.space.names if name not in solved]
    if others:
        raise SettingError(
            f"design: {others[0]} must be fixed, found that it is searched: k holds for one value "
            "of it. Write one."
        )
    if not least(sigma) > 0:
        raise SettingError(
            f"design: mechanism.sigma must start above 0, found {least(sigma)}. "
            "Raise its lower end."
        )
    return problem, sigma


def _ratios(problem: Federation, asked: Asked) -> Sequence[float | None]:
    """Return the sample ratios to design for, rising; [None] where one is solved for."""
    ratio = problem.training.sample_ratio
    if asked.sigma is not None:
        if asked.rounds is None:
            raise SettingError(
                "design: sigma must go with rounds, found no rounds: the share of clients to ask "
                "follows from both. Give --rounds."
            )
        return [None]
    if isinstance(ratio, Choice):
        return sorted(map(float, ratio.choices))
    if isinstance(ratio, Variable):
        raise SettingError(
            f"design: training.sample_ratio must be one number or choices, found the range "
            f"[{ratio.low}, {ratio.high}]. Write {{choices = [...]}} to design for each, or give "
            "--sigma and --rounds to solve for it."
        )
    return [float(ratio)]


def _check_ratio(problem: Federation, ratio: float) -> None:
    """Refuse a sample ratio that the law gives outside the study's range."""
    low, high = (float(end(problem.training.sample_ratio)) for end in (least, largest))
    if low < high and not low <= ratio <= high:
        raise SettingError(
            f"design: the law's share of clients must lie in the study's range [{low:g}, {high:g}],"
            f" found {ratio:.4g}. Change --sigma or --rounds, or widen training.sample_ratio."
        )


def _with_noise(problem: Federation, sigma: Any, **training: Any) -> Federation:
    """Return the federation with this noise and these settings of training, and no objectives."""
    mechanism: Any = replace(problem.mechanism, sigma=sigma)  # type: ignore[type-var]
    changed = replace(problem.training, **training)
    return replace(problem, mechanism=mechanism, training=changed, objectives=(), limits=())


def _grid(
    study: Study, problem: Federation, sigma: Variable, pre: Pre, db: Path, shown: Shown
) -> tuple[theory.Runs, float]:
    """Train a grid of noises, on the study's own scale, every seed, to the last round.

    Return the losses after every round, and the seconds that the trainings took. A choice of
    noises is tried as it is.
    """
    rounds = int(largest(problem.training.rounds))
    count = sigma.size if isinstance(sigma, Choice) else pre.sigmas
    noisy = _with_noise(problem, sigma, rounds=Integer("rounds", 1, rounds), evaluate_every=1)
    objectives = (
        Objective("test_loss", reference=10.0),
        Objective("gu24_eq2", reference=1e9, proxy="Gu 2024, Eq. 2"),
    )
    grid = Study(
        name=f"{study.name}-pre",
        problem=replace(noisy, objectives=objectives, block=count),
        optimizer=Grid(points=count, batch=count),
        budget=count,
        seed=study.seed,
        repeats=pre.seeds,
    )
    with shown(grid, db) as watch, run(grid, db, watch=watch) as store:
        trials = sorted(store.trials(), key=lambda trial: trial.settings["sigma"])
        took = store.seconds()
        losses = np.stack([_losses(store, t, pre.seeds, rounds) for t in trials])  # [n,seeds,T]
    noises = [trial.settings["sigma"] for trial in trials]
    ratio = float(largest(problem.training.sample_ratio))
    return theory.Runs.of(noises, ratio, losses, round_steps=_round_steps(problem, ratio)), took


def _losses(store: Store, trial: Trial, seeds: int, rounds: int) -> FloatArray:
    """Return the test losses of a trial, [seeds,T]; nan of one that failed, which cost as much."""
    if trial.state != "done":
        return np.full((seeds, rounds), np.nan)
    return np.array([curves["test_loss"] for curves in store.repeat_curves(trial.number)])


def _round_steps(problem: Federation, ratio: float) -> float:
    """Return the mini-batch steps that the clients of a round take together, on average."""
    training, clients = problem.training, problem.data.clients
    asked = cohort(ratio, clients, training.sampling)
    work = training.work
    if work.steps:
        return asked * work.steps
    images = len(load(problem.data).y_train) / clients
    return asked * work.epochs * math.ceil(images / work.batch_size)


def _seconds_per_round(problem: Federation, sigma: float, ratio: float) -> float:
    """Return the seconds of a round of the real federation, by the study's cost model."""
    found = _with_noise(problem, sigma, rounds=1, sample_ratio=ratio).measure({}, [0])
    return float(found["gu24_eq4"][0])


def _searches(
    study: Study,
    problem: Federation,
    sigma: Variable,
    ratios: list[float],
    pre: Pre,
    db: Path,
    asked: Asked,
    shown: Shown,
) -> dict[str, dict[str, Any]]:
    """Search the real federation by training, in three ways, and return what each finds and costs.

    The ways are the full grid, training with budget and training until convergence (Gu 2024, V-D).
    All three read the trainings of one grid, over the noise and, with several sample ratios, over
    these: then the whole front is sought (Table III), else one setting (Table II).
    """
    parts, took = [], 0.0
    for q in ratios:
        real = replace(problem, training=replace(problem.training, sample_ratio=q))
        tail = "-grid" if len(ratios) == 1 else f"-grid-{q:g}"
        beside = db.with_name(f"{db.stem}{tail}{db.suffix}")
        runs, seconds = _grid(study, real, sigma, pre, beside, shown)
        parts.append(runs)
        took += seconds
    every = functools.reduce(theory.Runs.joined, parts)
    grid = theory.full_grid(every)
    limit = asked.budget or float(np.median(grid.points["leakage"]))
    within = theory.with_budget(every, limit)
    rule: dict[str, Any] = {"tolerance": asked.tolerance, "patience": asked.patience}
    converged = theory.until_convergence(every, **rule, whole_front=len(ratios) > 1)
    each = took / grid.cost.rounds
    return {
        "full grid": _as_plain(grid, each),
        "training with budget": _as_plain(within, each) | {"budget": limit},
        "training until convergence": _as_plain(converged, each) | rule,
    }


def _ours(
    problem: Federation,
    designs: tuple[theory.Design, ...],
    cost: theory.Spending,
    sigmas: FloatArray,
    seeds: int,
    took: float,
    grid: dict[str, Any],
) -> dict[str, Any]:
    """Return what the low-cost design finds and costs, the trainings that follow included."""
    points = theory.settings_of(designs, sigmas)
    whole = cost
    for p in points:
        steps = _round_steps(problem, p["sample_ratio"])
        whole = theory.law_cost(whole, int(p["rounds"]), seeds=seeds, round_steps=steps)
    each = grid["seconds"] / grid["rounds"]
    return _costs(whole, took + (whole.rounds - cost.rounds) * each) | {"points": points}


def _as_plain(found: theory.Found, seconds_per_round: float) -> dict[str, Any]:
    """Return what a search found and cost, as plain data."""
    names = found.points.dtype.names or ()
    points = [dict(zip(names, row, strict=True)) for row in found.points.tolist()]
    return _costs(found.cost, found.cost.seconds(seconds_per_round)) | {"points": points}


def _costs(cost: theory.Spending, seconds: float) -> dict[str, Any]:
    """Return a cost as plain data."""
    return {
        "trainings": cost.trainings,
        "rounds": cost.rounds,
        "client_steps": cost.client_steps,
        "seconds": seconds,
    }
