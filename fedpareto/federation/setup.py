"""What is trained in one repeat: data and their split, the starting model, the mini-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.federation.cohorts import epoch_batches, step_batches
from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, Dataset, load
from fedpareto.federation.local import LocalStep, Sgd
from fedpareto.federation.servers import Average, ServerStep
from fedpareto.federation.split import SPLITS, Indices, Split, deal
from fedpareto.mechanisms import Mechanism
from fedpareto.noise import derive

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedpareto.federation.models import Model
    from fedpareto.federation.training import Training, Work


FIXED_SPLIT = 0  # the seed of the split of private data, the same in every training


@dataclass(frozen=True)
class Setup:
    """What all federations of one repeat share."""

    where: Data
    model: Model  # the widest that is trained
    training: Training
    mechanism: Mechanism
    seed: int
    cost: Cost = Cost()
    local: LocalStep = field(default_factory=Sgd)
    server: ServerStep = field(default_factory=Average)
    measures: tuple[str, ...] = ()  # of the user's own, package.module:function, also with @worst
    along: bool = False  # whether these are measured after every round, and not only at the end
    # whether data are private: then their split is the same in every training, since a client is
    # hidden only as one client, and nothing is told but what noise hides
    private: bool = False

    @property
    def data(self) -> Dataset:
        return load(self.where)

    @property
    def clients(self) -> int:
        return self.where.clients

    @property
    def split_seed(self) -> int:
        """The seed by which the data are dealt."""
        return FIXED_SPLIT if self.private else self.seed

    def train_split(self) -> Split:
        """Deal the training images to the clients."""
        return deal(self.data.y_train, self.where, self.split_seed)[0]

    def test_split(self) -> Split:
        """Deal the test images to the clients, in the proportions of their training images."""
        _, drawn = deal(self.data.y_train, self.where, self.split_seed)
        return SPLITS[self.where.split](self.data.y_test, self.where, drawn)

    def module(self, model: Model) -> nn.Module:
        """Return a model as it starts in this repeat."""
        data = self.data
        return seeded(lambda: model.build(data.shape, data.classes), derive(self.seed, "model"))

    def initial(self, model: Model) -> list[Tensor]:
        """Return the parameters with which a model starts in this repeat."""
        return [p.detach() for p in self.module(model).parameters()]

    def batches(self, split: Split, client: int, t: int) -> Indices:
        """Return a client's mini-batches [steps, batch] of a round as image numbers, −1 padded."""
        return self.batches_of(split.of(client), client, t)

    def batches_of(self, mine: Indices, client: int, t: int, work: Work | None = None) -> Indices:
        """Return mini-batches [steps, batch] of these images of a client, −1 where padded.

        Those of less work, in batches of the same size, are the first of them. Without work, it is
        that of the training.
        """
        work = work or self.training.work
        if work.steps:
            return mine[step_batches(self.seed, t, client, len(mine), work.steps, work.batch_size)]
        picks = epoch_batches(self.seed, t, client, len(mine), work.epochs, work.batch_size)
        return np.where(picks >= 0, mine[picks], -1)


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module with its own random numbers; the global generator stays as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        return build()
