"""Gu 2024 on real training: logistic regression on MNIST, the experimental Pareto set, k, and the low-cost design.

    FEDPARETO_DATA=... python benchmarks/theory.py train [--scale full|small] [--out FILE]    # a GPU for full, minutes on a CPU for small
    python benchmarks/theory.py fit [--runs FILE] [--json]                                   # figures and numbers from those runs

train writes test losses after every round, mean over seeds, of four sets of runs:
  grid   the real federation, K = 40, E = 20: seven q × fifteen σ from 0.01 to 0.15
  pre    the pre-experiment on a tenth of the data, K = 10, q = 1
  fine   the real federation at q = 0.5 on a fine σ grid, to judge what is predicted
  K=…, E=…   the ablations of Figures 3 to 5, K = 5, 10, 20 and E = 5, 10, 20 at q = 1
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).with_name("results")
RATIOS = [0.05, 0.1, 0.125, 0.25, 0.5, 0.75, 1.0]
SIGMAS = [round(s, 4) for s in np.linspace(0.01, 0.15, 15)]
FINE = [float(f"{s:.4g}") for s in np.geomspace(0.008, 0.25, 48)]
SCALES = {"full": {"rounds": 200, "seeds": 30, "share": 1.0, "fine_seeds": 30, "pre_seeds": 12, "ratios": RATIOS},
          "small": {"rounds": 60, "seeds": 2, "share": 0.1, "fine_seeds": 1, "pre_seeds": 4, "ratios": [0.125, 0.5, 1.0]}}


def runs(clients: int, ratios: list[float], sigmas: list[float], seeds: int, rounds: int, share: float, steps: int = 20) -> dict[str,
                                                                                                                                 object]:
    """Train every (q, σ) with every seed; return the mean test loss after every round, [q·σ,T], and what it took."""
    from fedpareto import Data, Federation, Float, Objective, Randomization, Training
    from fedpareto.federation.models import Lr

    training = Training(0.01, rounds=rounds, local_steps=steps, batch_size=64, momentum=0.09,
                        sample_ratio=Float("sample_ratio", min(0.5, *ratios), 1.0))
    settings = [(q, s) for q in ratios for s in sigmas]
    federation = Federation(Data("mnist", clients, share=share), Lr(), training, Randomization(Float("sigma", 0.0, 1.0), 1.0),
                            (Objective("test_loss"),), len(settings))
    rows = [(q, s, seed) for seed in range(seeds) for q, s in settings]
    began = time.perf_counter()
    values = {"sample_ratio": [r[0] for r in rows], "sigma": [r[1] for r in rows]}
    loss = federation.every_round(values, [r[2] for r in rows], ["test_loss"])["test_loss"]
    mean = loss.reshape(seeds, len(settings), rounds).mean(0)
    return {"q": np.array([q for q, _ in settings]), "sigma": np.array([s for _, s in settings]), "loss": mean.astype(np.float32),
            "clients": clients, "seeds": seeds, "seconds": time.perf_counter() - began}


def train(scale: str, out: Path) -> None:
    s = SCALES[scale]
    jobs = {"grid": (40, s["ratios"], SIGMAS, s["seeds"], s["rounds"], s["share"]),
            "pre": (10, [1.0], SIGMAS, s["pre_seeds"], s["rounds"], 0.1),
            "fine": (40, [0.5], FINE, s["fine_seeds"], s["rounds"], s["share"])}
    if scale == "full":
        jobs |= {f"K={k}": (k, [1.0], SIGMAS, 10, 200, 1.0) for k in (5, 10, 20)}
        jobs |= {f"E={e}": (10, [1.0], SIGMAS, 10, 200, 1.0, e) for e in (5, 10, 20)}
    kept: dict[str, object] = {}
    for name, job in jobs.items():
        found = runs(*job)
        print(f"{name}: {len(found['sigma']) * found['seeds']} trainings, {found['seconds']:.1f} s", flush=True)
        kept |= {f"{name}/{key}": value for key, value in found.items()}
    np.savez_compressed(out, **kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "fit"])
    parser.add_argument("--scale", choices=list(SCALES), default="small")
    parser.add_argument("--out", type=Path, default=RESULTS / "theory-small.npz")
    parser.add_argument("--runs", type=Path, default=RESULTS / "theory-full.npz")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.what == "train":
        train(asked.scale, asked.out)
    else:
        from theory_fit import report

        report(asked.runs, asked.json)


if __name__ == "__main__":
    main()
