"""The engine on a GPU, at the papers' full scale, beside the floors that counted operations and bytes set.

    FEDPARETO_DATA=... python benchmarks/gpu.py [--jobs mlp,grid,lenet] [--json FILE]

mlp    Kang 2023, Fashion-MNIST: MLP 784-256-256-10, 5 clients × 12,000 images, 10 rounds × 5 epochs, batch 64, randomization;
       72 and 288 evaluations together. Bar: 0.12 s per evaluation.
grid   Gu 2024, MNIST: logistic regression, 7 sampling ratios × 15 σ × 30 seeds, 200 rounds, 40 clients, 20 local steps, test loss
       every round: 3,150 trainings. Bar: 80 s in all.
lenet  Kang 2023, CIFAR-10: LeNet, the same federation, 60 evaluations together. Bar: 3.5 s per evaluation.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from fedpareto.federation import Data, Federation, Training
from fedpareto.federation.models import Lenet, Lr, Mlp
from fedpareto.federation.sizes import size_of
from fedpareto.mechanisms import Randomization
from fedpareto.problem import Objective
from fedpareto.space import Float

RANDOM = Randomization(Float("sigma", 0.0, 1.0), Float("clipping_norm", 0.5, 5.0))
GOAL = (Objective("test_error"),)


def ceilings() -> dict[str, float]:
    """Measure what the card can do: bytes/s of a copy, operations/s of a product in fp32 and TF32."""
    a = torch.randn(2**30, device="cuda")
    b = torch.empty_like(a)
    copy = 2 * a.numel() * 4 / seconds(lambda: b.copy_(a))
    a = b = None
    m, rates = torch.randn(8192, 8192, device="cuda"), {}
    for name, tf32 in (("fp32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        rates[name] = 2 * 8192**3 / seconds(lambda: m @ m)
    return {"copy_bytes_per_s": copy, **{f"{k}_flop_per_s": v for k, v in rates.items()}}


def seconds(work, repeats: int = 5) -> float:
    """Return the median time of a piece of work on the card."""
    work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def kang(data: str, model, together: int, rounds: int, tf32: bool, share: float = 1.0) -> tuple[Federation, dict[str, list[float]]]:
    rate = Float("learning_rate", 0.01, 0.3)
    federation = Federation(Data(data, 5, share=share), model,
                            Training(rate, rounds=rounds, local_epochs=5, batch_size=64, tf32=tf32), RANDOM, GOAL, together)
    values = {"learning_rate": list(np.linspace(0.02, 0.12, together)), "sigma": list(np.geomspace(1e-4, 0.02, together)),
              "clipping_norm": list(np.linspace(1.0, 4.0, together))}
    return federation, values


def timed(federation: Federation, values, seeds) -> tuple[float, dict[str, np.ndarray]]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = federation.measure(values, seeds)
    return time.perf_counter() - start, out


def floor(model, shape, models: int, batch: int, ceiling: dict[str, float], shared: int) -> dict[str, float]:
    """Return the least seconds of a local step: weights read twice and written once, gradients never; products of 3 passes."""
    size = size_of(model, shape, 10)[0]
    moved = 3 * 4 * size * models
    operations = 2 * 3 * size * models * batch - 2 * shared * models * batch  # no gradient of the input
    return {"bytes_s": moved / ceiling["copy_bytes_per_s"], "fp32_s": operations / ceiling["fp32_flop_per_s"],
            "tf32_s": operations / ceiling["tf32_flop_per_s"]}


def mlp(ceiling) -> list[dict[str, object]]:
    rows = []
    kang_mlp = Mlp((256, 256))
    for together, tf32 in ((72, True), (72, False), (288, True)):
        warm, values = kang("fashion-mnist", kang_mlp, together, 1, tf32)
        timed(warm, values, [0] * together)
        federation, values = kang("fashion-mnist", kang_mlp, together, 10, tf32)
        spent, out = timed(federation, values, [0] * together)
        least = floor(kang_mlp, (1, 28, 28), 5 * together, 64, ceiling, 784 * 256)
        rows.append({"job": "mlp", "together": together, "tf32": tf32, "s_per_evaluation": spent / together, "bar": 0.12,
                     "step_ms": 1000 * spent / 9400, "floor_ms": {k: 1000 * v for k, v in least.items()},
                     "error": [float(np.nanmin(out["test_error"])), float(np.nanmax(out["test_error"]))]})
        print(rows[-1], flush=True)
    return rows


def grid(ceiling) -> list[dict[str, object]]:
    ratios, sigmas, seeds = [0.05, 0.1, 0.125, 0.25, 0.5, 0.75, 1.0], list(np.linspace(0.01, 0.15, 15)), range(30)
    settings = [(q, s) for q in ratios for s in sigmas]

    def federation(rounds: int) -> Federation:
        training = Training(0.01, rounds=rounds, local_steps=20, batch_size=64, momentum=0.0,
                            sample_ratio=Float("sample_ratio", 0.05, 1.0))
        return Federation(Data("mnist", 40), Lr(), training, Randomization(Float("sigma", 0.0, 1.0), 1.0), GOAL, len(settings))

    rows = [(q, s, seed) for seed in seeds for q, s in settings]
    values = {"sample_ratio": [r[0] for r in rows], "sigma": [r[1] for r in rows]}
    timed(federation(2), {k: v[: len(settings)] for k, v in values.items()}, [0] * len(settings))
    spent, out = timed(federation(200), values, [r[2] for r in rows])
    found = {"job": "grid", "trainings": len(rows), "s_in_all": spent, "bar": 80,
             "error": [float(np.nanmin(out["test_error"])), float(np.nanmax(out["test_error"]))]}
    print(found, flush=True)
    return [found]


def lenet(ceiling) -> list[dict[str, object]]:
    rows = []
    for tf32, rounds in ((True, 4), (False, 1)):  # a round is like the next: the figure is for ten
        warm, values = kang("cifar10", Lenet(), 60, 1, tf32, share=0.05)
        timed(warm, values, [0] * 60)
        federation, values = kang("cifar10", Lenet(), 60, rounds, tf32)
        spent, out = timed(federation, values, [0] * 60)
        rows.append({"job": "lenet", "together": 60, "tf32": tf32, "rounds_timed": rounds, "s_per_evaluation": spent / 60 * 10 / rounds,
                     "bar": 3.5, "step_ms": 1000 * spent / (785 * rounds),
                     "error": [float(np.nanmin(out["test_error"])), float(np.nanmax(out["test_error"]))]})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="mlp,grid,lenet")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return
    ceiling = ceilings()
    print(torch.cuda.get_device_name(), {k: f"{v:.3g}" for k, v in ceiling.items()}, flush=True)
    found = [row for job in given.jobs.split(",") for row in globals()[job](ceiling)]
    if given.json:
        given.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "ceilings": ceiling,
                                          "jobs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
