"""What rounds cost where that follows from the settings: counted as in a training, without one."""

from __future__ import annotations

import functools
import math
from collections import Counter
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
from fedpareto.settings import least
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.setup import Setup

TIMES = ("seconds", "seconds_worst", "round_seconds")  # that depend on how much a client trains
Kind = tuple[int, int]  # steps and images of a client's round


def known_costs(setup: Setup, columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return figures of a training over each row's own rounds, name → [n], without training.

    Those that depend on what is trained or drawn are left out. columns is name → [n].
    """
    import torch

    from fedpareto.federation.spent import spent

    training, mechanism = setup.training, setup.mechanism
    everyone = _everyone(setup.where, training)
    chance = training.sampling == "poisson" and not everyone
    if chance or not isinstance(mechanism, KnowsCosts):
        return {}
    fixed = None
    if isinstance(setup.local, ClipsRecords):
        fixed = setup.kept.sizes if setup.kept else fixed_sizes(setup.where)
    work = _work(setup.images, setup.where, training, everyone, fixed)
    if work and setup.draws_records_by_chance:  # a training counts those expected at every step
        work = _expected(work, training.batch_size)
    kinds = work or {(0, 0): setup.clients}
    parameters = torch.tensor(columns["parameters"], dtype=torch.float64)
    came = torch.tensor(columns["cohort"], dtype=torch.float64)
    alike = came[:, None]  # how many clients there are of each kind, [n,kinds]
    if len(kinds) > 1:
        alike = torch.tensor(list(kinds.values())).expand(len(came), -1)
    upload = mechanism.costs(_empty(alike, parameters.float()), _values(setup, columns))
    if upload is None:
        return {}
    steps, images = torch.tensor(list(kinds)).T
    figures = spent(upload, alike, steps, images, parameters, setup.cost).figures(came)
    return {
        name: figure.numpy() * columns["rounds"]
        for name, figure in figures.items()
        if work or name not in TIMES
    }


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
def _work(
    images: int, data: Data, training: Training, everyone: bool, fixed: tuple[int, ...] | None
) -> dict[Kind, int] | None:
    """Return the steps and images of a client's round → how many clients have them.

    None where that depends on the repeat or on who takes part. fixed is how many images clients
    hold where that is the same in every repeat.
    """
    shard, rest = divmod(images, data.clients * data.shards)
    held = shard * data.shards if data.split == "shards" else 1  # at least, by every client
    if fixed is not None:
        sizes = np.array(fixed)
    elif data.split == "iid":
        sizes = iid(np.zeros(images, dtype=np.int64), data, 0).sizes  # those of every repeat
    elif data.split == "shards" and rest == 0:
        sizes = np.full(data.clients, held)
    elif training.local_steps and training.batch_size <= held:
        sizes = np.full(data.clients, training.batch_size)  # each sees a batch at every step
    else:
        return None
    kinds: Counter[Kind] = Counter()
    for size, clients in zip(*np.unique(sizes, return_counts=True), strict=True):
        kinds[_trained(training, int(size))] += int(clients)
    return dict(kinds) if everyone or len(kinds) == 1 else None


def _expected(work: Mapping[Kind, int], batch: int) -> dict[Kind, int]:
    """Return the work where so many images are expected at every step."""
    kinds: Counter[Kind] = Counter()
    for (steps, _), clients in work.items():
        kinds[steps, steps * batch] += clients
    return dict(kinds)


def _trained(training: Training, size: int) -> Kind:
    """Return the steps that a client with so many images takes in a round, and images seen."""
    batch = min(training.batch_size, size)
    if training.local_steps:
        return training.local_steps, training.local_steps * batch
    return training.local_epochs * math.ceil(size / batch), training.local_epochs * size
