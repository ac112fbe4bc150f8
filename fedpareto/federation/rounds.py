"""The rounds of many federations at once, all of one repeat: same split, same clients, same mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedpareto.federation.data import Dataset
from fedpareto.federation.draws import cohort, epoch_batches, participants, step_batches
from fedpareto.federation.split import Indices, Split, iid
from fedpareto.federation.train import Params, Stack, local_training, losses, seeded, threads_for, unflatten
from fedpareto.mechanisms import Mechanism, Upload
from fedpareto.noise import derive, stream
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from fedpareto.federation.models import Model
    from fedpareto.federation.training import Training

DIVERGED = 1e4  # an update this many times longer than the model it started from


@dataclass(frozen=True)
class Trace:
    """What R federations showed after every round."""

    error: FloatArray  # [R,T] share of test images classified wrongly
    loss: FloatArray  # [R,T] mean cross-entropy on the test images
    worst_error: FloatArray  # [R,T] the same for the client whose share of the test images fares worst
    worst_loss: FloatArray  # [R,T]
    upload_bytes: FloatArray  # [R,T] sent by all clients so far
    diverged: FloatArray  # [R] round in which training diverged, nan where it did not
    parameters: int


@dataclass(frozen=True)
class Setup:
    """What all federations of a repeat share."""

    data: Dataset
    clients: int
    model: Model
    training: Training
    mechanism: Mechanism
    seed: int

    def train_split(self) -> Split:
        return iid(len(self.data.y_train), self.clients, derive(self.seed, "train"))

    def test_split(self) -> Split:
        return iid(len(self.data.y_test), self.clients, derive(self.seed, "test"))

    def build(self) -> Stack:
        return Stack(seeded(lambda: self.model.build(self.data.shape, self.data.classes), derive(self.seed, "model")))


def train(setup: Setup, values: Mapping[str, Tensor], slots: int) -> Trace:
    """Train R federations whose settings are values, name → [R]; slots is the largest cohort there can be."""
    stack = setup.build()
    with threads_for(3 * stack.size * len(values["rounds"]) * slots * setup.training.batch_size):
        return _train(setup, stack, values, slots)


def _train(setup: Setup, stack: Stack, values: Mapping[str, Tensor], slots: int) -> Trace:
    split = setup.train_split()
    R = len(values["rounds"])
    inputs, labels = _tensors(setup.data.x_train, setup.data), torch.from_numpy(setup.data.y_train)
    judge = Judge.of(setup)
    size = torch.tensor([cohort(q, setup.clients) for q in values["sample_ratio"].tolist()])
    start = [p.expand(R, *p.shape).clone() for p in stack.initial]
    noise = stream(setup.seed, "noise")
    rows: list[tuple[Tensor, ...]] = []
    diverged = torch.full((R,), torch.nan)
    sent = torch.zeros(R, dtype=torch.float64)
    for t in range(int(values["rounds"].max())):
        who = participants(setup.seed, t, setup.clients)[:slots]
        batches = _batches(setup, split, who, t, inputs, labels)
        update = local_training(stack, start, batches, values["learning_rate"], setup.training.momentum, len(who))
        takes_part = torch.arange(len(who)) < size[:, None]  # [R,M]
        diverged = torch.where(diverged.isnan() & _exploded(update, start, takes_part), t + 1.0, diverged)
        upload = setup.mechanism.protect(_plain(update), values, noise)
        weights = takes_part * _weights(setup, split, who)
        mean = torch.einsum("rk,rkp->rp", weights / weights.sum(1, keepdim=True), upload.values)
        start = [s + u for s, u in zip(start, unflatten(mean, stack.initial), strict=True)]
        sent = sent + (upload.count.double() * upload.bits / 8 * takes_part).sum(1)
        rows.append((*judge(stack, start), sent))
    error, loss, worst_error, worst_loss, sent_by = (np.stack([np.asarray(r[i]) for r in rows], 1) for i in range(5))
    return Trace(error, loss, worst_error, worst_loss, sent_by, np.asarray(diverged), stack.size)


def _tensors(x: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], data: Dataset) -> Tensor:
    return torch.from_numpy(x).float() * data.scale


def _batches(setup: Setup, split: Split, who: Indices, t: int, inputs: Tensor,
             labels: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield each local step's inputs [M,B,...], labels [M,B] and mask [M,B]."""
    drawn = [_drawn(setup, split, int(k), t) for k in who]
    steps, width = max(len(d) for d in drawn), max(d.shape[1] for d in drawn)
    picks = np.full((steps, len(who), width), -1, dtype=np.int64)
    for m, d in enumerate(drawn):
        picks[: len(d), m, : d.shape[1]] = d
    where = torch.from_numpy(picks)
    safe = where.clamp_min(0)
    for i, w in zip(safe, where, strict=True):
        yield inputs[i], labels[i], (w >= 0).float()


