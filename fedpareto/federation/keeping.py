"""A trained model, taken out of its block to be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpareto.federation.stack import cut_out, unflatten

if TYPE_CHECKING:
    from torch import nn

    from fedpareto.federation.models import Model
    from fedpareto.federation.setup import Setup
    from fedpareto.federation.state import State


@torch.no_grad()
def kept_model(setup: Setup, model: Model, state: State) -> nn.Module:
    """Return the first federation's model as an ordinary module, as narrow as it was trained."""
    module = setup.module(model)
    own = list(module.parameters())
    wide = [p[0] for p in unflatten(state.models[0, :1].cpu(), setup.initial(setup.model))]
    for p, trained in zip(own, cut_out(wide, own), strict=True):
        p.copy_(trained)
    return module.eval()
