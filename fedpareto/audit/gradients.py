"""Inputs from what was trained on them: by a linear layer, by matching gradients, by line-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedpareto.federation.losses import Loss
from fedpareto.federation.stack import unflatten

SMOOTH = (3e-2, 3e-3)  # weight of total variation, at first and at last
WANDER = (0.15, 1e-3)  # how far slopes are taken around, of the span of pixels, and at last
WANDERS = 0.8  # for so much of the search
RATE, LEAST_RATE = 0.1, 1e-4  # how far a step goes at first and at last, of the span of pixels
Gradient = Callable[[Tensor, Tensor, Tensor], Tensor]  # of parameters, inputs and labels
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


def gradient_of(module: nn.Module, loss: Loss) -> Gradient:
    """Return the gradient [P] of a model's loss on inputs [n,...], from parameters [P]."""
    like = [p.detach() for p in module.parameters()]
    names = [name for name, _ in module.named_parameters()]

    def of(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        params = [p[0] for p in unflatten(flat[None], like)]
        scores = functional_call(module, dict(zip(names, params, strict=True)), (x,))
        # [M,R,C,B] scores of one model of one slot
        each = loss.each(scores.T[None], y)
        return each.mean()

    gradient: Gradient = grad(of)
    return gradient


def replayed(gradient: Gradient, rate: float, strides: int) -> Gradient:
    """Return what takes the place of a gradient where a client has taken many steps.

    That is how far a model moves, at this rate over all steps, in few strides of the same length on
    all inputs at once.
    """
    if strides == 1:
        return gradient

    def moved(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        now = flat
        for _ in range(strides):
            now = now - rate / strides * gradient(now, x, y)
        return (flat - now) / rate

    return moved


def matched(
    gradient: Gradient,
    models: Tensor,
    update: Tensor,
    starts: Tensor,
    labels: Tensor,
    iterations: int,
    span: tuple[float, float],
    draw: torch.Generator,
) -> Tensor:
    """Return the inputs [n,...] whose gradient points best where an update [P] came from.

    They are sought from several starts [B,n,...] at once, each at a model of its own [B,P], and
    those are kept that match best. Cosine and total variation by signed Adam, as in Geiping 2020.
    Where pixels lie far from what they should be, gradients of ReLU jump from one to the next, so
    slopes are taken at places around: they wander, less and less far, and the weight of total
    variation falls on the way.
    """

    def apart(x: Tensor, model: Tensor, smooth: float) -> Tensor:
        return 1 - _alike(gradient(model, x, labels), -update) + smooth * _variation(x)

    size = max(1, int(AT_ONCE / len(update)))
    slope = vmap(grad(apart), in_dims=(0, 0, None), chunk_size=size)
    x = starts.clone()
    wide = span[1] - span[0]
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for i in range(iterations):
        done = i / iterations
        around = x
        if done < WANDERS:
            far = wide * _between(WANDER, done / WANDERS)
            around = x + far * torch.randn(x.shape, generator=draw, device=x.device)
        g = slope(around, models, _between(SMOOTH, done)).sign().nan_to_num(0.0)
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        step = first / (1 - 0.9 ** (i + 1)) / (second / (1 - 0.999 ** (i + 1))).sqrt().add(1e-8)
        rate = LEAST_RATE + (RATE - LEAST_RATE) * (1 + math.cos(math.pi * done)) / 2
        x = (x - rate * wide * step).clamp(*span)
    found = vmap(gradient, in_dims=(0, 0, None), chunk_size=size)(models, x, labels)
    best: Tensor = x[_alike(found, -update).nan_to_num(-1.0).argmax()]
    return best


def _alike(found: Tensor, wanted: Tensor) -> Tensor:
    """Return the cosine of gradients [...,P] and one that is wanted [P]."""
    lengths = torch.linalg.vector_norm(found, dim=-1) * torch.linalg.vector_norm(wanted)
    cosine: Tensor = (found @ wanted) / lengths.clamp_min(1e-20)
    return cosine


def _between(ends: tuple[float, float], done: float) -> float:
    """Return what falls from one number to another by the same factor at each step."""
    first, last = ends
    return float(first * (last / first) ** done)


def _variation(x: Tensor) -> Tensor:
    """Return the mean step between neighbouring pixels of pictures [n,C,H,W]; 0 of rows."""
    if x.dim() != 4:
        return x.new_zeros(())
    across = (x[..., 1:] - x[..., :-1]).abs().mean()
    both: Tensor = across + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()
    return both


def ranks(
    gradient: Gradient,
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
