"""Low-cost parameter design (Gu 2024, V-D): choose the noise of a federation without training it.

A small public experiment, the pre-experiment, gives the constant k of the law. From k follow the
noise and the Pareto front of the real federation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.errors import SettingError
from fedpareto.federation import Federation
from fedpareto.loop import Watch, run
from fedpareto.mechanisms import Randomization
from fedpareto.optimizers import Grid
from fedpareto.problem import Objective
from fedpareto.settings import largest, least
from fedpareto.space import Float, FloatArray, Integer, Variable
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.trials import Trial


@dataclass(frozen=True)
class Pre:
    """The pre-experiment: how small it is."""

    share: float = 0.1  # of the data
    clients: int = 10  # K₀
    sample_ratio: float = 1.0  # q₀
    sigmas: int = 15
    seeds: int = 4


@dataclass(frozen=True)
class Designed:
    """What the pre-experiment says of the real federation, and what it cost."""

    design: theory.Design
    epsilon: FloatArray  # [rows of the front], the true ε of the study's view
    runs: theory.Runs  # of the pre-experiment
    points: Any  # its Pareto points: rounds, sigma, sample_ratio, loss, leakage
    clients: int  # K₀
    cost: theory.Spending
    seconds: float  # of wall clock
    # What searches of the real federation found and cost, where they were asked for:
    # trainings, rounds, seconds, points.
    others: dict[str, dict[str, Any]]

    def as_plain(self) -> dict[str, Any]:
        """Return the form of `fedpareto design --json`."""
        plain = self.design.as_plain()
        front = []
        for row, epsilon in zip(plain["front"], self.epsilon, strict=True):
            shown = float(epsilon) if np.isfinite(epsilon) else None
            front.append(row | {"epsilon": shown})
        return plain | {
            "front": front,
            "trainings": self.cost.trainings,
            "rounds_trained": self.cost.rounds,
            "seconds": self.seconds,
            "others": self.others,
        }


def design_study(
    study: Study,
    pre: Pre,
    db: Path,
    *,
    seconds: float | None = None,
    compare: bool = False,
    watch: Watch = lambda store: None,
) -> Designed:
    """Run the pre-experiment, fit k, and predict noise and front of the study's own federation.

    The trainings are stored beside db like those of any study, and go on where they stood. seconds
    is a limit on the time of the real training, turned into rounds by the cost model. With compare,
    the real federation is searched by training too.
    """
    problem, box = _checked(study)
    sigma_min, sigma_max = box
    rounds = int(largest(problem.training.rounds))
    small = replace(
        problem,
        data=replace(problem.data, clients=pre.clients, share=pre.share),
        training=replace(problem.training, sample_ratio=pre.sample_ratio),
    )
    found, took = _grid(study, small, box, rounds, pre.sigmas, pre.seeds, db, watch)
    whole = theory.full_grid(found)
    estimate = theory.estimate_k(
        whole.points["rounds"],
        whole.points["sigma"],
        pre.clients,
        pre.sample_ratio,
        rounds_max=rounds,
        sigma_min=sigma_min,
        sigma_max=sigma_max,
    )
    allowed = rounds
    if seconds is not None:
        per_round = _seconds_per_round(problem, sigma_min)
        allowed = min(rounds, theory.rounds_within(seconds, per_round))
    made = theory.design(
        estimate,
        clients=problem.data.clients,
        sample_ratio=float(largest(problem.training.sample_ratio)),
        rounds_max=allowed,
        sigma_min=sigma_min,
        sigma_max=sigma_max,
    )
    others: dict[str, dict[str, Any]] = {}
    if compare:
        others = _searches(study, problem, box, rounds, pre, db, watch)
    return Designed(
        design=made,
        epsilon=_epsilons(problem, made),
        runs=found,
        points=whole.points,
        clients=pre.clients,
        cost=whole.cost,
        seconds=took,
        others=others,
    )


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


def _checked(study: Study) -> tuple[Federation, tuple[float, float]]:
    """Return the study's federation and its least and largest noise, or say what is missing."""
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
    fixed = (problem.training.learning_rate, problem.mechanism.clipping_norm)
    if any(isinstance(value, Variable) for value in fixed):
        raise SettingError(
            "design: training.learning_rate and mechanism.clipping_norm must be fixed, found a "
            "range: k holds for one of each. Write one number."
        )
    if not least(sigma) > 0:
        raise SettingError(
            f"design: mechanism.sigma must start above 0, found {least(sigma)}. "
            "Raise its lower end."
        )
    return problem, (float(least(sigma)), float(largest(sigma)))


