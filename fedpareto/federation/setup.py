"""What is trained in one repeat: data and their split, the starting model, the mini-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from fedpareto.contract import by_chance, chance
from fedpareto.federation.cohorts import chance_batches, epoch_batches, step_batches
from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, Dataset, load
from fedpareto.federation.facts import Facts
from fedpareto.federation.local import ClipsRecords, LocalStep, Sgd
from fedpareto.federation.servers import Average, ServerStep
from fedpareto.federation.split import FIXED_SPLIT, Indices, Split, deal, dealt
from fedpareto.mechanisms import Mechanism
from fedpareto.noise import Noise, SystemNoise, derive, rng
from fedpareto.settings import largest
from fedpareto.space import Integer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedpareto.federation.models import Model
    from fedpareto.federation.problem import Federation
    from fedpareto.federation.training import Training, Work


@dataclass(frozen=True)
class Held:
    """What there is of the data where a client is deployed: its own records, and no others."""

    data: Dataset
    client: int


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
    # of the user's own, as package.module:function, with @worst and such behind it
    measures: tuple[str, ...] = ()
    along: bool = False  # whether these are measured after every round, and not only at the end
    # whether data are private: then their split is the same in every training, since a client is
    # hidden only as one client, and nothing is told but what noise hides
    private: bool = False
    kept: Facts | None = None  # what stands for the data where rows are only shown
    local_loss: bool = False  # whether clients judge what they send on what they hold
    held: Held | None = None  # where deployed: the records that are here
    # where deployed: a fresh wide seed of the system's, from which mini-batches are drawn; noise is
    # then drawn from the system itself
    secret: int | None = None
    # whether what clients draw in a round is drawn at once, which takes less time: then a client's
    # draws depend on who else takes part
    together: bool = False

    @property
    def images(self) -> int:
        """How many training examples there are."""
        return self.kept.images if self.kept else len(self.data.y_train)

    @property
    def data(self) -> Dataset:
        return self.held.data if self.held else load(self.where)

    @property
    def clients(self) -> int:
        return self.where.clients

    @property
    def split_seed(self) -> int:
        """The seed by which the data are dealt."""
        fixed = self.private or isinstance(self.local, ClipsRecords)
        return FIXED_SPLIT if fixed else self.seed

    def train_split(self) -> Split:
        """Deal the training images to the clients."""
        return self._dealt()[0]

    def test_split(self) -> Split:
        """Deal the test images to the clients, in the proportions of their training images."""
        data = self.data
        if self.held:
            return _all_of(len(data.y_test), self.held.client, self.clients)
        return dealt(data.y_test, self.where, self._dealt()[1], data.sites_test)

    def _dealt(self) -> tuple[Split, int]:
        """Return who holds which training images, and the seed by which they were dealt."""
        data = self.data
        if self.held:
            return _all_of(len(data.y_train), self.held.client, self.clients), self.split_seed
        return deal(data.y_train, self.where, self.split_seed, data.sites_train)

    def module(self, model: Model) -> nn.Module:
        """Return a model as it starts in this repeat."""
        data = self.data
        return seeded(lambda: model.build(data.shape, data.classes), derive(self.seed, "model"))

    def initial(self, model: Model) -> list[Tensor]:
        """Return the parameters with which a model starts in this repeat."""
        return [p.detach() for p in self.module(model).parameters()]

    @cached_property
    def draws_records_by_chance(self) -> bool:
        """Whether each image is in a mini-batch by a chance of its own."""
        return isinstance(self.local, ClipsRecords) and by_chance(self.local.batches)

    def draw(self, t: int, client: int) -> np.random.Generator:
        """Return what a client's mini-batches of a round are drawn from."""
        if self.together:
            return self._luck
        seed = self.seed if self.secret is None else self.secret
        return rng(seed, "batches", t, client)

    @cached_property
    def _luck(self) -> np.random.Generator:
        """What all mini-batches are drawn from, one after another, where that is together."""
        return rng(self.seed, "batches")

    def noise(self, t: int, clients: Indices, device: str, *path: str) -> Noise:
        """Return the noise of these clients in a round; path names a stream beside the usual.

        Where deployed it is the system's, which draws in the same words.
        """
        if self.secret is not None:
            return cast(Noise, SystemNoise(len(clients), device))
        seed = derive(self.seed, *path) if path else self.seed
        noise = Noise(seed, t, clients.tolist(), device)
        return replace(noise, together=True) if self.together else noise

    def batches(self, split: Split, client: int, t: int) -> Indices:
        """Return a client's mini-batches [steps, batch] of a round as image numbers, −1 padded."""
        mine = split.of(client)
        return self.batches_of(mine, client, t, len(mine))

    def batches_of(
        self, mine: Indices, client: int, t: int, dealt: int, work: Work | None = None
    ) -> Indices:
        """Return mini-batches [steps, batch] of these images of a client, −1 where padded.

        dealt is how many the client was dealt, which is known, unlike which of them there are.
        Those of less work, in batches of the same size, are the first of them. Without work, it is
        that of the training.
        """
        work = work or self.training.work
        size = work.batch_size
        if self.draws_records_by_chance:
            share = float(chance(size, dealt))
            steps, _ = work.of(dealt)
            seed = self.seed if self.secret is None else self.secret
            picks = chance_batches(seed, t, client, len(mine), steps, share)
            return np.where(picks >= 0, mine[picks], -1)
        if work.steps:
            return mine[step_batches(self.draw(t, client), len(mine), work.steps, size)]
        if self.together and work.epochs == 1 and len(mine) <= size:  # in whatever order
            return mine[None]
        picks = epoch_batches(self.draw(t, client), len(mine), work.epochs, size)
        if len(mine) <= size:  # nothing is padded
            return mine[picks]
        return np.where(picks >= 0, mine[picks], -1)


def _all_of(records: int, client: int, clients: int) -> Split:
    """Return the split in which one client holds all records that are here."""
    return Split.by_owner(np.full(records, client), clients)


def fills_up(held: Federation | Setup) -> bool:
    """Say whether mini-batches of unlike sizes train together, filled up to the same size.

    Sizes of a range do. Choices train each by itself, and so do mini-batches that hide records:
    these are of all sizes already.
    """
    ranged = isinstance(held.training.batch_size, Integer)
    return ranged and not isinstance(held.local, ClipsRecords)


def room(held: Federation | Setup, batch_size: int) -> int:
    """Return to how many places mini-batches of this size are filled up: a power of two, or none.

    That follows from the size alone, so that a row does not depend on its neighbours.
    """
    if not fills_up(held):
        return batch_size
    return min(1 << (batch_size - 1).bit_length(), int(largest(held.training.batch_size)))


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module with its own random numbers; the global generator stays as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        return build()
