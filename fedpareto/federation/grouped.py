"""Run one module for many models at once: the channels of all models lie side by side.

An activation is [B, G·C, ...]: the channels of G models in a row. Convolutions become grouped,
linear layers batched products, group norms get G times the groups; pooling, activations, sums and
flattening work as they are. Where a module does something else with channels, `grouped` refuses and
the caller falls back on torch.func.vmap.

Stacked parameters are [M,R,...]: M client slots, R federations each, G = M·R. The input is [B, M·C,
...]: the R federations of a slot share it, so their first layers are one product. A linear layer's
step of SGD is fused into its backward pass: the gradient is never written.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

Params = list[Tensor]

# Layers without parameters that treat each channel alone.
HARMLESS = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Identity,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.ZeroPad2d,
)


@dataclass
class Step:
    """One step of SGD for every model."""

    rate: Tensor  # [M,R]
    momentum: float | Tensor  # one for all, or each model's own, [M,R]
    speed: Params  # the momentum buffer of each parameter; empty where nothing has momentum

    def move(self, i: int, p: Tensor, gradient: Tensor) -> None:
        """Move one parameter [M,R,...] against its gradient, in place."""
        if self.speed:
            kept = self.momentum
            if isinstance(kept, Tensor):
                kept = _of_each(kept, p)
            gradient = self.speed[i].mul_(kept).add_(gradient)
        p.addcmul_(gradient, _of_each(self.rate, p), value=-1)


def _of_each(numbers: Tensor, p: Tensor) -> Tensor:
    """Return a number of each model [M,R], to broadcast with a parameter [M,R,...]."""
    return numbers.view(*numbers.shape, *[1] * (p.dim() - 2))


class _Linear(torch.autograd.Function):
    """Computes y = W x + b for G models; its backward pass takes the step of SGD.

    The output [B,G·C] lies in memory with the batch innermost, as [G,C,B]: the next product needs
    no copy, and a softmax over classes runs along whole vectors.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, layer: GroupedLinear) -> Tensor:
        inputs = _by_model(x, w.shape[-1])
        weight = w.reshape(len(inputs), -1, w.shape[-1])
        Q = len(weight)
        C = weight.shape[1]
        B = len(x)
        out = x.new_empty_strided((B, Q * C), (1, B))
        if b is None:
            torch.bmm(weight, inputs, out=out.t().view(Q, C, B))
        else:
            torch.baddbmm(b.reshape(Q, C, 1), weight, inputs, out=out.t().view(Q, C, B))
        ctx.save_for_backward(x, w, b)
        ctx.layer = layer
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w, b = ctx.saved_tensors
        inputs = _by_model(x, w.shape[-1])
        step = ctx.layer.step
        Q, D, _ = inputs.shape
        weight = w.view(Q, -1, D)
        slope = _by_model(gradients[0], weight.shape[1])  # [Q,C',B]
        gx = None
        if ctx.needs_input_grad[0]:
            gx = _beside(torch.bmm(weight.transpose(1, 2), slope))
        gb = None
        if b is not None:
            gb = slope.sum(2).view(b.shape)
        if step is None:
            gw = torch.bmm(slope, inputs.transpose(1, 2)).view(w.shape)
            return gx, gw, gb, None
        _fused(step, ctx.layer, weight, slope, inputs)
        if gb is not None:
            step.move(ctx.layer.index_bias, b, gb)
        return gx, None, None, None


def _by_model(x: Tensor, width: int) -> Tensor:
    """Return activations [B,Q·D] as [Q,D,B].

    Q counts the slots if the federations of a slot share the activations, and else the models.
    """
    return x.reshape(len(x), -1, width).permute(1, 2, 0)


def _beside(x: Tensor) -> Tensor:
    """Return activations [Q,C,B] as [B,Q·C], the models side by side."""
    return x.flatten(0, 1).t()


