"""Seconds per point of each attack, of points side by side and of one alone: on a processor those it was busy.

    python benchmarks/audit.py                       # this machine's processor
    python benchmarks/audit.py --device cuda --json benchmarks/results/audit-cuda.json
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedpareto import load_study
from fedpareto.audit import ATTACKS, Points
from fedpareto.contract import VIEWS

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart.toml"


def points_of(n: int, device: str) -> Points:
    """Return points of the quickstart that differ in their noise."""
    problem = load_study(QUICKSTART).problem
    problem = replace(problem, training=replace(problem.training, device=device))
    sigmas = np.geomspace(0.02, 1.0, n)
    settings = tuple({"learning_rate": 0.1, "sigma": float(s), "clipping_norm": 1.0} for s in sigmas)
    return Points(problem, tuple(range(n)), settings)


def timed(attack, points: Points, view: str) -> tuple[float, float]:
    """Return the seconds of an attack, after one that warms up, and those of the processor."""
    attack.within(1e-9).audit(points, view, 1)
    began, busy = time.perf_counter(), time.process_time()
    attack.audit(points, view, 0)
    return time.perf_counter() - began, time.process_time() - busy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--points", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so many")
    parser.add_argument("--share", type=float, default=1.0, help="try this share of each attack's work")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.perf_counter()
    rows: list[dict[str, object]] = []
    for name in given.attacks:
        attack = ATTACKS[name]().within(given.share)
        for view in VIEWS:
            for n in given.points:
                points = points_of(n, given.device)
                if attack.inapplicable(points, view) or time.perf_counter() - began > given.seconds:
                    continue
                seconds, busy = timed(attack, points, view)
                row = {"attack": name, "view": view, "points": n, "seconds": round(seconds, 3), "of a processor": round(busy, 3)}
                row["a point"] = round((busy if given.device == "cpu" else seconds) / n, 4)
                rows.append(row)
                print(row, flush=True)
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"processor, {torch.get_num_threads()} threads"
    if given.json:
        given.json.write_text(json.dumps({"device": where, "share": given.share, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
