"""One module for many models: the user's own code, run once on channels of all models side by side.

An activation is [B, G·C, ...]: the channels of G models in a row. Convolutions become grouped, linear layers batched
products, group norms get G times the groups; pooling, activations, sums and flattening work as they are. Where a module does
something else with channels, `grouped` refuses and the caller falls back on torch.func.vmap.

Stacked parameters are [M,R,...]: M client slots, R federations each, G = M·R. The input is [B, M·C, ...]: the R federations
of a slot share it, so their first layers are one product. A linear layer's step of SGD is fused into its backward pass: the
gradient is never written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Params = list[Tensor]

HARMLESS = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity, nn.MaxPool2d, nn.AvgPool2d,
            nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.ZeroPad2d)


@dataclass
class Step:
    """One step of SGD: the rate of every model, and the momentum with its buffers, one per parameter."""

    rate: Tensor  # [M,R]
    momentum: float
    speed: Params

    def move(self, i: int, p: Tensor, gradient: Tensor) -> None:
        """Move one parameter [M,R,...] against its gradient, in place."""
        if self.momentum:
            gradient = self.speed[i].mul_(self.momentum).add_(gradient)
        p.addcmul_(gradient, self.rate.view(*self.rate.shape, *[1] * (p.dim() - 2)), value=-1)


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b for G models; the backward pass takes the step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, layer: GroupedLinear) -> Tensor:
        rows = _by_model(x, w, layer)  # [Q,B,D], Q = M where the input is shared and G where it is not
        Q, B, _ = rows.shape
        weight = w.reshape(Q, -1, w.shape[-1])
        product = torch.bmm(rows, weight.transpose(1, 2)) if b is None else torch.baddbmm(b.reshape(Q, 1, -1), rows, weight.transpose(1, 2))
        ctx.save_for_backward(x, w, b)
        ctx.layer = layer
        return product.transpose(0, 1).reshape(B, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w, b = ctx.saved_tensors
        layer, gy = ctx.layer, gradients[0]
        rows = _by_model(x, w, layer)
        Q = rows.shape[0]
        gy = gy.view(gy.shape[0], Q, -1).transpose(0, 1)  # [Q,B,O]
        gx = None
        if ctx.needs_input_grad[0]:
            gx = torch.bmm(gy, w.reshape(Q, -1, w.shape[-1])).transpose(0, 1).reshape(x.shape)
        if layer.step is None:
            gw = torch.bmm(gy.transpose(1, 2), rows).view(w.shape)
            return gx, gw, None if b is None else gy.sum(1).view(b.shape), None
        _fused(layer, w, b, gy, rows)
        return gx, None, None, None


def _by_model(x: Tensor, w: Tensor, layer: GroupedLinear) -> Tensor:
    """Return the inputs [Q,B,D] of a layer: per slot where its federations share them, else per model."""
    return x.view(x.shape[0], -1, w.shape[-1]).transpose(0, 1)


def _fused(layer: GroupedLinear, w: Tensor, b: Tensor | None, gy: Tensor, rows: Tensor) -> None:
    """Take a layer's step without writing its gradient."""
    step = layer.step
    assert step is not None
    M, R, out, D = w.shape
    Q = rows.shape[0]
    scaled = gy.transpose(1, 2)  # [Q,O',B]
    rate = step.rate.view(M, R, 1).expand(M, R, out).reshape(Q, -1, 1)
    if step.momentum:
        speed = step.speed[layer.index_weight].view(Q, -1, D)
        speed.baddbmm_(scaled, rows, beta=step.momentum)
        w.view(Q, -1, D).addcmul_(speed, rate, value=-1)
    else:
        w.view(Q, -1, D).baddbmm_(scaled * -rate, rows)
    if b is not None:
        step.move(layer.index_bias, b, gy.sum(1).view(b.shape))


class GroupedLinear(nn.Module):
    """nn.Linear for G models."""

    def __init__(self, index_weight: int, index_bias: int | None) -> None:
        super().__init__()
        self.index_weight, self.index_bias = index_weight, -1 if index_bias is None else index_bias
        self.step: Step | None = None
        self.weight: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _Linear.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return out


