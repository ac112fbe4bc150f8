"""Hypervolume over evaluations for every optimizer and its peers, on test functions and on federations.

    python benchmarks/optimizers.py --seeds 10
    python benchmarks/optimizers.py --problems randomization,theory --optimizers bayesian,cmofl-psl --seeds 3

Results are merged into benchmarks/results/optimizers.json seed by seed: what is there already is not run again (--again runs it).
105 evaluations are 5 + 20 × 5, 420 are 20 + 20 × 20, as in Kang 2023. Runs of another machine are merged with --merge FILE.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from optimizer_peers import OptunaPeer, PymooPeer
from optimizer_problems import FEDERATIONS, FUNCTIONS

from fedpareto.front import hypervolume
from fedpareto.history import History
from fedpareto.optimizers import OPTIMIZERS
from fedpareto.problem import feasible, free_variable, reference

RESULTS = Path(__file__).parent / "results" / "optimizers.json"
PROBLEMS = FEDERATIONS | FUNCTIONS
SIZES = {105: 5, 420: 20}  # evaluations, and those of a batch
SHOWN = (25, 55, 105)


def optimizers(batch: int = 5) -> dict[str, Any]:
    """Return every optimizer with batches, or populations, of this size, the first one included."""
    make = OPTIMIZERS
    return {
        "random": make["random"](sequence="uniform", batch=batch),
        "sobol": make["random"](sequence="sobol", batch=batch),
        "bayesian": make["bayesian"](batch=batch, start=batch),
        "cmofl-psl": make["psl"](batch=batch, start=batch),
        "mofl-psl": make["psl"](batch=batch, start=batch, penalty=False),
        "qlognehvi": make["qlognehvi"](batch=batch, start=batch),
        "cmofl-nsga2": make["nsga2"](population=batch),
        "mofl-nsga2": make["nsga2"](population=batch, penalty=False),
        "fedmoeac": make["fedmoeac"](population=batch),
        "pymoo-nsga3": PymooPeer(batch),
        "optuna-nsga2": OptunaPeer("nsga2", batch),
        "optuna-gp": OptunaPeer("gp", batch),
    }


def run(problem: Any, optimizer: Any, evaluations: int, seed: int) -> dict[str, Any]:
    """Return the hypervolume after every batch, the share of points within limits, and the seconds spent proposing."""
    history, spent = History.empty(len(problem.space), len(problem.objectives)), 0.0
    while len(history) < evaluations:
        began = time.perf_counter()
        x = problem.space.snap(optimizer.propose(problem, history, optimizer.batch, seed))
        spent += time.perf_counter() - began
        history = observe(problem, history, x, seed)
    within = float(feasible(problem.objectives, history.y).mean())
    return {"curve": told(problem, history), "within": round(within, 3), "seconds": round(spent, 2), "torch": torch.__version__}


def told(problem: Any, history: History) -> list[float]:
    """Return the hypervolume after each batch of what holds every limit, without noise, what runs showed on the way included."""
    y = problem.truth(np.vstack([history.x, history.free_x]))
    batch = np.concatenate([history.batch, history.batch[history.free_of]])
    keep = feasible(problem.objectives, y)
    corner = reference(problem.objectives)
    return [round(hypervolume(y[keep & (batch <= b)], corner), 5) for b in range(history.batches)]


def observe(problem: Any, history: History, x: np.ndarray, seed: int) -> History:
    """Return the history with x measured, and with every round on the way where a run tells that too."""
    names, seeds = [o.measure for o in problem.objectives], [seed * 100_000 + len(history) + i for i in range(len(x))]
    measured = problem.measure(problem.space.decode(x), seeds)
    y = np.stack([measured[name] for name in names], axis=1)
    free = free_variable(problem)
    if free is None:
        return history.extend(x, y)
    values = problem.space.decode(x)
    rows = [(i, t) for i, T in enumerate(values[free]) for t in range(1, T)]
    of = np.array([i for i, _ in rows], dtype=np.int64)
    there = {name: [column[i] for i in of] for name, column in values.items()} | {free: [t for _, t in rows]}
    seen = problem.measure(there, [seeds[i] for i in of])
    return history.extend(x, y, problem.space.encode(there, len(of)), np.stack([seen[name] for name in names], axis=1), of)


def job(task: tuple[str, int, str, int]) -> dict[str, Any]:
    """Run one seed of one optimizer on one problem."""
    torch.set_num_threads(1)
    problem, size, name, seed = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(PROBLEMS[problem](), optimizers(SIZES[size])[name], size, seed)


def keep(results: dict[str, Any], task: tuple[str, int, str, int], found: dict[str, Any]) -> None:
    """Add one run to the results, and what follows of mean and spread."""
    problem, size, name, seed = task
    batch = SIZES[size]
    rows = results.setdefault("problems", {}).setdefault(problem, {}).setdefault(str(size), {})
    held = rows.setdefault(name, {"batch": batch, "runs": {}})
    held["runs"][str(seed)] = found
    curves = np.array([held["runs"][s]["curve"] for s in sorted(held["runs"], key=int)])
    marks = [n for n in sorted({*SHOWN, size}) if n <= size and n % batch == 0]
    held["hypervolume"] = {str(n): {"mean": round(float(curves[:, n // batch - 1].mean()), 4),
                                    "spread": round(float(curves[:, n // batch - 1].std()), 4)} for n in marks}
    held["seconds"] = round(float(np.mean([r["seconds"] for r in held["runs"].values()])), 2)
    held["within"] = round(float(np.mean([r["within"] for r in held["runs"].values()])), 3)
    print(f"{problem:14} {name:13} {size:4} seed {seed}: {found['curve'][-1]:.4f}  {found['seconds']:.1f} s", flush=True)


def compare(results: dict[str, Any]) -> None:
    """Add how many evaluations ours needs, on average, for the hypervolume of CMOFL-PSL after 105."""
    out = {}
    for name in FEDERATIONS:
        at = results["problems"].get(name, {}).get("105", {})
        if "bayesian" not in at or "cmofl-psl" not in at:
            continue
        bar = at["cmofl-psl"]["hypervolume"]["105"]["mean"]
        curve = np.mean([r["curve"] for r in at["bayesian"]["runs"].values()], axis=0)
        reached = np.flatnonzero(curve >= bar)
        others = {other: row["hypervolume"]["105"]["mean"] for other, row in at.items() if other != "bayesian"}
        out[name] = {"evaluations_to_match_cmofl_psl_105": int(5 * (reached[0] + 1)) if len(reached) else None, "cmofl_psl_105": bar,
                     "bayesian_105": at["bayesian"]["hypervolume"]["105"]["mean"], "best_other_105": max(others.values()),
                     "best_other": max(others, key=lambda k: others[k])}
    results["federation_problems"] = out


def table(results: dict[str, Any]) -> str:
    """Return the hypervolumes as Markdown: mean ± spread over seeds."""
    lines = []
    for problem, sizes in results["problems"].items():
        corner = ", ".join(f"{r:g}" for r in reference(PROBLEMS[problem]().objectives))
        head = "| optimizer | 25 | 55 | 105 | 420 | within limits | seconds proposing | seeds |"
        lines += [f"### {problem}, reference ({corner})", "", head, "|---|---|---|---|---|---|---|---|"]
        rows = sizes.get("105", {})
        for name in sorted(rows, key=lambda k: -rows[k]["hypervolume"]["105"]["mean"]):
            far = sizes.get("420", {}).get(name, {}).get("hypervolume", {}).get("420")
            cells = [rows[name]["hypervolume"].get(str(n)) for n in SHOWN] + [far]
            shown = [f"{c['mean']:.3f} ± {c['spread']:.3f}" if c else "–" for c in cells]
            rest = f"{rows[name]['within']:.2f} | {rows[name]['seconds']:.1f} | {len(rows[name]['runs'])}"
            lines.append(f"| {name} | {' | '.join(shown)} | {rest} |")
        lines.append("")
    return "\n".join(lines)


def numbered(task: tuple[str, int, str, int]) -> tuple[tuple[str, int, str, int], dict[str, Any]]:
    return task, job(task)


def asked(words: argparse.Namespace) -> list[tuple[str, int, str, int]]:
    """Return what to run, seed by seed."""
    return [(problem, size, name, seed) for seed in range(words.seeds) for problem in words.problems.split(",")
            for size in map(int, words.sizes.split(",")) for name in words.optimizers.split(",")]


def there(results: dict[str, Any], task: tuple[str, int, str, int]) -> bool:
    problem, size, name, seed = task
    return str(seed) in results.get("problems", {}).get(problem, {}).get(str(size), {}).get(name, {}).get("runs", {})


def merge(results: dict[str, Any], other: dict[str, Any]) -> None:
    """Add the runs of another file, in place of those that are there."""
    for problem, sizes in other.get("problems", {}).items():
        for size, rows in sizes.items():
            for name, row in rows.items():
                for seed, found in row["runs"].items():
                    keep(results, (problem, int(size), name, int(seed)), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--optimizers", default=",".join(optimizers()))
    parser.add_argument("--sizes", default="105,420", help="evaluations of a run")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--again", action="store_true", help="run what is there already")
    parser.add_argument("--workers", type=int, default=1, help="processes, one core each")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="run nothing: add the runs of these files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    words = parser.parse_args()
    results: dict[str, Any] = json.loads(words.results.read_text()) if words.results.exists() else {}
    for file in words.merge:
        merge(results, json.loads(file.read_text()))
    tasks = [task for task in asked(words) if words.again or not there(results, task)] if not words.merge else []
    words.results.parent.mkdir(exist_ok=True)
    with get_context("spawn").Pool(words.workers) as pool:
        for task, found in pool.imap_unordered(numbered, tasks):
            keep(results, task, found)
            write(words.results, results)
    write(words.results, results)
    print(table(results))
    print(json.dumps(results.get("federation_problems", {}), indent=1))


def write(path: Path, results: dict[str, Any]) -> None:
    """Write the results, a run to a line."""
    compare(results)
    text = json.dumps(results, indent=1)
    path.write_text(re.sub(r'(?<=": )\{\s*"curve".*?\}', lambda m: " ".join(m[0].split()), text, flags=re.DOTALL) + "\n")


if __name__ == "__main__":
    main()
