"""Numbers and figures from the runs of benchmarks/theory.py: k, whether the law fits, what the low-cost design predicts and saves."""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpareto import theory
from fedpareto.contract import cohort
from fedpareto.front import hypervolume
from fedpareto.report.figures import save

STEPS = 20  # of a client in a round, but in the ablations E=…
FIGURE = Path(__file__).parent.parent / "docs" / "theory-fit.png"


def runs_of(stored, name: str) -> theory.Runs:
    asked = [cohort(float(q), int(stored[f"{name}/clients"])) for q in stored[f"{name}/q"]]
    losses = stored[f"{name}/loss"][:, None].astype(float)  # the mean over seeds
    return theory.Runs.of(stored[f"{name}/sigma"], stored[f"{name}/q"], losses, round_steps=np.array(asked) * STEPS)


def estimated(stored, name: str) -> theory.Estimate:
    runs = runs_of(stored, name)
    p = theory.full_grid(runs).points
    return theory.estimate_k(p["rounds"], p["sigma"], int(stored[f"{name}/clients"]), p["sample_ratio"], rounds_max=runs.loss.shape[2],
                             sigma_min=float(runs.sigma.min()), sigma_max=float(runs.sigma.max()))


def plain_quartiles(stored, name: str) -> list[float]:
    """Return the quartiles of qK/(σ²T) over Pareto points that lie on no edge of the box, without further thought."""
    runs = runs_of(stored, name)
    p = theory.full_grid(runs).points
    inside = (p["rounds"] > 1) & (p["rounds"] < runs.loss.shape[2]) & (p["sigma"] > runs.sigma.min()) & (p["sigma"] < runs.sigma.max())
    k = p["sample_ratio"] * int(stored[f"{name}/clients"]) / (p["sigma"] ** 2 * p["rounds"])
    return np.percentile(k[inside], [25, 50, 75]).round(1).tolist()


def objectives(points) -> np.ndarray:
    return np.stack([points["loss"], points["leakage"]], axis=1)


def predicted(stored) -> dict[str, object]:
    """Return how good the front is that the pre-experiment predicts for K = 40, q = 0.5, judged by training it."""
    grid, fine = runs_of(stored, "grid"), runs_of(stored, "fine")
    half = grid.sample_ratio == 0.5
    real = theory.Runs.of(grid.sigma[half], 0.5, grid.loss[half])
    made = theory.design(estimated(stored, "pre"), clients=40, sample_ratio=0.5, rounds_max=grid.loss.shape[2],
                         sigma_min=float(grid.sigma.min()), sigma_max=float(grid.sigma.max()))
    nearest = np.argmin(np.abs(np.log(fine.sigma[:, None] / made.front["sigma"][None])), axis=0)
    rounds = made.front["rounds"].astype(int)
    got = np.stack([fine.mean[nearest, rounds - 1], fine.leakage[nearest, rounds - 1]], axis=1)
    best = objectives(theory.full_grid(real).points)
    corner = np.array([np.log(10), best[:, 1].max()])
    return {"reference": corner.tolist(), "hypervolume_predicted": hypervolume(got, corner), "hypervolume_grid": hypervolume(best, corner),
            "ratio": hypervolume(got, corner) / hypervolume(best, corner),
            "ratio_to_all_q": hypervolume(got, corner) / hypervolume(objectives(theory.full_grid(grid).points), corner)}


def spent(found: theory.Spending, seeds: int) -> dict[str, float]:
    """Return what a search costs with so many seeds of each training."""
    return {"trainings": found.trainings * seeds, "rounds": found.rounds * seeds, "client_steps": found.client_steps * seeds}


def ways(runs: theory.Runs, pre: theory.Spending, final: theory.Spending, whole_front: bool) -> dict[str, theory.Spending]:
    """Return what each way to a setting, or to the whole front, costs with one seed; the last includes the training that follows."""
    middle = float(np.median(theory.full_grid(runs).points["leakage"]))
    return {"full grid": theory.full_grid(runs).cost, "training with budget": theory.with_budget(runs, middle).cost,
            "training until convergence": theory.until_convergence(runs, whole_front=whole_front).cost, "low-cost design": pre + final}


