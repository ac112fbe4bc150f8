"""FedMOEAC against NSGA-II on FedMOEAC's own problem (Xiao 2025), 10 points × 12 generations, on a real federation.

    python benchmarks/fedmoeac.py --seeds 10

Noise, pruning and bits are searched for error, size (Eq. 6) and privacy budget (Eq. 7); every point is a training of ten clients on the
digits. A seed is one federation, the same for every optimizer. Two ranges: `paper`, noise σ about N(6, 2.5) and a budget of at most 10 as
in Section 5.1, where noise drowns most of what is learned; `wide`, noise by its logarithm and a budget of at most 100.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.front import hypervolume
from fedpareto.history import History
from fedpareto.optimizers import OPTIMIZERS
from fedpareto.problem import Problem, feasible, reference

RESULTS = Path(__file__).parent / "results" / "fedmoeac.json"
POPULATION, GENERATIONS = 10, 12
RANGES = {"paper": ("[0.1, 12.0]", 10), "wide": ("{ low = 0.02, high = 10.0, log = true }", 100)}  # noise, most of the budget
STUDY = """
seed = 1
budget = 120
[data]
name = "digits"
clients = 10
[model]
name = "lr"
[training]
rounds = 10
local_epochs = 2
batch_size = 16
sample_ratio = 0.4
learning_rate = 0.1
[mechanism]
name = "chain"
[[mechanism.links]]
name = "randomization"
noise_multiplier = {noise}
[[mechanism.links]]
name = "pruning"
prune_rate = [0.0, 0.95]
[[mechanism.links]]
name = "quantization"
bits = {{ choices = [8, 16, 32] }}
[objectives.error]
measure = "test_error"
reference = 1.0
[objectives.size]
measure = "size_ratio"
reference = 1.0
[objectives.budget]
measure = "xiao25_eq7"
limit = {most}
reference = {most}
[optimizer]
name = "random"
"""


def optimizers() -> dict[str, Any]:
    nsga2, fedmoeac = OPTIMIZERS["nsga2"], OPTIMIZERS["fedmoeac"]
    return {
        "fedmoeac": fedmoeac(population=POPULATION),
        "fedmoeac, no penalty": fedmoeac(population=POPULATION, penalty=False),
        "nsga2": nsga2(population=POPULATION),
        "nsga2, no penalty": nsga2(population=POPULATION, penalty=False),
        "random": OPTIMIZERS["random"](sequence="uniform", batch=POPULATION),
    }


def problem(name: str) -> Problem:
    from fedpareto.study import load_study

    noise, most = RANGES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        path.write_text(STUDY.format(noise=noise, most=most))
        return load_study(path).problem


def run(task: tuple[str, str, int]) -> tuple[tuple[str, str, int], dict[str, Any]]:
    """Return the share of the box below the reference that points within limits dominate, after every generation."""
    import torch

    torch.set_num_threads(1)
    where, name, seed = task
    asked, optimizer, began = problem(where), optimizers()[name], time.perf_counter()
    history = History.empty(len(asked.space), len(asked.objectives))
    for _ in range(GENERATIONS):
        x = asked.space.snap(optimizer.propose(asked, history, POPULATION, seed))
        out = asked.measure(asked.space.decode(x), [seed] * len(x))
        history = history.extend(x, np.stack([out[o.measure] for o in asked.objectives], axis=1))
    corner = reference(asked.objectives)
    within = feasible(asked.objectives, history.y)
    y = history.y / corner
    curve = [hypervolume(y[within & (history.batch <= g)], np.ones(len(corner))) for g in range(GENERATIONS)]
    return task, {"curve": [round(v, 5) for v in curve], "within": round(float(within.mean()), 3),
                  "seconds": round(time.perf_counter() - began, 1)}


def summed(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return mean and spread over seeds of each optimizer, and the mean difference to NSGA-II's with its standard error."""
    last = {name: np.array([found[s]["curve"][-1] for s in sorted(found, key=int)]) for name, found in runs.items()}
    out = {}
    for name, found in runs.items():
        middle = np.array([r["curve"][GENERATIONS // 2 - 1] for r in found.values()])
        out[name] = {"hypervolume_60": round(float(middle.mean()), 4), "hypervolume_120": round(float(last[name].mean()), 4),
                     "spread": round(float(last[name].std()), 4), "over_nsga2": None, "standard_error": None,
                     "within": round(float(np.mean([r["within"] for r in found.values()])), 3), "seeds": len(found)}
        if name != "nsga2" and len(found) > 1 and runs.get("nsga2", {}).keys() == found.keys():
            gap = last[name] - last["nsga2"]
            out[name] |= {"over_nsga2": round(float(gap.mean()), 4), "standard_error": round(float(gap.std(ddof=1) / len(gap) ** 0.5), 4)}
    return out


def table(summary: dict[str, dict[str, Any]]) -> str:
    lines = []
    for where, rows in summary.items():
        lines += [f"### {where}: share of (1, 1, {RANGES[where][1]})", "",
                  "| optimizer | 60 evaluations | 120 evaluations | less NSGA-II, ± standard error | within limits | seeds |",
                  "|---|---|---|---|---|---|"]
        for name, r in sorted(rows.items(), key=lambda item: -item[1]["hypervolume_120"]):
            gap = "–" if r["over_nsga2"] is None else f"{r['over_nsga2']:+.4f} ± {r['standard_error']:.4f}"
            lines.append(f"| {name} | {r['hypervolume_60']:.4f} | {r['hypervolume_120']:.4f} ± {r['spread']:.4f} | {gap} | "
                         f"{r['within']:.2f} | {r['seeds']} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--ranges", default=",".join(RANGES))
    parser.add_argument("--optimizers", default=";".join(optimizers()), help="names, a semicolon between them")
    parser.add_argument("--workers", type=int, default=1, help="processes, one core each")
    parser.add_argument("--results", type=Path, default=RESULTS)
    words = parser.parse_args()
    held: dict[str, Any] = json.loads(words.results.read_text()) if words.results.exists() else {}
    runs: dict[str, Any] = held.get("runs", {})
    tasks = [(where, name, seed) for seed in range(words.seeds) for where in words.ranges.split(",")
             for name in words.optimizers.split(";")]
    with get_context("spawn").Pool(words.workers) as pool:
        for (where, name, seed), found in pool.imap_unordered(run, tasks):
            runs.setdefault(where, {}).setdefault(name, {})[str(seed)] = found
            print(f"{where:6} {name:22} seed {seed}: {found['curve'][-1]:.4f}  {found['seconds']:.1f} s", flush=True)
            summary = {place: summed(rows) for place, rows in runs.items()}
            words.results.write_text(json.dumps({"summary": summary, "runs": runs}, indent=1) + "\n")
    print(table(summary))


if __name__ == "__main__":
    main()
