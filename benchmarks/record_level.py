"""Steps that hide every record, beside plain steps and beside Opacus, in one run.

    FEDPARETO_DATA=... python benchmarks/record_level.py [--device cuda] [--json FILE]

mlp    Fashion-MNIST, MLP 784-256-256-10, batches of 64, one federation. Bars: ten times as fast as Opacus, twice as fast as its mode
       grad_sample_mode="ghost"; at most 1.8 times our own plain step.
lr     MNIST, 60 settings of logistic regression searched together, batches of 64. Bar: a setting eight times as fast as Opacus's ghost mode.

Ours are local steps as a study takes them: drawing records by chance, gathering images, and drawing noise are in the time. Opacus is
given mini-batches of 64 that lie in memory already, so that its time is that of its model, its optimizer and its noise alone. All
take turns, several times over; a ratio is the median of the turns' ratios. (Two cores, one thread each, unless --threads says more.)
Noise is drawn by a second thread while a step is taken, so that by the clock it costs nothing where a core is free. Where others use the
machine, look at the ratios of processor time too: they count both threads, and nobody else's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedpareto import Data, DpSgd, Federation, Lr, Mlp, Privacy, Training, Unprotected
from fedpareto.federation import Sgd
from fedpareto.federation.blocks import prepared, setup_of
from fedpareto.federation.clients import Clients
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.columns import given_of
from fedpareto.federation.data import load
from fedpareto.federation.state import start
from fedpareto.space import Float

BATCH, RATE, NOISE, CLIP = 64, 0.05, 1.0, 1.0
DATA = {"mlp": "fashion-mnist", "lr": "mnist"}
Work = Callable[[int], None]  # takes so many steps


def federation(name: str, device: str, local, steps: int) -> Federation:
    """Return one client with all images of a data set, and the steps it takes in a round."""
    model = {"mlp": Mlp((256, 256)), "lr": Lr()}[name]
    training = Training(RATE, rounds=1, local_steps=steps, batch_size=BATCH, device=device)
    return Federation(Data(DATA[name], clients=1), model, training, Unprotected(), (), local=local, privacy=Privacy(unit="record"))


def ours(name: str, device: str, settings: int, hidden: bool) -> Work:
    """Return what takes local steps of so many federations at once."""
    prepared_for: dict[int, tuple[Clients, object, Cohort]] = {}

    def work(steps: int) -> None:
        if steps not in prepared_for:
            local = DpSgd(Float("record_noise_multiplier", 0.5, 4.0), CLIP) if hidden else Sgd()
            problem = federation(name, device, local, steps)
            values = {"record_noise_multiplier": list(np.linspace(0.5, 4.0, settings))} if hidden else {}
            given = given_of(problem, values, settings)
            block = prepared(problem, values, given, np.arange(settings), [setup_of(problem, 0)], 1)
            prepared_for[steps] = Clients(block), start(block), Cohort(np.zeros(1, dtype=np.int64), np.ones(settings, dtype=np.int64))
        clients, state, cohort = prepared_for[steps]
        for done in clients.trained(state, [cohort], 0):
            float(done.values[0].sum())  # waits for the device

    return work


def module(name: str) -> nn.Module:
    widths = (784, 256, 256, 10) if name == "mlp" else (784, 10)
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def opacus(name: str, device: str, mode: str) -> Work:
    """Return what takes steps of one model with Opacus, on mini-batches in memory."""
    from opacus import PrivacyEngine

    held = load(Data(DATA[name], clients=1))
    x = (torch.from_numpy(held.x_train) * held.scale).to(device)
    y = torch.from_numpy(held.y_train).to(device)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=BATCH)
    model = module(name).to(device)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    loss = nn.CrossEntropyLoss()
    asked = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "poisson_sampling": False, "grad_sample_mode": mode}
    if mode == "ghost":
        model, sgd, loss, _ = PrivacyEngine().make_private(module=model, optimizer=sgd, data_loader=loader, criterion=loss, **asked)
    else:
        model, sgd, _ = PrivacyEngine().make_private(module=model, optimizer=sgd, data_loader=loader, **asked)
    place = [0]

    def work(steps: int) -> None:
        for _ in range(steps):
            at = place[0] % (len(y) - BATCH)
            place[0] += BATCH
            sgd.zero_grad()
            found = loss(model(x[at : at + BATCH]), y[at : at + BATCH])
            found.backward()
            sgd.step()
        float(next(model.parameters()).sum())

    return work


def timed(work: Work, steps: int) -> tuple[float, float]:
    """Return milliseconds a step: by the clock, and of processor time."""
    begun, worked = time.perf_counter(), time.process_time()
    work(steps)
    return 1e3 * (time.perf_counter() - begun) / steps, 1e3 * (time.process_time() - worked) / steps


Times = dict[str, list[float]]  # of each, milliseconds a step of every turn


def compared(works: dict[str, Work], steps: dict[str, int], turns: int) -> tuple[Times, Times]:
    """Return times of each: by the clock, and of processor time."""
    for name, work in works.items():
        work(steps[name])
    clock: Times = {name: [] for name in works}
    processor: Times = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            by_clock, worked = timed(work, steps[name])
            clock[name].append(by_clock)
            processor[name].append(worked)
    return clock, processor


def ratio(over: list[float], under: list[float], settings: int = 1) -> float:
    return statistics.median(settings * a / b for a, b in zip(over, under, strict=True))


def measured(device: str, turns: int) -> dict[str, object]:
    """Return times and ratios of both jobs."""
    many = 2000 if device == "cuda" else 100
    jobs = {
        "mlp": {"plain": ours("mlp", device, 1, False), "hidden": ours("mlp", device, 1, True),
                "opacus": opacus("mlp", device, "hooks"), "ghost": opacus("mlp", device, "ghost")},
        "lr": {"hidden": ours("lr", device, 60, True), "plain": ours("lr", device, 60, False), "ghost": opacus("lr", device, "ghost")},
    }
    steps = {"plain": many, "hidden": many, "opacus": max(10, many // 10), "ghost": max(50, many // 4)}
    both = {name: compared(works, steps, turns) for name, works in jobs.items()}
    clock = {name: found for name, (found, _) in both.items()}
    processor = {name: found for name, (_, found) in both.items()}
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)",
        "data": DATA["mlp"],
        "turns": turns,
        "load": [round(v, 1) for v in os.getloadavg()],  # of this machine: how many want its cores
        "milliseconds": medians(clock),
        **ratios(clock),
        "of_processor_time": {"milliseconds": medians(processor), **ratios(processor)},
    }


def medians(times: dict[str, Times]) -> dict[str, dict[str, float]]:
    return {job: {name: round(statistics.median(t), 4) for name, t in found.items()} for job, found in times.items()}


def ratios(times: dict[str, Times]) -> dict[str, float]:
    mlp, lr = times["mlp"], times["lr"]
    return {
        "ratio_to_opacus": round(ratio(mlp["opacus"], mlp["hidden"]), 2),
        "ratio_to_opacus_ghost": round(ratio(mlp["ghost"], mlp["hidden"]), 2),
        "ratio_to_opacus_ghost_searched": round(ratio(lr["ghost"], lr["hidden"], 60), 1),
        "times_plain": round(ratio(mlp["hidden"], mlp["plain"]), 2),
        "times_plain_searched": round(ratio(lr["hidden"], lr["plain"]), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--data", default=DATA["mlp"], help="for mlp; mnist has the same shape where there is no fashion-mnist")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    DATA["mlp"] = given.data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and Opacus about hooks and secure noise
        found = measured(given.device, given.turns)
    for name, value in found.items():
        print(f"{name:32s} {value}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