def costs(stored) -> dict[str, dict[str, dict[str, float]]]:
    """Return trainings, rounds and client-steps of the ways to one setting (Table II) and to the front over seven q (Table III).

    Every way has as many seeds of each training: those of the grid.
    """
    grid, seeds, rounds = runs_of(stored, "grid"), int(stored["grid/seeds"]), stored["grid/loss"].shape[1]
    pre = theory.full_grid(runs_of(stored, "pre")).cost
    half = grid.sample_ratio == 0.5
    real = replace(grid, **{name: getattr(grid, name)[half] for name in ("sigma", "sample_ratio", "loss", "leakage", "round_steps")})
    one = theory.law_cost(theory.Spending(0, 0), rounds, round_steps=20 * STEPS)
    k, clients = estimated(stored, "pre").k, int(stored["grid/clients"])
    asked = np.clip(k * np.unique(grid.sigma) ** 2 * rounds / clients, grid.sample_ratio.min(), 1.0)  # the q of each σ, by the law
    each = [theory.law_cost(theory.Spending(0, 0), rounds, round_steps=float(cohort(float(q), clients) * STEPS)) for q in asked]
    found = {"one setting, q = 0.5 (Table II)": ways(real, pre, one, whole_front=False),
             "the front, seven q (Table III)": ways(grid, pre, functools.reduce(operator.add, each), whole_front=True)}
    return {name: {way: spent(cost, seeds) for way, cost in table.items()} for name, table in found.items()}


def draw(axes, stored) -> None:
    runs, k = runs_of(stored, "grid"), estimated(stored, "grid").k
    points = theory.full_grid(runs).points
    rounds = np.arange(1, runs.loss.shape[2] + 1)
    for i, q in enumerate(np.unique(points["sample_ratio"])):
        mine = points["sample_ratio"] == q
        axes.scatter(points["rounds"][mine], points["sigma"][mine], s=7, color=f"C{i}", label=f"q = {q:g}")
        law = theory.sigma_of(rounds, k, 40, q)
        axes.plot(rounds, np.where(law <= runs.sigma.max() * 1.05, law, np.nan), color=f"C{i}", alpha=0.6)
    axes.set(xscale="log", yscale="log", xlabel="rounds T", ylabel="noise σ of each client", ylim=(0.008, 0.2),
             title=f"MNIST, logistic regression, 40 clients: kσ²T = qK with k = {k:.3g}")
    axes.legend(frameon=False, fontsize=8, ncols=2, title="experimental Pareto points")


def report(path: Path, as_json: bool) -> None:
    stored = np.load(path)
    names = [n for n in dict.fromkeys(key.split("/")[0] for key in stored.files) if n != "fine"]
    found = {"k": {n: estimated(stored, n).as_plain() | {"plain_quartiles": plain_quartiles(stored, n)} for n in names},
             "predicted_front": predicted(stored), "costs": costs(stored)}
    if path.stem.endswith("full"):
        save(draw, stored, FIGURE)
        path.with_name("theory.json").write_text(json.dumps(found, indent=1) + "\n")
    if as_json:
        print(json.dumps(found))
        return
    for name, e in found["k"].items():
        print(f"{name:5s} k = {e['k']:5.1f} ({e['k_interval'][0]:.1f} to {e['k_interval'][1]:.1f}), slope {e['slope']:.2f} "
              f"({e['slope_interval'][0]:.2f} to {e['slope_interval'][1]:.2f}); plain quartiles {e['plain_quartiles']}")
    p = found["predicted_front"]
    print(f"predicted front, K = 40, q = 0.5: {p['ratio']:.4f} of the grid's hypervolume, {p['ratio_to_all_q']:.4f} of the seven-q grid's")
    for name, table in found["costs"].items():
        print(f"{name}, {int(stored['grid/seeds'])} seeds each")
        whole = table["full grid"]["client_steps"]
        for way, c in table.items():
            print(f"  {way:28s} {c['trainings']:6,.0f} trainings {c['rounds']:9,.0f} rounds {c['client_steps'] / 1e6:8.2f} million client-steps "
                  f"{c['client_steps'] / whole:6.3f} of the grid's")