def _drawn(setup: Setup, split: Split, client: int, t: int) -> Indices:
    """Return one client's mini-batches [steps, batch] as image numbers, −1 where padded."""
    mine, training = split.of(client), setup.training
    if training.local_steps:
        picks = step_batches(setup.seed, t, client, len(mine), training.local_steps, training.batch_size)
    else:
        picks = epoch_batches(setup.seed, t, client, len(mine), training.local_epochs, training.batch_size)
    return np.where(picks >= 0, mine[picks], -1)


def _plain(update: Tensor) -> Upload:
    """Return the unprotected upload: every parameter, as a 32-bit float."""
    R, M, P = update.shape
    one = torch.ones(R, M)
    return Upload(update, one * P, one * 32, one * 0)


def _weights(setup: Setup, split: Split, who: Indices) -> Tensor:
    if setup.training.weighting == "uniform":
        return torch.ones(len(who))
    return torch.from_numpy(split.sizes[who]).float()


def _exploded(update: Tensor, start: Params, takes_part: Tensor) -> Tensor:
    """Say for which federations [R] a client's update is not finite or dwarfs the model it started from."""
    model = torch.cat([s.flatten(1) for s in start], dim=1).norm(dim=1)  # [R]
    length = update.norm(dim=2)  # [R,M]
    wild = ~(length <= DIVERGED * (1 + model[:, None]))
    return torch.any(wild & takes_part, dim=1)


@dataclass(frozen=True)
class Judge:
    """The test images, and which client's share each belongs to."""

    inputs: Tensor
    labels: Tensor
    owner: Tensor  # [n] client of each test image
    shares: Tensor  # [K] images per client

    @classmethod
    def of(cls, setup: Setup) -> Judge:
        split, data = setup.test_split(), setup.data
        owner = np.empty(len(data.y_test), dtype=np.int64)
        owner[split.order] = np.repeat(np.arange(setup.clients), split.sizes)
        return cls(_tensors(data.x_test, data), torch.from_numpy(data.y_test), torch.from_numpy(owner),
                   torch.from_numpy(split.sizes).float())

    @torch.no_grad()
    def __call__(self, stack: Stack, params: Params) -> tuple[Tensor, ...]:
        """Return test error, test loss, and both for the worst client, each [R]."""
        scores = stack.over_federations(params, self.inputs)
        wrong = (scores.argmax(2) != self.labels).float()
        wrong = wrong.masked_fill(scores.isnan().any(2), torch.nan)
        loss = losses(scores, self.labels)
        return wrong.mean(1), loss.mean(1), self._worst(wrong), self._worst(loss)

    def _worst(self, each: Tensor) -> Tensor:
        """Return the largest mean over a client's share, [R], from figures per image [R,n]."""
        sums = torch.zeros(len(each), len(self.shares)).index_add_(1, self.owner, each)
        return (sums / self.shares)[:, self.shares > 0].amax(1)
