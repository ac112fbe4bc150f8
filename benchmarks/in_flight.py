"""What batches in flight cost a search: the hypervolume after equal trials, and how many trials more the same one takes.

    python benchmarks/in_flight.py [--save] [--optimizers nsga2 psl bayesian] [--problems theory ...] [--seeds 5] [--json]

Batches of 8 trials, 96 in all, with in_flight L = 0, 1, 2 and 4. How many trials more is said of 99 % of what L = 0 has after half.
Rows do not depend on who trains them, so no cluster is needed: `fedpareto.run` proposes each batch from the rows of the batches before
the last L, here as on a cluster. The problems are those of benchmarks/optimizers.py; hypervolume is of their truth, without noise.
With --save each search is kept in results/in_flight.json as soon as it is done, and not run again. `nsga2` takes four times the
seeds, since it costs next to nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from optimizer_problems import FEDERATIONS, FUNCTIONS, Digits
from optimizers import told

from fedpareto import Study, run
from fedpareto.loop import known
from fedpareto.optimizers import OPTIMIZERS

RESULTS = Path(__file__).parent / "results" / "in_flight.json"
PROBLEMS = {name: (FEDERATIONS | FUNCTIONS)[name] for name in ("theory", "randomization", "zdt3", "digits")}
LEVELS = (0, 1, 2, 4)
BATCH = 8
TRIALS = 12 * BATCH
HALF = TRIALS // 2  # trials after which L = 0 sets the mark
SHARE = 0.99  # of the hypervolume there is the mark: the last hundredth is luck where a search is nearly done
MANY = {"nsga2": 4}  # times the seeds


def made(name: str) -> Any:
    """Return an optimizer of batches of 8."""
    sizes = {"population": BATCH} if name == "nsga2" else {"batch": BATCH, "start": BATCH}
    return OPTIMIZERS[name](**sizes)


def searched(problem_name: str, name: str, in_flight: int, seed: int) -> list[float]:
    """Return the hypervolume after every batch of one search."""
    problem = PROBLEMS[problem_name]()
    asked = problem.problem if isinstance(problem, Digits) else problem
    study = Study("in-flight", asked, made(name), TRIALS, seed, in_flight=in_flight)
    with tempfile.TemporaryDirectory() as folder, run(study, Path(folder) / "search.db") as store:
        return told(problem, known(study, store))


def until(curve: Sequence[float], mark: float) -> float | None:
    """Return after how many trials a curve of hypervolumes reaches a mark, between batches by a line; None if it does not."""
    before = 0.0
    for batch, now in enumerate(curve):
        if now >= mark:
            return BATCH * (batch + (mark - before) / (now - before))
        before = now
    return None


def summary(searches: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield for every problem, optimizer and L the hypervolume after all trials, and the trials to the mark of L = 0."""
    for problem, name in dict.fromkeys((s["problem"], s["optimizer"]) for s in searches):
        curves = {L: curves_of(searches, problem, name, L) for L in LEVELS}
        if len(curves[0]) < 2:
            continue
        mark = SHARE * float(curves[0].mean(axis=0)[HALF // BATCH - 1])
        for L, of_seeds in curves.items():
            ends = of_seeds[:, -1]
            yield {"problem": problem, "optimizer": name, "in_flight": L, "seeds": len(ends), "hypervolume": float(ends.mean()),
                   "error": float(ends.std(ddof=1) / np.sqrt(len(ends))), "to_mark": until(of_seeds.mean(axis=0).tolist(), mark)}


def curves_of(searches: Sequence[dict[str, Any]], problem: str, name: str, in_flight: int) -> np.ndarray:
    """Return the curves [seeds, batches] of the seeds that every L was tried with."""
    mine = [s for s in searches if (s["problem"], s["optimizer"]) == (problem, name)]
    shared = set.intersection(*({s["seed"] for s in mine if s["in_flight"] == L} for L in LEVELS))
    return np.array([s["curve"] for s in mine if s["in_flight"] == in_flight and s["seed"] in shared])


def costs(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield how many times the trials of L = 0 an optimizer needs to the mark: the geometric mean over problems, all trials if never.

    A problem where the first batch is enough says nothing, and is left out.
    """
    for name, L in dict.fromkeys((r["optimizer"], r["in_flight"]) for r in rows):
        mine = [r for r in rows if r["optimizer"] == name]
        alone = {r["problem"]: r["to_mark"] for r in mine if r["in_flight"] == 0 and r["to_mark"] > BATCH}
        ratios = [(r["to_mark"] or TRIALS) / alone[r["problem"]] for r in mine if r["in_flight"] == L and r["problem"] in alone]
        yield {"optimizer": name, "in_flight": L, "times": float(np.exp(np.mean(np.log(ratios))))}


def kept() -> list[dict[str, Any]]:
    """Return the searches on file."""
    return json.loads(RESULTS.read_text())["searches"] if RESULTS.exists() else []


def keep(searches: Sequence[dict[str, Any]]) -> None:
    """Write the searches, beside those on file, and what follows of them; each on a line of its own."""
    every = {(s["optimizer"], s["problem"], s["in_flight"], s["seed"]): s for s in (*kept(), *searches)}
    ordered = [every[key] for key in sorted(every)]
    rows = [*summary(ordered)]
    told = {"command": "python benchmarks/in_flight.py --save", "torch": torch.__version__, "batch": BATCH, "trials": TRIALS, "mark": {"after": HALF, "share": SHARE}}
    told |= {"summary": rows, "costs": [*costs(rows)], "searches": ordered}
    text = json.dumps(told, indent=1)
    RESULTS.write_text(re.sub(r"(?<=[\[\s])\{[^{}]*\}", lambda m: " ".join(m[0].split()), text) + "\n")


def lines(searches: Sequence[dict[str, Any]]) -> Iterator[str]:
    rows = [*summary(searches)]
    for r in rows:
        mark = "more" if r["to_mark"] is None else f"{r['to_mark']:.0f}"
        yield (f"{r['optimizer']:9s} {r['problem']:14s} in_flight {r['in_flight']}: hypervolume {r['hypervolume']:.4f} ± {r['error']:.4f} "
               f"after {TRIALS} trials, {mark} trials to {SHARE:.0%} of what in_flight 0 has after {HALF} ({r['seeds']} seeds)")
    for r in costs(rows):
        yield f"{r['optimizer']:9s} in_flight {r['in_flight']}: {r['times']:.2f} times the trials"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--optimizers", nargs="+", default=["nsga2", "bayesian", "psl"], choices=[*OPTIMIZERS])
    parser.add_argument("--problems", nargs="+", default=[*PROBLEMS], choices=[*PROBLEMS])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    searches = kept()
    done = {(s["problem"], s["optimizer"], s["in_flight"], s["seed"]) for s in searches}
    for name in given.optimizers:
        for seed in range(given.seeds * MANY.get(name, 1)):
            for problem in given.problems:
                for L in LEVELS:
                    if (problem, name, L, seed) in done:
                        continue
                    curve = searched(problem, name, L, seed)
                    searches.append({"problem": problem, "optimizer": name, "in_flight": L, "seed": seed, "curve": curve})
                    if given.save:
                        keep(searches)
                    if not given.json:
                        print(f"{problem} {name} in_flight {L} seed {seed}: {curve[-1]:.4f}", flush=True)
    print(json.dumps([*summary(searches)]) if given.json else "\n".join(lines(searches)))


if __name__ == "__main__":
    main()
