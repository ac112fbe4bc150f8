"""What must hold where local steps hide single records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedpareto.contract import by_chance
from fedpareto.errors import SettingError
from fedpareto.federation.local import ClipsRecords
from fedpareto.federation.losses import loss_of
from fedpareto.federation.split import fixed_sizes
from fedpareto.settings import largest, least

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.problem import Federation


def check_terms(problem: Federation, local: ClipsRecords) -> None:
    """Refuse settings with which a record would not be hidden as it is priced."""
    training = problem.training
    _check_numbers(local)
    if training.weighting != "uniform":
        raise SettingError(
            "training.weighting: must be uniform where local steps hide records, found "
            f"{training.weighting}: the weight of an upload would tell how many records the client "
            'holds. Write weighting = "uniform".'
        )
    if not by_chance(local.batches) and not training.local_epochs:
        raise SettingError(
            "local.batches: must be poisson where local_steps is given, found "
            f"{local.batches}: shuffled batches are priced by how often a client passes over its "
            "records. Give local_epochs in place of local_steps."
        )
    asked = {name for name in problem.asked if name.startswith("epsilon")}
    hidden = problem.privacy.unit == "record"
    priced = asked - {"epsilon_client"} if hidden else asked & {"epsilon_record"}
    if priced and float(least(local.record_noise_multiplier)) == 0:
        raise SettingError(
            "local.record_noise_multiplier: must add noise where ε is asked for, found 0: without "
            "noise there is no ε. Raise its lower end above 0."
        )


def _check_numbers(local: ClipsRecords) -> None:
    """Refuse a norm that bounds nothing, and noise that is none."""
    norm, noise = (
        float(least(local.record_clipping_norm)),
        float(least(local.record_noise_multiplier)),
    )
    if not 0 < norm < math.inf:
        raise SettingError(
            "local.record_clipping_norm: must be above 0 and finite, since nothing else bounds how "
            f"far a record moves a step, found {norm:g}."
        )
    if not 0 <= noise < math.inf:
        raise SettingError(
            f"local.record_noise_multiplier: must be at least 0 and finite, found {noise:g}."
        )


def check_silos(problem: Federation) -> None:
    """Refuse a mini-batch that is larger than what a client holds."""
    batch = int(largest(problem.training.batch_size))
    sizes = fixed_sizes(problem.data)
    fewest = min(sizes)
    if batch > fewest:
        raise SettingError(
            f"training.batch_size: must be at most the {fewest} records of client "
            f"{sizes.index(fewest)}, who holds the fewest, where local steps hide records, found "
            f"{batch}: the sum of a mini-batch is divided by batch_size, and the chance of a record"
            " to be in it is batch_size over the client's records. Lower it, or deal the data to "
            "fewer clients."
        )


def check_alone(name: str, scores: Tensor, labels: Tensor) -> None:
    """Refuse a loss of the user's own in which a record's loss depends on other records."""
    import torch

    loss = loss_of(name)
    some = min(8, len(labels))
    batch, few = scores[:some].t()[None, None], labels[:some]  # [1,1,C,b]
    together = loss.slope(batch, few[None])
    alone = [loss.slope(batch[..., i : i + 1], few[None, i : i + 1]) for i in range(some)]
    if not torch.allclose(together, torch.cat(alone, dim=3), rtol=1e-3, atol=1e-6):
        raise SettingError(
            f"training.loss: {name!r} must treat each record by itself where local steps hide "
            "records, found that a record's loss changes with the others of its mini-batch. "
            "Clipping bounds what a record adds to a sum of losses, and nothing else."
        )
