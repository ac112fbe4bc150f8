"""Which clients take part and which images they see, fixed by the repeat's seed alone.

Every trial of a repeat sees the same draws (common random numbers), so that candidates are compared on the same luck.
"""

from __future__ import annotations

import math

import numpy as np

from fedpareto.federation.split import Indices
from fedpareto.noise import rng


def participants(seed: int, round: int, clients: int) -> Indices:
    """Return the clients in the order in which this round would ask them; a cohort of m is the first m."""
    return rng(seed, "participants", round).permutation(clients)


def cohort(sample_ratio: float, clients: int) -> int:
    """Return how many clients a sample ratio asks for: at least one."""
    return max(1, round(sample_ratio * clients))


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
