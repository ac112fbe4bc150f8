"""Inputs from what was trained on them: by a linear layer, by matching gradients, by line-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedpareto.federation.losses import Loss
from fedpareto.federation.stack import unflatten

SMOOTH = (1e-1, 1e-3)  # weight of total variation, at first and at last
AT_ONCE = 2e7  # numbers of gradients that are held at once


def first_linear(module: nn.Module, inputs: int) -> slice | None:
    """Return where a first layer that sees every input lies in the parameters, bias included."""
    start = 0
    for layer in module.modules():
        own = list(layer.parameters(recurse=False))
        if not own:
            continue
        whole = isinstance(layer, nn.Linear) and layer.in_features == inputs
        if whole and layer.bias is not None:
            return slice(start, start + sum(p.numel() for p in own))
        return None
    return None


def by_bias(update: Tensor, inputs: int) -> Tensor:
    """Return the input [G,D] that updates [G,(D+1)·H] of a first linear layer were trained on.

    The gradient of each weight is that of its neuron's bias times the input (Geiping 2020, 3.1), so
    that the input is a fit over all neurons, exact where nothing was added.
    """
    hidden = update.shape[1] // (inputs + 1)
    weights = update[:, : hidden * inputs].view(-1, hidden, inputs).double()
    bias = update[:, hidden * inputs :].double()
    fit = torch.einsum("gh,ghd->gd", bias, weights)
    return fit / bias.square().sum(1, keepdim=True).clamp_min(1e-300)


def by_neuron(update: Tensor, inputs: int, most: int = 64) -> Tensor:
    """Return an input [G,n,D] from each of the neurons that moved most: of several, some alone."""
    hidden = update.shape[1] // (inputs + 1)
    weights = update[:, : hidden * inputs].view(-1, hidden, inputs).double()
    bias = update[:, hidden * inputs :].double()
    best = bias.abs().topk(min(most, hidden), dim=1).indices
    chosen = weights.gather(1, best[:, :, None].expand(-1, -1, inputs))
    away = bias.gather(1, best)[:, :, None]
    return chosen / torch.where(away.abs() < 1e-300, 1e-300, away)


def gradient_of(module: nn.Module, loss: Loss) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the gradient [P] of a model's loss on inputs [n,...], from parameters [P]."""
    like = [p.detach() for p in module.parameters()]
    names = [name for name, _ in module.named_parameters()]

    def of(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        params = [p[0] for p in unflatten(flat[None], like)]
        scores = functional_call(module, dict(zip(names, params, strict=True)), (x,))
        # [M,R,C,B] scores of one model of one slot
        each = loss.each(scores.T[None], y)
        return each.mean()

    gradient: Callable[[Tensor, Tensor, Tensor], Tensor] = grad(of)
    return gradient


def matched(
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor],
    model: Tensor,
    update: Tensor,
    start: Tensor,
    labels: Tensor,
    iterations: int,
    span: tuple[float, float],
) -> Tensor:
    """Return inputs [n,...] whose gradient points where an update [P] of a model [P] came from.

    Cosine and total variation by signed Adam, as in Geiping 2020; the weight of total variation
    falls on the way.
    """

    def apart(x: Tensor, smooth: Tensor) -> Tensor:
        found = gradient(model, x, labels)
        lengths = torch.linalg.vector_norm(found) * torch.linalg.vector_norm(update)
        cosine = -(found @ update) / lengths.clamp_min(1e-20)
        far: Tensor = 1 - cosine + smooth * _variation(x)
        return far

    slope = grad(apart)
    x = start.clone()
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for i in range(iterations):
        done = i / iterations
        smooth = x.new_tensor(SMOOTH[0] * (SMOOTH[1] / SMOOTH[0]) ** done)
        g = slope(x, smooth).sign()
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        rate = 0.1 * 0.1 ** sum(done > at for at in (3 / 8, 5 / 8, 7 / 8))
        step = first / (1 - 0.9 ** (i + 1)) / (second / (1 - 0.999 ** (i + 1))).sqrt().add(1e-8)
        x = (x - rate * (span[1] - span[0]) * step).clamp(*span)
    found: Tensor = x
    return found


def _variation(x: Tensor) -> Tensor:
    """Return the mean step between neighbouring pixels of pictures [n,C,H,W]; 0 of rows."""
    if x.dim() != 4:
        return x.new_zeros(())
    across = (x[..., 1:] - x[..., :-1]).abs().mean()
    both: Tensor = across + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()
    return both


def ranks(
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor],
    model: Tensor,
    updates: Tensor,
    x: Tensor,
    y: Tensor,
    true: Sequence[int],
) -> Tensor:
    """Return the place [R] of the best of the true ones among candidates x [n,...], from 0.

    Candidates are lined up by how much their gradient points where updates [R,P] came from.
    """
    size = max(1, int(AT_ONCE / len(model)))
    unit = torch.nn.functional.normalize(-updates, dim=1)
    found = []
    for i in range(0, len(x), size):
        some = slice(i, i + size)
        each = vmap(gradient, in_dims=(None, 0, 0))(model, x[some, None], y[some, None])
        found.append(unit @ torch.nn.functional.normalize(each, dim=1).T)
    likeness = torch.cat(found, dim=1)  # [R,n]
    best = likeness[:, list(true)].amax(1, keepdim=True)
    return (likeness > best).sum(1)
