"""What must hold where widths of a user's own model are searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpareto.errors import ModelError
from fedpareto.federation.models import MODELS
from fedpareto.federation.setup import seeded
from fedpareto.settings import fixed, least, searched

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedpareto.federation.problem import Federation


def check_widths(
    problem: Federation, widest: nn.Module, shape: tuple[int, ...], classes: int
) -> None:
    """Refuse a model of the user's own whose narrow form is not the first places of its widest.

    A narrow model trains as the widest with zeros in all other places. So both must give the same
    scores, and nothing may move those zeros.
    """
    model = problem.model
    if not searched(model) or type(model) in MODELS.values():
        return
    import torch

    from fedpareto.federation.stack import embedded, mask

    narrow = seeded(lambda: fixed(model, least).build(shape, classes), 0)
    mine = [p.detach() for p in narrow.parameters()]
    wide = [p.detach() for p in widest.parameters()]
    if len(mine) != len(wide) or any(a.dim() != b.dim() for a, b in zip(mine, wide, strict=True)):
        raise _refused(f"{len(mine)} parameters of the narrowest and {len(wide)} of the widest")
    placed = [p.requires_grad_() for p in embedded(mine, wide)]
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(4, *shape, generator=draw)
    names = [name for name, _ in widest.named_parameters()]
    scores = torch.func.functional_call(widest, dict(zip(names, placed, strict=True)), (x,))
    slope = torch.rand(scores.shape, generator=draw)
    gradients = torch.autograd.grad(scores, placed, slope, materialize_grads=True)
    _check_same(narrow(x), scores, gradients, mask(mine, wide))


def _check_same(
    alone: Tensor, scores: Tensor, gradients: tuple[Tensor, ...], there: Tensor
) -> None:
    """Refuse a narrow model that gives other scores, or whose missing places would move."""
    import torch

    if not torch.allclose(alone, scores, rtol=1e-3, atol=1e-5):
        raise _refused("other scores of the narrowest model than of its places in the widest")
    moved = torch.cat([g.flatten() for g in gradients])[~there].abs()
    if bool((moved > 1e-6).any()):
        raise _refused("gradients of neurons that are not there")


def _refused(found: str) -> ModelError:
    return ModelError(
        "the model must be the first places of its widest form where widths are searched, found "
        f"{found}. Let a neuron of zero weights give zero (relu or tanh, not sigmoid), and let no "
        "layer average over neurons; or fix the width."
    )
