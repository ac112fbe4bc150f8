"""Uploads of the first round, of clients that hold few images, and sums of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpareto.audit.base import Points
from fedpareto.audit.standin import of_one_image
from fedpareto.federation import Observer, blocks
from fedpareto.federation.block import Block
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.losses import Loss
from fedpareto.federation.run import run
from fedpareto.federation.split import Indices
from fedpareto.federation.steps import Images
from fedpareto.mechanisms import Upload

VICTIM = 0  # the client that is attacked; data are dealt anew for each


@dataclass(frozen=True)
class Sent:
    """What is seen of S clients of each of R points, and what they hold."""

    module: nn.Module
    loss: Loss
    models: Tensor  # [S,P] that training started from
    updates: Tensor  # [S,R,P] uploads, or sums that they are in
    held: NDArray[np.int64]  # [S,n] places of the training images
    x: Tensor  # [S,n,...]
    y: Tensor  # [S,n]
    mean: Tensor  # [...] the mean training image, which needs no upload
    span: tuple[float, float]  # the least and the largest input
    records: Images
    steps: tuple[int, ...]  # [R] that each client takes
    rate: tuple[float, ...]  # [R] of all of them together
    bias: slice | None  # where the last layer's bias lies among the parameters

    def at(self, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return training images and their labels."""
        where = torch.from_numpy(places).to(self.models.device)
        return self.records.at(where), self.records.y[where]

    @property
    def tells_labels(self) -> bool:
        """Whether an upload tells a label."""
        return self.bias is not None and not self.y.is_floating_point()

    def labels(self) -> Tensor:
        """Return the label that an upload tells, [S,R]: that of the bias which rose most.

        Where it tells none, the label is taken to be known.
        """
        if self.bias is None or not self.tells_labels:
            return self.y[:, :1].expand(-1, self.updates.shape[1])
        return self.updates[:, :, self.bias].argmax(2)


class Few(Observer):
    """Lets the victim come, gives clients few images, and keeps what is seen of the first round."""

    def __init__(self, images: int, block: Block, view: str) -> None:
        self.images, self.view = images, view
        self.sent = torch.zeros_like(block.initial)

    def cohort(self, repeat: int, round: int, cohort: Cohort) -> Cohort:
        order = np.append(VICTIM, cohort.order[cohort.order != VICTIM])
        return Cohort(order, np.maximum(cohort.count, 1))

    def records(self, repeat: int, client: int, records: Indices) -> Indices:
        return records[: self.images]

    def uploads(
        self, repeat: int, round: int, clients: Indices, takes_part: Tensor, upload: Upload
    ) -> None:
        for m in np.flatnonzero(clients == VICTIM):
            if self.view == "server":
                self.sent[repeat] = upload.values[:, m]

    def sums(self, round: int, sums: Tensor, cohorts: Sequence[Cohort]) -> None:
        if self.view == "secagg":
            self.sent = sums.clone()

    def models(self, round: int, models: Tensor) -> None:
        """Look away: what a model moved by is a sum."""


def sent(points: Points, seeds: Sequence[int], images: int, view: str) -> Sent:
    """Train the first round of every point with each seed, and return what is seen of a victim."""
    problem = replace(points.problem, objectives=())
    given = dict(points.given) | {"rounds": np.ones(len(points))}
    repeats = [blocks.setup_of(problem, seed) for seed in seeds]
    room = min(blocks.slots(problem, seeds) + 1, problem.data.clients)
    rows = np.arange(len(points))
    block = blocks.prepared(problem, points.values, given, rows, repeats, room)
    block = replace(block, judge=of_one_image(block.judge, len(seeds)))
    watch = Few(images, block, view)
    run(block, watch)
    held = np.stack([np.resize(split.of(VICTIM)[:images], images) for split in block.splits])
    where = torch.from_numpy(held).to(block.device)
    every = block.images
    seen = every.at(torch.arange(min(len(every.y), 5000), device=block.device))
    module = block.stack.module
    return Sent(
        module,
        block.recipe.loss,
        block.initial[:, 0],
        watch.sent,
        held,
        every.at(where),
        every.y[where],
        seen.mean(0),
        (float(seen.min()), float(seen.max())),
        every,
        *_local(block, images),
        _last_bias(module, repeats[0].data.classes),
    )


def _local(block: Block, images: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return how many steps a client with so few images takes in each row, and how far they go."""
    steps = [work.of(images)[0] for work in block.works]
    each = block.settings["learning_rate"].tolist()
    kept = block.settings.get("momentum", torch.zeros(len(each))).tolist()
    return tuple(steps), tuple(n * r / (1 - m) for n, r, m in zip(steps, each, kept, strict=True))


def _last_bias(module: nn.Module, classes: int) -> slice | None:
    """Return where a bias for each class lies at the end of the parameters, if there is one."""
    last = list(module.parameters())[-1]
    size = sum(p.numel() for p in module.parameters())
    return slice(size - classes, size) if last.shape == (classes,) else None
