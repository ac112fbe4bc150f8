"""Measure the seconds of the cost model on this machine: of local steps and of encryption."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.crypto import Codec, clip_of, quantise
from fedpareto.crypto.tenseal_bytes import SLOTS
from fedpareto.federation.blocks import slots
from fedpareto.federation.cost import DEGREE_2, Cost
from fedpareto.federation.data import load
from fedpareto.federation.models import Model
from fedpareto.federation.problem import Federation
from fedpareto.federation.sizes import size_of
from fedpareto.mechanisms import BatchCrypt, links_of
from fedpareto.mechanisms.batchcrypt import client_of
from fedpareto.settings import fixed, largest, least
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import nn


def calibrate(problem: Federation, seconds: float = 1.0) -> Cost:
    """Return the cost model with its seconds measured on one thread of this machine.

    A step takes step_seconds plus parameter_seconds for each parameter and image: fitted to steps
    of the narrowest and the widest model of the study, on small and on whole mini-batches. Rates of
    transfer stay as the study has them.
    """
    models = list(dict.fromkeys(fixed(problem.model, choose) for choose in (least, largest)))
    batches = problem.training.batch_size
    sizes = sorted({max(1, least(batches) // 8), largest(batches)})
    share = seconds / (len(models) * len(sizes))
    cases = [
        (_work(problem, model, size), _step_seconds(problem, model, size, share))
        for model in models
        for size in sizes
    ]
    fixed_part, slope = _fit(cases)
    cost = replace(problem.cost, step_seconds=fixed_part, parameter_seconds=slope)
    for link in links_of(problem.mechanism):
        if isinstance(link, BatchCrypt):
            took = encryption_seconds(link, problem, seconds)
            if link.degree == 2 and link.scheme == "paillier":  # a cost model is one of degree 1
                took = {n: float(f"{v / DEGREE_2.get(n, 1.0):.4g}") for n, v in took.items()}
            return replace(cost, **took)  # type: ignore[arg-type]
    return cost


def encryption_seconds(
    mechanism: BatchCrypt, problem: Federation, seconds: float = 1.0
) -> dict[str, float]:
    """Return the seconds of encrypting, decrypting and adding a ciphertext and of packing a value.

    Measured on one core, on vectors of a few ciphertexts as the mechanism encrypts them, at the
    least batch of the study.
    """
    batch = int(fixed(mechanism, least).encryption_batch)  # type: ignore[arg-type]
    codec = mechanism.codec(batch, slots(problem, ()))
    client = client_of(mechanism.scheme, mechanism.key_bits, codec)
    length = 4 * SLOTS
    if mechanism.scheme == "paillier":
        client = replace(client, workers=1)
        length = 64 * batch
    draw = np.random.default_rng(0)
    update = draw.normal(size=length)
    uniform = draw.random(length)
    numbers = quantise(update, float(clip_of(update, codec.magnitude)), codec.magnitude, uniform)
    one = client.encrypt(numbers)
    other = client.encrypt(numbers)
    share = seconds / 4
    count = codec.count(length)
    # packing one vector is too fast to time well
    many = np.tile(update, 10)
    draws = np.tile(uniform, 10)
    packing = median_seconds(lambda: _packed(codec, update, uniform), share)
    encrypting = median_seconds(lambda: client.encrypt(numbers), share)
    decrypting = median_seconds(lambda: client.decrypt(one), share)
    adding = median_seconds(lambda: client.server.add(one, other), share)
    packing_many = median_seconds(lambda: _packed(codec, many, draws), share)
    took = {
        "encrypt_seconds": (encrypting - packing) / count,
        "decrypt_seconds": decrypting / count,
        "add_seconds": adding / count,
        "pack_seconds": packing_many / len(many),
    }
    return {name: float(f"{max(v, 0.0):.4g}") for name, v in took.items()}


def _packed(codec: Any, update: FloatArray, uniform: FloatArray) -> None:
    """Do what comes before encryption: quantise an update, and pack it where the codec packs."""
    numbers = quantise(update, float(clip_of(update, codec.magnitude)), codec.magnitude, uniform)
    if isinstance(codec, Codec):
        codec.pack(numbers)


def _work(problem: Federation, model: Model, size: int) -> float:
    """Return the work of one step: parameters times images."""
    data = load(problem.data)
    parameters, _ = size_of(model, data.shape, data.classes)  # type: ignore[arg-type]
    return float(parameters * size)


def _fit(cases: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope of seconds over work, neither below 0, by relative errors."""
    from scipy.optimize import nnls

    work, took = np.array(cases).T
    solution, _ = nnls(np.stack([1 / took, work / took], axis=1), np.ones(len(took)))
    return float(f"{solution[0]:.4g}"), float(f"{solution[1]:.4g}")


def _step_seconds(problem: Federation, model: Model, size: int, share: float) -> float:
    """Return the median seconds of a plain step of SGD, as one client takes it."""
    import torch

    from fedpareto.federation.losses import loss_of
    from fedpareto.federation.setup import seeded

    data = load(problem.data)
    module: nn.Module = seeded(lambda: model.build(data.shape, data.classes), 0)
    rows = np.arange(size) % len(data.y_train)
    x = torch.from_numpy(data.x_train[rows]) * data.scale + data.shift
    y = torch.from_numpy(data.y_train[rows])
    sgd = torch.optim.SGD(module.parameters(), lr=1e-6, momentum=largest(problem.training.momentum))

    loss = loss_of(problem.training.loss)

    def step() -> None:
        sgd.zero_grad()
        loss.each(module(x).t()[None], y).mean().backward()  # type: ignore[no-untyped-call]
        sgd.step()

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return median_seconds(step, share)
    finally:
        torch.set_num_threads(before)


def median_seconds(work: Callable[[], Any], share: float) -> float:
    """Return the median CPU seconds of a piece of work, repeated for about `share` seconds.

    CPU time and the median are hardly inflated on a busy machine.
    """
    for _ in range(3):
        work()
    times: list[float] = []
    while sum(times) < share or len(times) < 5:
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return float(np.median(times))