def _fused(step: Step, layer: GroupedLinear, weight: Tensor, slope: Tensor, inputs: Tensor) -> None:
    """Take the step of weights [Q,C',D] without writing their gradient."""
    rate = _of_rows(step.rate, weight)
    if not step.speed:
        weight.baddbmm_(slope * -rate, inputs.transpose(1, 2))
        return
    speed = step.speed[layer.index_weight].view(weight.shape)
    if isinstance(step.momentum, Tensor):
        speed.mul_(_of_rows(step.momentum, weight)).baddbmm_(slope, inputs.transpose(1, 2))
    else:
        speed.baddbmm_(slope, inputs.transpose(1, 2), beta=step.momentum)
    weight.addcmul_(speed, rate, value=-1)


def _of_rows(numbers: Tensor, weight: Tensor) -> Tensor:
    """Return a number of each model [M,R] for each row of weights [Q,C',D], [Q,C',1]."""
    each = numbers.reshape(len(weight), -1, 1)
    return each.repeat_interleave(weight.shape[1] // each.shape[1], dim=1)


class GroupedLinear(nn.Module):
    """nn.Linear for G models."""

    def __init__(self, index_weight: int, index_bias: int) -> None:
        super().__init__()
        self.index_weight = index_weight
        self.index_bias = index_bias  # -1 without a bias
        self.step: Step | None = None
        self.calls = 0  # a layer called twice in one pass cannot take its step in the middle
        self.weight: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = _Linear.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return out


class _Conv2d(torch.autograd.Function):
    """Computes a grouped convolution of stride 1.

    Its input gradient is a grouped convolution too: one kernel for all groups.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, padding: tuple[int, int], groups: int
    ) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.padding = padding
        ctx.groups = groups
        ctx.has_bias = b is not None
        return F.conv2d(x, w, b, 1, padding, 1, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        gy = gradients[0]
        groups = ctx.groups
        gx = None
        if ctx.needs_input_grad[0]:
            # [groups·I,O,h,w]
            turned = w.view(groups, -1, *w.shape[1:]).transpose(1, 2).flip(3, 4).flatten(0, 1)
            room = [k - 1 - p for k, p in zip(w.shape[2:], ctx.padding, strict=True)]
            gx = F.conv2d(gy, turned, None, 1, room, 1, groups)
        gw = conv2d_weight(x, w.shape, gy, 1, ctx.padding, 1, groups)  # type: ignore[no-untyped-call]
        gb = None
        if ctx.has_bias:
            gb = gy.sum((0, 2, 3))
        return gx, gw, gb, None, None


class GroupedConv2d(nn.Module):
    """nn.Conv2d for G models."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise NotImplementedError(f"padding {layer.padding} {layer.padding_mode}")
        self.stride = layer.stride
        self.padding = layer.padding
        self.dilation = layer.dilation
        inside = all(p < k for p, k in zip(layer.padding, layer.kernel_size, strict=True))
        self.simple = set(layer.stride) == set(layer.dilation) == {1} and inside
        self.weight: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        # as many as slots if the federations of a slot share the input, else as many as models
        groups = x.shape[1] // self.weight.shape[3]
        bias = _flat(self.bias)
        weight = self.weight.flatten(0, 2)
        if self.simple:
            out: Tensor = _Conv2d.apply(x, weight, bias, self.padding, groups)  # type: ignore[no-untyped-call]
            return out
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, groups)


def _flat(p: Tensor | None) -> Tensor | None:
    """Return a stacked parameter [M,R,C] as [M·R·C]; None where the layer has none."""
    if p is None:
        return None
    return p.flatten()


class _MaxPool2d(torch.autograd.Function):
    """Computes max pooling of tiles that do not overlap.

    Each gradient goes back to one place, so that the backward pass puts it there by index.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, tile: int) -> Tensor:
        out, places = F.max_pool2d(x, tile, return_indices=True)
        ctx.save_for_backward(places)
        ctx.tile = tile
        ctx.size = x.shape[2:]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        places = ctx.saved_tensors[0]
        gx = F.max_unpool2d(gradients[0], places, ctx.tile, output_size=list(ctx.size))
        return gx, None


class TiledMaxPool2d(nn.Module):
    """nn.MaxPool2d whose tiles do not overlap."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        super().__init__()
        self.tile = int(layer.kernel_size)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _MaxPool2d.apply(x, self.tile)  # type: ignore[no-untyped-call]
        return out

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        """Say whether a layer is a max pooling of square tiles that do not overlap."""
        return (
            type(layer) is nn.MaxPool2d
            and isinstance(layer.kernel_size, int)
            and layer.stride == layer.kernel_size
            and layer.padding == 0
            and layer.dilation == 1
            and not layer.ceil_mode
            and not layer.return_indices
        )


