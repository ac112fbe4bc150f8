"""Which clients take part and which images they see, fixed by the repeat's seed alone.

Every trial of a repeat sees the same draws (common random numbers), so that candidates are compared on the same luck.
"""

from __future__ import annotations

import math

import numpy as np

from fedpareto.federation.split import Indices
from fedpareto.noise import rng
from fedpareto.space import FloatArray


def participants(seed: int, round: int, clients: int, sampling: str = "fixed") -> Indices:
    """Return the clients in the order in which this round would ask them; who takes part are the first of them."""
    if sampling == "poisson":
        return np.argsort(_chances(seed, round, clients), kind="stable")
    return rng(seed, "participants", round).permutation(clients)


def taking_part(seed: int, round: int, clients: int, sample_ratios: FloatArray, sampling: str = "fixed") -> Indices:
    """Return how many clients take part at each ratio [R]: a cohort, or under Poisson sampling each client by its own chance."""
    if sampling == "poisson":
        return np.searchsorted(np.sort(_chances(seed, round, clients)), sample_ratios).astype(np.int64)
    return np.array([cohort(q, clients) for q in sample_ratios], dtype=np.int64)


def _chances(seed: int, round: int, clients: int) -> FloatArray:
    return rng(seed, "poisson", round).random(clients)


def cohort(sample_ratio: float, clients: int, sampling: str = "fixed") -> float:
    """Return how many clients a sample ratio asks for: a whole number, at least one; under Poisson sampling, the mean."""
    return sample_ratio * clients if sampling == "poisson" else max(1, round(sample_ratio * clients))


def epoch_batches(seed: int, round: int, client: int, size: int, epochs: int, batch_size: int) -> Indices:
    """Return the mini-batches [steps, batch] of whole passes over a client's images; −1 where the last one is short."""
    draw = rng(seed, "batches", round, client)
    batch = min(batch_size, size)
    per_epoch = math.ceil(size / batch)
    batches = np.full((epochs, per_epoch * batch), -1, dtype=np.int64)
    for epoch in range(epochs):
        batches[epoch, :size] = draw.permutation(size)
    return batches.reshape(epochs * per_epoch, batch)


def step_batches(seed: int, round: int, client: int, size: int, steps: int, batch_size: int) -> Indices:
    """Return this many mini-batches [steps, batch], without repeats until a client's images are used up."""
    draw = rng(seed, "batches", round, client)
    batch = min(batch_size, size)
    passes = [draw.permutation(size) for _ in range(math.ceil(steps * batch / size))]
    return np.concatenate(passes)[: steps * batch].reshape(steps, batch)
