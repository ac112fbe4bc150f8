"""What rounds cost where that follows from the settings: counted as in a training, without one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.contract import cohort
from fedpareto.federation.columns import settings_of
from fedpareto.federation.data import Data
from fedpareto.federation.local import ClipsRecords
from fedpareto.federation.split import fixed_sizes, iid
from fedpareto.federation.training import Training
from fedpareto.mechanisms import KnowsCosts, Upload
from fedpareto.settings import largest, least
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.setup import Setup

# that depend on how much a client trains
TIMES = ("seconds", "seconds_worst", "seconds_by_size", "round_seconds")


def known_costs(setup: Setup, columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return figures of a training over each row's own rounds, name → [n], without training.

    Those that depend on what is trained or drawn are left out. columns is name → [n].
    """
    training, mechanism = setup.training, setup.mechanism
    everyone = _everyone(setup.where, training)
    chance = training.sampling == "poisson" and not everyone
    if chance or not isinstance(mechanism, KnowsCosts):
        return {}
    import torch

    from fedpareto.federation.spent import spent

    fixed = None
    if isinstance(setup.local, ClipsRecords):
        fixed = setup.kept.sizes if setup.kept else fixed_sizes(setup.where)
    sizes = _sizes(setup.images, setup.where, training, everyone, fixed)
    work = _work(setup, columns, list(sizes)) if sizes else np.zeros((2, 1, 1))
    parameters = torch.tensor(columns["parameters"], dtype=torch.float64)
    came = torch.tensor(columns["cohort"], dtype=torch.float64)
    alike = came[:, None]  # how many clients there are of each kind, [n,kinds]
    if len(sizes) > 1:
        alike = torch.tensor(list(sizes.values())).expand(len(came), -1)
    upload = mechanism.costs(_empty(alike, parameters.float()), _values(setup, columns))
    if upload is None:
        return {}
    steps, images = torch.from_numpy(work)
    held = _held(list(sizes), training)
    figures = spent(upload, alike, steps, images, parameters, setup.cost, held).figures(came)
    return {
        name: figure.numpy() * columns["rounds"]
        for name, figure in figures.items()
        if sizes or name not in TIMES
    }


def _held(sizes: list[int], training: Training) -> Tensor | None:
    """Return what clients of each kind hold, [kinds]; None where that is not told in full.

    Who holds more than a mini-batch, of which steps take one each, counts as holding one.
    """
    import torch

    if len(sizes) <= 1:
        return torch.ones(1, dtype=torch.float64)
    cut = largest(training.local_steps) > 0 and max(sizes) >= largest(training.batch_size)
    return None if cut else torch.tensor(sizes, dtype=torch.float64)


def _work(setup: Setup, columns: Mapping[str, FloatArray], sizes: list[int]) -> FloatArray:
    """Return the steps and images in a round of clients of these sizes, [2,n,sizes]."""
    works = setup.training.works(columns, len(columns["rounds"]))
    each = {work: [work.of(size) for size in sizes] for work in set(works)}
    if setup.draws_records_by_chance:  # a training counts those expected at every step
        each = {work: [(s, s * work.batch_size) for s, _ in found] for work, found in each.items()}
    return np.array([each[work] for work in works], dtype=np.float64).transpose(2, 0, 1)


def _empty(alike: Tensor, room: Tensor) -> Upload:
    """Return an upload without values, of clients like alike [n,kinds], models of size room [n]."""
    import torch

    one = torch.ones(alike.shape)
    values = torch.empty(*alike.shape, 0)
    return Upload(values, room[:, None] * one, one * 32, one * 0, room=room)


def _values(setup: Setup, columns: Mapping[str, FloatArray]) -> dict[str, Tensor]:
    """Return what a mechanism is given of a round, name → [n], rounded as in a training."""
    import torch

    from fedpareto.federation.block import facts_of, terms_of

    facts = facts_of(setup, terms_of(setup, columns["sample_ratio"]))
    held = {name: columns[name] for name in settings_of(setup) if name in columns}
    numbers = {name: torch.tensor(v, dtype=torch.float32) for name, v in held.items()}
    linear = torch.tensor(columns["linear_parameters"], dtype=torch.float64)
    return {**numbers, **facts, "linear_parameters": linear}


def _everyone(data: Data, training: Training) -> bool:
    """Say whether all clients take part in every round, whatever the settings."""
    ratio = float(least(training.sample_ratio))
    if ratio >= 1:
        return True
    return training.sampling == "fixed" and cohort(ratio, data.clients) == data.clients


@functools.lru_cache(maxsize=16)
def _sizes(
    images: int, data: Data, training: Training, everyone: bool, fixed: tuple[int, ...] | None
) -> dict[int, int]:
    """Return how many images clients hold → how many clients hold so many.

    Images count as far as they matter for how long a client trains. Nothing is returned where that
    depends on the repeat or on who takes part. fixed is how many images clients hold where that is
    the same in every repeat.
    """
    shard, rest = divmod(images, data.clients * data.shards)
    held = shard * data.shards if data.split == "shards" else 1  # at least, by every client
    batch = int(largest(training.batch_size))
    in_steps = largest(training.local_steps) > 0
    if fixed is not None:
        sizes = np.array(fixed)
    elif data.split == "iid":
        sizes = iid(np.zeros(images, dtype=np.int64), data, 0).sizes  # those of every repeat
    elif data.split == "shards" and rest == 0:
        sizes = np.full(data.clients, held)
    elif in_steps and batch <= held:
        sizes = np.full(data.clients, batch)
    else:
        return {}
    if in_steps:
        sizes = np.minimum(sizes, batch)
    found = dict(zip(*(a.tolist() for a in np.unique(sizes, return_counts=True)), strict=True))
    return found if everyone or len(found) == 1 else {}