class GroupedNorm(nn.Module):
    """nn.GroupNorm for G models."""

    def __init__(self, layer: nn.GroupNorm) -> None:
        super().__init__()
        self.groups = layer.num_groups
        self.channels = layer.num_channels
        self.eps = layer.eps
        self.weight: Tensor | None
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        models = x.shape[1] // self.channels
        return F.group_norm(x, self.groups * models, _flat(self.weight), _flat(self.bias), self.eps)


@dataclass(frozen=True)
class Grouped:
    """A module whose layers take the stacked parameters of many models."""

    module: nn.Module
    slots: tuple[tuple[nn.Module, str, int], ...]  # (layer, attribute, which parameter)

    def bind(self, params: Sequence[Tensor | None], step: Step | None) -> None:
        """Give the layers their parameters [M,R,...] and, for training, the step to take."""
        for layer, name, i in self.slots:
            setattr(layer, name, params[i])
            if isinstance(layer, GroupedLinear):
                layer.step = step

    def called_once(self) -> bool:
        """Say whether no linear layer was called twice since the last call of this method."""
        layers = [layer for layer, _, _ in self.slots if isinstance(layer, GroupedLinear)]
        once = all(layer.calls <= 1 for layer in layers)
        for layer in layers:
            layer.calls = 0
        return once

    def scores(self, params: Params, x: Tensor, step: Step | None = None) -> Tensor:
        """Return the scores [M,R,C,B] of models [M,R,...] on inputs [B,M,...], a batch per slot."""
        self.bind(params, step)
        out: Tensor = self.module(x.flatten(1, 2))
        return out.view(len(x), *params[0].shape[:2], -1).permute(1, 2, 3, 0)


def grouped(module: nn.Module) -> Grouped:
    """Return a module for many models; raise NotImplementedError if a layer cannot be grouped."""
    order = {id(p): i for i, p in enumerate(module.parameters())}
    slots: list[tuple[nn.Module, str, int]] = []
    whole = _replaced(copy.deepcopy(module), module, order, slots)
    if sorted(i for _, _, i in slots) != list(range(len(order))):
        raise NotImplementedError("parameters outside layers, or shared by two of them")
    return Grouped(whole, tuple(slots))


def _replaced(
    mine: nn.Module,
    theirs: nn.Module,
    order: dict[int, int],
    slots: list[tuple[nn.Module, str, int]],
) -> nn.Module:
    """Return `mine`, a copy of the module `theirs`, with its layers replaced by grouped ones.

    Which parameter each new layer takes is appended to `slots`.
    """
    made = _layer(theirs, order)
    if made is not None:
        for name in ("weight", "bias"):
            p = getattr(theirs, name, None)
            if p is None:
                setattr(made, name, None)
            else:
                slots.append((made, name, order[id(p)]))
        return made
    innermost = not list(theirs.children())
    known = isinstance(theirs, (*HARMLESS, nn.Flatten))
    if innermost and not known and type(theirs).__module__.startswith("torch."):
        raise NotImplementedError(type(theirs).__name__)
    for name, child in theirs.named_children():
        setattr(mine, name, _replaced(getattr(mine, name), child, order, slots))
    return mine


def _layer(layer: nn.Module, order: dict[int, int]) -> nn.Module | None:
    """Return the grouped form of a layer, or None if it needs none.

    order: the id of each parameter → its index.
    """
    if TiledMaxPool2d.fits(layer):
        return TiledMaxPool2d(layer)  # type: ignore[arg-type]
    if type(layer) is nn.Linear:
        index_bias = -1 if layer.bias is None else order[id(layer.bias)]
        return GroupedLinear(order[id(layer.weight)], index_bias)
    if type(layer) is nn.Conv2d:
        return GroupedConv2d(layer)
    if type(layer) is nn.GroupNorm:
        return GroupedNorm(layer)
    return None
