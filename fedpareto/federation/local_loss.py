"""What clients lose on their own examples with the models that they send (Xiao 2025, Eq. 5)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpareto.federation.block import Block
from fedpareto.federation.judge import images_at_once
from fedpareto.federation.split import Indices
from fedpareto.federation.stack import unflatten
from fedpareto.federation.state import State
from fedpareto.mechanisms import Upload


@torch.no_grad()
def local_losses(
    block: Block,
    state: State,
    s: int,
    t: int,
    clients: Indices,
    takes_part: Tensor,
    upload: Upload,
) -> Tensor:
    """Return the sum of these clients' mean losses on their own examples, [R]; nan if not judged.

    The model is that of the round's beginning, moved by what the client sends: compressed, and with
    its noise.
    """
    now = torch.tensor(block.judged_after(t), device=block.device)
    total = torch.full(now.shape, torch.nan, dtype=torch.float64, device=block.device)
    if not any(block.judged_after(t)):
        return total
    losses = [
        _loss(block, state.models[s] + upload.values[:, m], s, client)
        for m, client in enumerate(clients.tolist())
    ]
    each = torch.where(takes_part, torch.stack(losses, dim=1), 0.0)
    return torch.where(now, each.sum(1), total)


def _loss(block: Block, models: Tensor, s: int, client: int) -> Tensor:
    """Return the mean loss of models [R,P] on a client's examples, [R]."""
    if block.exists is not None:
        models = models * block.exists[s]
    params = [p[None].contiguous() for p in unflatten(models, block.stack.initial)]
    mine = torch.from_numpy(block.splits[s].of(client)).to(block.device)
    total = torch.zeros(len(models), dtype=torch.float64, device=block.device)
    for part in torch.split(mine, images_at_once(block.stack, len(models))):
        scores = block.stack.scores(params, block.images.at(part)[:, None])[0]  # [R,C,b]
        total += block.recipe.loss.each(scores, block.images.y[part]).double().sum(1)
    return total / max(1, len(mine))
