"""Seconds per point of each attack, of points side by side and of one alone: on a processor those it was busy.

    python benchmarks/audit.py --json benchmarks/results/audit.json                  # this machine's processor
    python benchmarks/audit.py --device cuda --json benchmarks/results/audit_h200.json

Points are those of the quickstart with other noise; of one point membership trains 256 shadows, of several 96 of each. `lenet5` is
inversion of LeNet-5 on MNIST (FEDPARETO_DATA), two pictures of one point. Rows are kept as they come, beside those of other attacks on the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpareto import Data, Federation, Float, Lenet5, Randomization, Training, load_study
from fedpareto.audit import ATTACKS, Inversion, Membership, Points
from fedpareto.contract import VIEWS

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart.toml"
LENET = "lenet5"


def points_of(n: int, device: str) -> Points:
    """Return points of the quickstart that differ in their noise."""
    problem = load_study(QUICKSTART).problem
    problem = replace(problem, training=replace(problem.training, device=device))
    noises = np.geomspace(1.0, 20.0, n)
    others = {"sample_ratio": 0.25, "learning_rate": 0.5, "clipping_norm": 0.5}
    return Points(problem, tuple(range(n)), tuple({**others, "noise_multiplier": float(z)} for z in noises))


def lenet(device: str) -> Points:
    """Return one point of LeNet-5 on MNIST, without noise."""
    training = Training(0.1, rounds=1, local_epochs=1, batch_size=16, sample_ratio=0.3, device=device)
    sigma = Float("sigma", 0.0, 1.0)
    problem = Federation(Data("mnist", 10), Lenet5(), training, Randomization(sigma, 1.0), ())
    return Points(problem, (0,), ({"sigma": 0.0},))


def attack_of(name: str, points: int, share: float):
    """Return an attack as it is timed on so many points."""
    if name == LENET:
        return Inversion(2)
    made = Membership(256 if points == 1 else 96) if name == "membership" else ATTACKS[name]()
    return made if share >= 1 else made.within(share)


def timed(attack, points: Points, view: str) -> tuple[float, float]:
    """Return the seconds of an attack, after one that warms up, and those of the processor."""
    attack.within(1e-9).audit(points, view, 1)
    began, busy = time.perf_counter(), time.process_time()
    attack.audit(points, view, 0)
    return time.perf_counter() - began, time.process_time() - busy


def asked(given: argparse.Namespace):
    """Yield the name of an attack, the view and the points, of what is to be timed."""
    for name in given.attacks:
        if name == LENET:
            yield name, "server", lenet(given.device)
            continue
        for view in VIEWS:
            for n in given.points:
                yield name, view, points_of(n, given.device)


def about(device: str) -> dict[str, object]:
    """Return what machine this is."""
    import torch  # after fedpareto, whose threads then sleep while they wait

    name = torch.cuda.get_device_name() if device == "cuda" else f"processor, {torch.get_num_threads()} threads"
    return {"device": name, "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}


def keep(path: Path, machine: dict[str, object], row: dict[str, object]) -> None:
    """Add a row to those of the same machine, in place of one of the same attack, view and number of points."""
    there = json.loads(path.read_text()) if path.exists() else {}
    rows = there.pop("rows", [])
    asked = ("attack", "view", "points")
    others = [r for r in rows if there == machine and [r[k] for k in asked] != [row[k] for k in asked]]
    path.write_text(json.dumps(machine | {"rows": [*others, row]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--points", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--attacks", nargs="+", default=[*ATTACKS, LENET])
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so many")
    parser.add_argument("--share", type=float, default=1.0, help="try this share of each attack's work")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.perf_counter()
    for name, view, points in asked(given):
        attack = attack_of(name, len(points), given.share)
        if attack.inapplicable(points, view) or time.perf_counter() - began > given.seconds:
            continue
        seconds, busy = timed(attack, points, view)
        row = {"attack": name, "view": view, "points": len(points), "seconds": round(seconds, 3), "of a processor": round(busy, 3)}
        row["a point"] = round((busy if given.device == "cpu" else seconds) / len(points), 4)
        print(row, flush=True)
        if given.json:
            keep(given.json, {**about(given.device), "share": given.share}, row)


if __name__ == "__main__":
    main()