class GroupedConv2d(nn.Module):
    """nn.Conv2d for G models."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise NotImplementedError(f"padding {layer.padding} {layer.padding_mode}")
        self.stride, self.padding, self.dilation, self.groups = layer.stride, layer.padding, layer.dilation, layer.groups
        self.weight: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        groups = x.shape[1] // self.weight.shape[3]  # slots where the input is shared, models where it is not
        bias = None if self.bias is None else self.bias.flatten()
        return F.conv2d(x, self.weight.flatten(0, 2), bias, self.stride, self.padding, self.dilation, groups)


class GroupedNorm(nn.Module):
    """nn.GroupNorm for G models."""

    def __init__(self, layer: nn.GroupNorm) -> None:
        super().__init__()
        self.groups, self.channels, self.eps = layer.num_groups, layer.num_channels, layer.eps
        self.weight: Tensor | None
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        models = x.shape[1] // self.channels
        weight = None if self.weight is None else self.weight.flatten()
        return F.group_norm(x, self.groups * models, weight, None if self.bias is None else self.bias.flatten(), self.eps)


@dataclass(frozen=True)
class Grouped:
    """A module whose layers take stacked parameters."""

    module: nn.Module
    slots: tuple[tuple[nn.Module, str, int], ...]  # (layer, attribute, which parameter)
    fused: frozenset[int]  # parameters whose step is taken in the backward pass

    def bind(self, params: Sequence[Tensor | None], step: Step | None) -> None:
        """Give the layers their parameters [M,R,...] and, for training, the step to take."""
        for layer, name, i in self.slots:
            setattr(layer, name, params[i])
            if isinstance(layer, GroupedLinear):
                layer.step = step

    def scores(self, params: Params, x: Tensor, step: Step | None = None) -> Tensor:
        """Return the scores [B,M,R,C] of models [M,R,...] on inputs [B,M,...], one batch per slot."""
        self.bind(params, step)
        out: Tensor = self.module(x.flatten(1, 2))
        return out.view(len(x), *params[0].shape[:2], -1)


def grouped(module: nn.Module) -> Grouped:
    """Return the module as one for many models; NotImplementedError where a layer cannot be grouped."""
    order = {id(p): i for i, p in enumerate(module.parameters())}
    slots: list[tuple[nn.Module, str, int]] = []
    whole = _replaced(copy.deepcopy(module), module, order, slots)
    if len({i for _, _, i in slots}) < len(order):
        raise NotImplementedError("parameters outside layers")
    fused = {i for layer, _, i in slots if isinstance(layer, GroupedLinear)}
    return Grouped(whole, tuple(slots), frozenset(fused))


def _replaced(mine: nn.Module, theirs: nn.Module, order: dict[int, int], slots: list[tuple[nn.Module, str, int]]) -> nn.Module:
    """Replace the layers of a copy of a module, and note which parameter each one takes."""
    made = _layer(theirs, order)
    if made is not None:
        for name in ("weight", "bias"):
            p = getattr(theirs, name, None)
            if p is None:
                setattr(made, name, None)
            else:
                slots.append((made, name, order[id(p)]))
        return made
    if not list(theirs.children()) and not isinstance(theirs, (*HARMLESS, nn.Flatten)) and type(theirs).__module__.startswith("torch."):
        raise NotImplementedError(type(theirs).__name__)
    for name, child in theirs.named_children():
        setattr(mine, name, _replaced(getattr(mine, name), child, order, slots))
    return mine


def _layer(layer: nn.Module, order: dict[int, int]) -> nn.Module | None:
    makers: dict[type, Callable[[Any], nn.Module]] = {
        nn.Linear: lambda x: GroupedLinear(order[id(x.weight)], None if x.bias is None else order[id(x.bias)]),
        nn.Conv2d: GroupedConv2d,
        nn.GroupNorm: GroupedNorm,
    }
    make = makers.get(type(layer))
    return None if make is None else make(layer)
