"""Low-cost parameter design (Gu 2024, V-D): a small public experiment gives k, and k gives the noise and the front of the real one."""

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
from fedpareto.optimizers import OPTIMIZERS
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
    others: dict[
        str, dict[str, Any]
    ]  # the same by searching, where it was asked for: trainings, rounds, seconds, points

    def as_plain(self) -> dict[str, Any]:
        """Return the form of `fedpareto design --json`."""
        plain = self.design.as_plain()
        front = [
            row | {"epsilon": float(e) if np.isfinite(e) else None}
            for row, e in zip(plain["front"], self.epsilon, strict=True)
        ]
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
    """Run the pre-experiment, fit k, and predict noise and front for the study's own clients, ratio and rounds.

    The trainings are stored beside db like those of any study, and go on where they stood. seconds is a limit on the time of the real
    training, turned into rounds by the cost model. With compare, the real federation is searched by training too.
    """
    problem, box = _checked(study)
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
        sigma_min=box[0],
        sigma_max=box[1],
    )
    q, allowed = float(largest(problem.training.sample_ratio)), rounds
    if seconds is not None:
        allowed = min(rounds, theory.rounds_within(seconds, _seconds_per_round(problem, box)))
    made = theory.design(
        estimate,
        clients=problem.data.clients,
        sample_ratio=q,
        rounds_max=allowed,
        sigma_min=box[0],
        sigma_max=box[1],
    )
    others = _searches(study, problem, box, rounds, pre, db, watch) if compare else {}
    return Designed(
        made, _epsilons(problem, made), found, whole.points, pre.clients, whole.cost, took, others
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
    """Return the study's federation and its range of noise, or say what a design needs."""
    problem = study.problem
    if not isinstance(problem, Federation) or not isinstance(problem.mechanism, Randomization):
        raise SettingError(
            "design: needs a study of a federation with the mechanism randomization, found another. The law is one of "
            "Gaussian noise."
        )
    sigma = problem.mechanism.sigma
    if not isinstance(sigma, Variable):
        raise SettingError(
            f"design: mechanism.sigma must be a range to design within, found {sigma}. Write sigma = [low, high]."
        )
    if isinstance(problem.training.learning_rate, Variable) or isinstance(
        problem.mechanism.clipping_norm, Variable
    ):
        raise SettingError(
            "design: training.learning_rate and mechanism.clipping_norm must be fixed, found a range: k holds for one of "
            "each. Write one number."
        )
    if not least(sigma) > 0:
        raise SettingError(
            f"design: mechanism.sigma must start above 0, found {least(sigma)}. Raise its lower end."
        )
    return problem, (float(least(sigma)), float(largest(sigma)))


def _with_noise(problem: Federation, sigma: Any, **training: Any) -> Federation:
    mechanism: Any = replace(problem.mechanism, sigma=sigma)  # type: ignore[type-var]
    return replace(
        problem, mechanism=mechanism, training=replace(problem.training, **training), objectives=()
    )


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
    """Train a grid of noises, every seed, to the last round; return every round of it and the seconds it took."""
    searched = replace(
        _with_noise(
            problem, Float("sigma", *box), rounds=Integer("rounds", 1, rounds), evaluate_every=1
        ),
        objectives=(
            Objective("test_loss", reference=10.0),
            Objective("gu24_eq2", reference=1e9, proxy="Gu 2024, Eq. 2"),
        ),
        block=sigmas,
    )
    grid = Study(
        f"{study.name}-pre",
        searched,
        OPTIMIZERS["grid"](points=sigmas, batch=sigmas),
        sigmas,
        study.seed,
        seeds,
    )  # type: ignore
    with run(grid, db, watch=watch) as store:
        trials = sorted(
            (t for t in store.trials() if t.state == "done"), key=lambda t: t.settings["sigma"]
        )
        took = store.seconds()
        losses = np.stack([_losses(store, t) for t in trials])  # [n,seeds,T]
    ratio = float(largest(problem.training.sample_ratio))
    return theory.Runs.of([t.settings["sigma"] for t in trials], ratio, losses), took


def _losses(store: Store, trial: Trial) -> FloatArray:
    return np.array([curves["test_loss"] for curves in store.repeat_curves(trial.number)])


def _seconds_per_round(problem: Federation, box: tuple[float, float]) -> float:
    """Return the seconds of a round of the real federation, by the study's cost model."""
    one = _with_noise(
        problem, box[0], rounds=1, sample_ratio=largest(problem.training.sample_ratio)
    )
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
    """Return what the full grid, training with budget and training until convergence find and cost in the real federation."""
    real = replace(
        problem,
        training=replace(problem.training, sample_ratio=largest(problem.training.sample_ratio)),
    )
    runs, took = _grid(
        study,
        real,
        box,
        rounds,
        pre.sigmas,
        pre.seeds,
        db.with_name(f"{db.stem}-grid{db.suffix}"),
        watch,
    )
    grid = theory.full_grid(runs)
    each = took / grid.cost.rounds
    middle = float(np.median(grid.points["leakage"]))
    found = {
        "full grid": grid,
        "training with budget": theory.with_budget(runs, middle),
        "training until convergence": theory.until_convergence(runs),
    }
    return {
        name: {
            "trainings": f.cost.trainings,
            "rounds": f.cost.rounds,
            "seconds": f.cost.seconds(each),
            "points": [
                dict(zip(f.points.dtype.names or (), row, strict=True)) for row in f.points.tolist()
            ],
        }
        for name, f in found.items()
    }
