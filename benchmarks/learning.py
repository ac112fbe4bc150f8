"""What the models learn at full data, without protection: known results, to see that the federation is right.

    FEDPARETO_DATA=... python benchmarks/learning.py [--jobs lr,lenet5,mlp,lenet] [--json FILE]

Mean test accuracy of three seeds, beside the least it must be: logistic regression and LeNet-5 on MNIST with ten IID clients in at
most 50 rounds, the MLP on Fashion-MNIST and LeNet on CIFAR-10 in Kang 2023's federation (5 clients, 10 rounds × 5 epochs, batch 64).
lenet takes an hour on a CPU and a minute on a GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from fedpareto import Data, Federation, Mlp, Objective, Randomization, Training
from fedpareto.federation.models import Lenet, Lenet5, Lr

BARE = Randomization(0.0, 1e9)
JOBS = {
    "lr": (Data("mnist", 10), Lr(), Training(0.1, rounds=20, local_epochs=1, batch_size=64, evaluate_every=20), 0.90),
    "lenet5": (Data("mnist", 10), Lenet5(), Training(0.02, rounds=10, local_epochs=1, batch_size=32, momentum=0.9, evaluate_every=10),
               0.985),
    "mlp": (Data("fashion-mnist", 5), Mlp((256, 256)), Training(0.1, rounds=10, local_epochs=5, batch_size=64, evaluate_every=10), 0.88),
    "lenet": (Data("cifar10", 5), Lenet(), Training(0.05, rounds=10, local_epochs=5, batch_size=64, evaluate_every=10), 0.62),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="lr,lenet5,mlp")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = {}
    for name in given.jobs.split(","):
        data, model, training, least = JOBS[name]
        start = time.perf_counter()
        federation = Federation(data, model, training, BARE, (Objective("test_error"),), 1)
        accuracy = 1 - federation.measure({}, list(range(given.seeds)))["test_error"]
        rows[name] = {"accuracy": float(np.mean(accuracy)), "each": accuracy.tolist(), "at_least": least, "rounds": training.rounds,
                      "seconds": round(time.perf_counter() - start, 1)}
        print(f"{name:7s} {rows[name]['accuracy']:.4f} (at least {least}), {training.rounds} rounds, seeds "
              f"{[round(a, 4) for a in rows[name]['each']]}, {rows[name]['seconds']} s", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
