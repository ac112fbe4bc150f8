"""What the rounds cost, where that follows from the settings: the tally of a training without one."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, load
from fedpareto.federation.draws import cohort
from fedpareto.federation.split import iid
from fedpareto.federation.training import Training
from fedpareto.settings import least, named
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

TIMES = ("seconds", "seconds_worst", "round_seconds")  # that depend on how much a client trains


def costs(data: Data, training: Training, mechanism: Any, cost: Cost, columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return figures of the Trace over each row's own rounds, name → [n]; those that depend on what is trained or drawn are left out."""
    everyone = _everyone(data, training)
    if not hasattr(mechanism, "costs") or (training.sampling == "poisson" and not everyone):
        return {}
    import torch

    from fedpareto.federation.tally import KINDS, Tally
    from fedpareto.mechanisms import Upload

    work = _work(len(load(data).y_train), data, training, everyone)
    kinds = work or {(0, 0): data.clients}
    parameters, asked = (torch.tensor(columns[name], dtype=torch.float64) for name in ("parameters", "cohort"))
    alike = asked[:, None] if len(kinds) == 1 else torch.tensor(list(kinds.values())).expand(len(asked), -1)  # clients of each kind
    one, room = torch.ones(alike.shape), parameters.float()
    plain = Upload(torch.empty(*alike.shape, 0), room[:, None] * one, one * 32, one * 0, room=room)
    upload = mechanism.costs(plain, _told(training, mechanism, cost, columns))
    if upload is None:
        return {}
    tally = Tally.start(parameters[None], cost)
    tally.begin_round(asked[None])
    tally.add(0, upload, alike, list(torch.tensor(list(kinds)).T))
    totals = tally.figures()[:, 0].numpy() * columns["rounds"]
    return {name: total for name, total in zip(KINDS, totals, strict=True) if work or name not in TIMES}


def _told(training: Training, mechanism: Any, cost: Cost, columns: Mapping[str, FloatArray]) -> dict[str, Tensor]:
    """Return what a mechanism is told in a round, name → [n], rounded as in a training."""
    import torch

    held = named(training) | named(mechanism)
    also = {"cohort": columns["cohort"], "summands": columns["cohort"], "participants": columns["cohort"]}
    also |= {name: np.full(len(columns["cohort"]), v) for name, v in cost.charged(int(held.get("key_bits", 2048))).items()}
    also |= {name: columns[name] for name in held if name in columns}
    return {name: torch.tensor(v, dtype=torch.float32) for name, v in also.items()} | {
        "linear_parameters": torch.tensor(columns["linear_parameters"], dtype=torch.float64)}


def _everyone(data: Data, training: Training) -> bool:
    """Say whether all clients take part in every round, whatever the settings."""
    ratio = float(least(training.sample_ratio))
    return ratio >= 1 or (training.sampling == "fixed" and cohort(ratio, data.clients) == data.clients)


@functools.lru_cache(maxsize=16)
def _work(images: int, data: Data, training: Training, everyone: bool) -> dict[tuple[int, int], int] | None:
    """Return the steps and images of a client's round → how many clients have them; None where that depends on the repeat or on who
    takes part."""
    shard, rest = divmod(images, data.clients * data.shards)
    if data.split == "iid":
        sizes = iid(np.zeros(images, dtype=np.int64), data, 0).sizes  # those of every repeat
    elif data.split == "shards" and rest == 0:
        sizes = np.full(data.clients, shard * data.shards)
    elif training.local_steps and training.batch_size <= (shard * data.shards if data.split == "shards" else 1):
        sizes = np.full(data.clients, training.batch_size)  # each holds at least a batch, and sees no more
    else:
        return None
    kinds: Counter[tuple[int, int]] = Counter()
    for size, clients in zip(*np.unique(sizes, return_counts=True), strict=True):
        kinds[_trained(training, int(size))] += int(clients)
    return dict(kinds) if everyone or len(kinds) == 1 else None


def _trained(training: Training, size: int) -> tuple[int, int]:
    """Return the steps that a client with so many images takes in a round, and the images that they see."""
    batch = min(training.batch_size, size)
    if training.local_steps:
        return training.local_steps, training.local_steps * batch
    return training.local_epochs * math.ceil(size / batch), training.local_epochs * size