def _with_noise(problem: Federation, sigma: Any, **training: Any) -> Federation:
    """Return the federation with this noise and these settings of training, and no objectives."""
    mechanism: Any = replace(problem.mechanism, sigma=sigma)  # type: ignore[type-var]
    changed = replace(problem.training, **training)
    return replace(problem, mechanism=mechanism, training=changed, objectives=())


def _grid(
    study: Study,
    problem: Federation,
    box: tuple[float, float],
    rounds: int,
    sigmas: int,
    seeds: int,
    db: Path,
    watch: Watch,
) -> tuple[theory.Runs, float]:
    """Train a grid of noises, every seed, to the last round.

    Return the losses after every round, and the seconds that the trainings took.
    """
    noisy = _with_noise(
        problem, Float("sigma", *box), rounds=Integer("rounds", 1, rounds), evaluate_every=1
    )
    objectives = (
        Objective("test_loss", reference=10.0),
        Objective("gu24_eq2", reference=1e9, proxy="Gu 2024, Eq. 2"),
    )
    grid = Study(
        name=f"{study.name}-pre",
        problem=replace(noisy, objectives=objectives, block=sigmas),
        optimizer=Grid(points=sigmas, batch=sigmas),
        budget=sigmas,
        seed=study.seed,
        repeats=seeds,
    )
    with run(grid, db, watch=watch) as store:
        done = [trial for trial in store.trials() if trial.state == "done"]
        trials = sorted(done, key=lambda trial: trial.settings["sigma"])
        took = store.seconds()
        losses = np.stack([_losses(store, trial) for trial in trials])  # [n,seeds,T]
    noises = [trial.settings["sigma"] for trial in trials]
    ratio = float(largest(problem.training.sample_ratio))
    return theory.Runs.of(noises, ratio, losses), took


def _losses(store: Store, trial: Trial) -> FloatArray:
    """Return the test losses of a trial, [seeds,T]."""
    return np.array([curves["test_loss"] for curves in store.repeat_curves(trial.number)])


def _seconds_per_round(problem: Federation, sigma: float) -> float:
    """Return the seconds of a round of the real federation, by the study's cost model."""
    ratio = largest(problem.training.sample_ratio)
    one = _with_noise(problem, sigma, rounds=1, sample_ratio=ratio)
    return float(one.measure({}, [0])["gu24_eq4"][0])


def _searches(
    study: Study,
    problem: Federation,
    box: tuple[float, float],
    rounds: int,
    pre: Pre,
    db: Path,
    watch: Watch,
) -> dict[str, dict[str, Any]]:
    """Search the real federation by training, in three ways, and return what each finds and costs.

    The ways are the full grid, training with budget and training until convergence (Gu 2024, V-D).
    All three read the trainings of the one grid.
    """
    ratio = largest(problem.training.sample_ratio)
    real = replace(problem, training=replace(problem.training, sample_ratio=ratio))
    beside = db.with_name(f"{db.stem}-grid{db.suffix}")
    runs, took = _grid(study, real, box, rounds, pre.sigmas, pre.seeds, beside, watch)
    grid = theory.full_grid(runs)
    seconds_per_round = took / grid.cost.rounds
    middle = float(np.median(grid.points["leakage"]))
    return {
        "full grid": _as_plain(grid, seconds_per_round),
        "training with budget": _as_plain(theory.with_budget(runs, middle), seconds_per_round),
        "training until convergence": _as_plain(theory.until_convergence(runs), seconds_per_round),
    }


def _as_plain(found: theory.Found, seconds_per_round: float) -> dict[str, Any]:
    """Return what a search found and cost, as plain data."""
    names = found.points.dtype.names or ()
    return {
        "trainings": found.cost.trainings,
        "rounds": found.cost.rounds,
        "seconds": found.cost.seconds(seconds_per_round),
        "points": [dict(zip(names, row, strict=True)) for row in found.points.tolist()],
    }
