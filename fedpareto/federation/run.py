"""The rounds of many federations at once, from the first model to the last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedpareto.errors import SettingError
from fedpareto.federation.block import Block
from fedpareto.federation.clients import Clients
from fedpareto.federation.cohorts import Cohort, drawn
from fedpareto.federation.judge import unjudged
from fedpareto.federation.observer import Observer
from fedpareto.federation.protection import aggregate, missing_noise, protect, step, weights
from fedpareto.federation.spent import Spent, spent
from fedpareto.federation.stack import unflatten
from fedpareto.federation.state import State, keep, start
from fedpareto.federation.steps import precision, threads_for
from fedpareto.federation.trace import Shown, Trace, collected
from fedpareto.problem import tell

DIVERGED = 1e4  # an update this many times longer than the model it started from


def run(block: Block, observer: Observer | None = None) -> tuple[Trace, State]:
    """Train the federations of a block; return what every round showed, and where they ended.

    Rows of the trace come repeat by repeat, [S·R].
    """
    training = block.setup.training
    work = 3 * block.stack.size * block.federations * block.slots * block.batch
    with threads_for(work), precision(training.tf32):
        state = start(block)
        clients = Clients(block, observer)
        shown = []
        for t in range(block.rounds):
            state, seen = one_round(block, state, clients, t, observer)
            shown.append(seen)
            tell((t + 1) / block.rounds)
        return collected(shown, block.parameters), state


def one_round(
    block: Block, state: State, clients: Clients, t: int, observer: Observer | None = None
) -> tuple[State, Shown]:
    """Train one round: local updates, what clients send of them, their mean, the server's step."""
    cohorts = [who(block, s, t, observer) for s in range(len(block.repeats))]
    came = torch.from_numpy(np.stack([c.count for c in cohorts])).to(block.device)  # [S,R]
    sums = torch.zeros_like(state.models)
    wild = torch.zeros(came.shape, dtype=torch.bool, device=block.device)
    costs: list[Spent | None] = [None] * len(cohorts)
    began = state
    for trained in clients.trained(began, cohorts, t):
        places = torch.arange(trained.places.start, trained.places.stop, device=block.device)
        for s, cohort in enumerate(cohorts):
            asked = cohort.order[trained.places]
            takes_part = places < came[s][:, None]  # [R,M]
            updates = trained.values[s]
            if observer is not None:
                updates = observer.updates(s, t, asked, updates)
            if block.setup.private:
                updates = finite(updates)
            else:
                too_long = _too_long(updates, began.models[s])
                wild[s] |= (too_long & takes_part).any(1)
                stray = too_long & ~takes_part
                if bool(stray.any()):  # who is absent must not spoil the sums
                    updates = updates.masked_fill(stray[:, :, None], 0.0)
            upload = protect(block, began, s, t, asked, updates, came[s])
            if observer is not None:
                observer.uploads(s, t, asked, takes_part, upload)
            state = keep(state, s, asked, upload, updates, takes_part)
            counted = takes_part * weights(block, s, asked)  # [R,M]
            sums[s] += torch.einsum("rk,rkp->rp", counted, upload.values)
            steps, images = trained.steps[s].t(), trained.images[s].t()
            cost = spent(upload, takes_part, steps, images, block.parameters[s], block.setup.cost)
            before = costs[s]
            costs[s] = cost if before is None else before.plus(cost)
    for s, cohort in enumerate(cohorts):
        noise = missing_noise(block, s, t, cohort)
        if noise is not None:
            sums[s] += noise
    state = step(block, state, aggregate(block, sums, cohorts, came))
    if block.setup.private:  # that a training failed is told, so it must follow from models alone
        wild = ~torch.isfinite(state.models).all(2)
    if observer is not None:
        observer.sums(t, sums, cohorts)
        observer.models(t, state.models)
    return state, _shown(block, state, t, [c for c in costs if c is not None], came, wild)


def who(block: Block, s: int, t: int, observer: Observer | None = None) -> Cohort:
    """Return who takes part in round t of repeat s."""
    terms = block.terms
    seed = block.repeats[s].seed
    cohort = drawn(seed, t, terms.clients, block.ratios, terms.sampling)
    if observer is None:
        return cohort
    cohort = observer.cohort(s, t, cohort)
    if cohort.count.max() > block.slots:
        raise SettingError(
            f"observer: a round must have at most {block.slots} clients here, found "
            f"{cohort.count.max()}. Prepare the block with more slots, or train with more = 1 or "
            "as many as are forced in."
        )
    return cohort


def _too_long(updates: Tensor, models: Tensor) -> Tensor:
    """Say which updates [R,M,P] are not finite, or far longer than the model [R,P]: [R,M]."""
    length: Tensor = torch.linalg.vector_norm(updates, dim=2)
    most: Tensor = DIVERGED * (1 + torch.linalg.vector_norm(models, dim=1))
    return ~(length <= most[:, None])


def finite(updates: Tensor) -> Tensor:
    """Return updates [R,M,P] with zeros for a client whose own is not finite.

    Not every mechanism bounds such an update: unbounded, it would show whatever noise is added.
    """
    there = torch.isfinite(updates).all(2, keepdim=True)
    return torch.where(there, updates, torch.zeros_like(updates))


def _shown(
    block: Block, state: State, t: int, costs: Sequence[Spent], came: Tensor, wild: Tensor
) -> Shown:
    """Return what round t showed: how good the models are, and what it cost."""
    rounds = [cost.figures(came[s]) for s, cost in enumerate(costs)]
    figures = {name: torch.cat([each[name] for each in rounds]) for name in rounds[0]}
    withheld = [cost.withheld for cost in costs if cost.withheld is not None]
    nobody = block.parameters.new_zeros(*came.shape, 0)
    sizes = torch.stack(withheld) if withheld else nobody
    return Shown(judged(block, state, t) | figures, sizes, wild)


def judged(block: Block, state: State, t: int) -> dict[str, Tensor]:
    """Return how good the models are after round t, name → [S·R]; nan where not judged."""
    regular = (t + 1) % block.setup.training.evaluate_every == 0
    rows = len(block.repeats) * block.federations
    if not regular and t + 1 not in block.last_rounds:
        return unjudged(block.judge.names, rows, block.device)
    params = unflatten(state.models.flatten(0, 1), block.stack.initial)
    own = block.setup.along or t + 1 in block.last_rounds
    found = block.judge(block.stack, [p.contiguous() for p in params], own)
    if regular:
        return found
    ends = (block.settings["rounds"].long() == t + 1).repeat(len(block.repeats))
    return {name: torch.where(ends, figure, torch.nan) for name, figure in found.items()}
