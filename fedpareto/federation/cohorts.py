"""Which clients take part and which images they see, fixed by the repeat's seed alone.

Every trial of a repeat sees the same draws (common random numbers), so that candidates are
compared on the same luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedpareto.contract import cohort
from fedpareto.federation.split import Indices
from fedpareto.noise import rng
from fedpareto.space import FloatArray


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round of one repeat: in each federation, the first of an order."""

    order: Indices  # [K] clients, as this round would ask them
    count: Indices  # [R] how many of them take part in each federation

    def without(self, client: int) -> Cohort:
        """Return the cohort as it would be had this client never been there."""
        place = int(np.flatnonzero(self.order == client)[0])
        count = self.count - (self.count > place)
        return Cohort(np.append(np.delete(self.order, place), client), count)

    def joined_by(self, client: int) -> Cohort:
        """Return the cohort with this client among those who take part, in each federation."""
        place = int(np.flatnonzero(self.order == client)[0])
        order = np.concatenate([[client], np.delete(self.order, place)])
        return replace(self, order=order, count=self.count + (self.count <= place))


def drawn(seed: int, round: int, clients: int, ratios: FloatArray, sampling: str) -> Cohort:
    """Draw who takes part in a round at each sample ratio [R]."""
    order = participants(seed, round, clients, sampling)
    return Cohort(order, taking_part(seed, round, clients, ratios, sampling))


def participants(seed: int, round: int, clients: int, sampling: str = "fixed") -> Indices:
    """Return the clients [K] in the order in which this round would ask them."""
    if sampling == "poisson":
        return np.argsort(_chances(seed, round, clients), kind="stable")
    return rng(seed, "participants", round).permutation(clients)


def taking_part(
    seed: int, round: int, clients: int, sample_ratios: FloatArray, sampling: str = "fixed"
) -> Indices:
    """Return how many clients take part at each ratio [R]; under Poisson sampling, by chance."""
    if sampling == "poisson":
        chances = np.sort(_chances(seed, round, clients))
        return np.searchsorted(chances, sample_ratios).astype(np.int64)
    return np.array([cohort(q, clients) for q in sample_ratios], dtype=np.int64)


def _chances(seed: int, round: int, clients: int) -> FloatArray:
    """Return a uniform number [K] for each client, below which a sample ratio includes it."""
    return rng(seed, "poisson", round).random(clients)


def epoch_batches(draw: np.random.Generator, size: int, epochs: int, batch_size: int) -> Indices:
    """Return the mini-batches [steps, batch] of whole passes over a client's images.

    A place is −1 where the last mini-batch of a pass is short.
    """
    batch = min(batch_size, size)
    if epochs == 1 and batch == size:
        return draw.permutation(size)[None]
    per_epoch = math.ceil(size / batch)
    batches = np.full((epochs, per_epoch * batch), -1, dtype=np.int64)
    for epoch in range(epochs):
        batches[epoch, :size] = draw.permutation(size)
    return batches.reshape(epochs * per_epoch, batch)


def step_batches(draw: np.random.Generator, size: int, steps: int, batch_size: int) -> Indices:
    """Return mini-batches [steps, batch], without repeats until a client's images are used up."""
    batch = min(batch_size, size)
    passes = [draw.permutation(size) for _ in range(math.ceil(steps * batch / size))]
    return np.concatenate(passes)[: steps * batch].reshape(steps, batch)


def chance_batches(
    seed: int, round: int, client: int, size: int, steps: int, chance: float
) -> Indices:
    """Return mini-batches [steps, batch] that each image is in by its own chance, −1 padded.

    Those of fewer steps are the first of them.
    """
    draw = rng(seed, "batches", round, client)
    # of so many, any are as likely as any others
    counts = rng(seed, "batch sizes", round, client).binomial(size, chance, steps)
    batches = np.full((steps, counts.max()), -1, dtype=np.int64)
    for row, count in zip(batches, counts, strict=True):
        row[:count] = draw.choice(size, count, replace=False, shuffle=False)
    return batches
