"""The CUDA path against the CPU's: `pytest -m gpu` on a machine with a CUDA device."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from fedpareto import (
    Choice,
    Data,
    Federation,
    Float,
    Integer,
    Mlp,
    Objective,
    Randomization,
    Training,
)
from fedpareto.federation.models import Cnn, Lr

pytestmark = pytest.mark.gpu


def federation(model, device: str, momentum, block: int = 4, **searched) -> Federation:
    given = {"local_epochs": 1, "batch_size": 16} | searched
    training = Training(Float("learning_rate", 1e-3, 1.0), rounds=3, momentum=momentum, sample_ratio=0.5, device=device, tf32=False, **given)
    return Federation(Data("digits", 6), model, training, Randomization(0.0, 1.0), (Objective("test_error"),), block)


RATES = {"learning_rate": [0.01, 0.02, 0.03, 0.05] * 2}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("model", [Lr(), Mlp((32, 16)), Cnn()], ids=["lr", "mlp", "cnn"])
def test_a_replayed_graph_trains_as_the_cpu_does(model, momentum):
    seeds = [1] * 4 + [2] * 4
    cpu, cuda = (federation(model, device, momentum).measure(RATES, seeds) for device in ("cpu", "cuda"))
    assert cuda["test_loss"] == pytest.approx(cpu["test_loss"], abs=1e-5)


@pytest.mark.parametrize("batch", [Integer("batch_size", 5, 40), Choice("batch_size", (8, 30, 16, 40))], ids=["range", "choice"])
@pytest.mark.parametrize("model", [Lr(), Cnn()], ids=["lr", "cnn"])
def test_searched_batches_epochs_and_momentum_train_as_on_the_cpu(model, batch):
    searched = {"batch_size": batch, "local_epochs": Integer("local_epochs", 1, 3)}
    values = RATES | {"batch_size": [8, 30, 16, 40] * 2, "local_epochs": [3, 1, 2, 1] * 2, "momentum": [0.0, 0.5, 0.9, 0.3] * 2}
    cpu, cuda = (federation(model, device, Float("momentum", 0.0, 0.9), **searched).measure(values, [1] * 4 + [2] * 4)
                 for device in ("cpu", "cuda"))
    assert cuda["test_loss"] == pytest.approx(cpu["test_loss"], abs=1e-5)
    assert list(cuda["training_seconds"]) == pytest.approx(list(cpu["training_seconds"]))


def test_a_row_does_not_depend_on_its_neighbours():
    whole = federation(Mlp((32,)), "cuda", 0.0).measure(RATES, [1] * 4 + [2] * 4)
    for i, seed in enumerate([1] * 4 + [2] * 4):
        alone = federation(Mlp((32,)), "cuda", 0.0).measure({"learning_rate": [RATES["learning_rate"][i]]}, [seed])
        assert np.abs(alone["test_error"][0] - whole["test_error"][i]) <= 1e-4


LOSES = """
from dataclasses import dataclass
import torch
from fedpareto import Float, Objective, Space
from fedpareto.errors import DeviceLost
from fedpareto.evaluate import results_of
from fedpareto.trials import Trial

@dataclass(frozen=True)
class Loses:
    block: int = 8
    device: str = "cuda"
    space = Space((Float("x", 0.0, 1.0),))
    objectives = (Objective("y"),)
    failures = {}

    def measure(self, values, seeds):
        there = torch.zeros(3, device="cuda")
        return {"y": there[torch.tensor([10**6], device="cuda")].cpu().numpy()}

try:
    results_of(Loses(), [(Trial(n, 0, (0.5,), {"x": 0.5}), 0) for n in (4, 5)], 1)
except DeviceLost as error:
    print(error)
"""


def test_a_device_that_is_lost_ends_the_run_and_makes_no_rows():
    done = subprocess.run([sys.executable, "-c", LOSES], capture_output=True, text=True)
    assert "trials 4 to 5: the GPU must answer after a training that failed, found" in done.stdout, done.stderr[-2000:]
    assert torch.ones(3, device="cuda").sum().item() == 3, "another process still has it"
