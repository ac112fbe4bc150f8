"""What clients send of their updates, and the mean that the server makes of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract import on_the_sum
from fedpareto.errors import SettingError
from fedpareto.federation.block import Block
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.split import Indices
from fedpareto.federation.state import State
from fedpareto.mechanisms import AddsGaussian, Upload, adds_noise
from fedpareto.noise import Noise

SERVER = -1  # stands for the server where noise is drawn by client


def protect(
    block: Block,
    state: State,
    s: int,
    t: int,
    clients: Indices,
    updates: Tensor,
    came: Tensor,
    noise: Noise | None = None,
) -> Upload:
    """Return what the server sees of these clients' updates [R,M,P] in repeat s and round t.

    came [R] is how many clients take part in the round. noise is given where more is drawn from it
    afterwards.
    """
    setup = block.repeats[s]
    noise = noise or setup.noise(t, clients, block.device)
    values = {**block.settings, **block.facts, "participants": came.float()}
    one = torch.ones(updates.shape[:2], device=block.device)
    plain = Upload(
        updates,
        block.parameters[s].float()[:, None] * one,
        one * 32,
        one * 0,
        model=state.models[s],
        exists=None if block.exists is None else block.exists[s],
        linear=block.linear,
    )
    upload = setup.mechanism.protect(plain, values, noise)
    _check(upload, updates, type(setup.mechanism).__name__)
    return upload


def missing_noise(block: Block, s: int, t: int, cohort: Cohort) -> Tensor | None:
    """Return the noise [R,P] that the server adds where nobody came; None where somebody did.

    It is that of an expected cohort, so that such a round looks like any other.
    """
    setup = block.repeats[s]
    mechanism = setup.mechanism
    nobody = cohort.count == 0  # [R]
    if not (isinstance(mechanism, AddsGaussian) and adds_noise(mechanism) and nobody.any()):
        return None
    values = {**block.settings, **block.facts}
    sigma, _ = mechanism.gaussian(values)
    where = torch.from_numpy(nobody).to(block.device)
    strength: Tensor = where * on_the_sum(sigma, values["cohort"], block.terms.sampling)
    drawn = setup.noise(t, np.array([SERVER]), block.device).normal(block.stack.size)
    noise = strength[:, None] * drawn
    return noise if block.exists is None else noise * block.exists[s]


def _check(upload: object, updates: Tensor, name: str) -> None:
    """Refuse what is not an upload of the right shape."""
    shape, clients = list(updates.shape), list(updates.shape[:2])
    if not isinstance(upload, Upload):
        found: object = type(upload).__name__
    elif list(upload.values.shape) != shape or list(upload.count.shape) != clients:
        found = list(upload.values.shape)
    else:
        return
    raise SettingError(
        f"mechanism {name}: protect must return an Upload with values of shape {shape} and counts "
        f"of shape {clients}, found {found}. Try it with fedpareto.testing.check_mechanism."
    )


def weights(block: Block, s: int, clients: Indices) -> Tensor:
    """Return what the upload of each of these clients counts in the sum, [M]."""
    if block.terms.weighting == "uniform":
        return torch.ones(len(clients), device=block.device)
    sizes = block.splits[s].sizes[clients]
    return torch.from_numpy(sizes).float().to(block.device)


def aggregate(block: Block, sums: Tensor, cohorts: Sequence[Cohort], came: Tensor) -> Tensor:
    """Return the mean update [S,R,P] from the weighted sums [S,R,P] of who came [S,R]."""
    divisors = []
    for s, cohort in enumerate(cohorts):
        slots = cohort.order[: block.slots]
        came_weight = weights(block, s, slots).cumsum(0)[came[s] - 1]
        everyone = weights(block, s, np.arange(block.terms.clients)).sum()
        ratios = torch.from_numpy(block.ratios).float().to(block.device)
        divisors.append(block.terms.divisor(came_weight, ratios * everyone))
    mean = sums / torch.stack(divisors)[:, :, None]
    return mean if block.exists is None else mean * block.exists


def step(block: Block, state: State, mean: Tensor) -> State:
    """Return the state after the server has moved its models by the mean [S,R,P] of a round."""
    server = block.setup.server
    models, memory = server.step(state.models, mean, state.server, block.settings)
    return State(models, memory, state.kept)
