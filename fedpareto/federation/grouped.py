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
from torch.nn.grad import conv2d_weight

Params = list[Tensor]

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
    """y = W x + b for G models; the backward pass takes the step.

    The output [B,G·C] lies in memory with the batch innermost, as [G,C,B]: the next product needs no copy, and a softmax over
    classes runs along whole vectors.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, layer: GroupedLinear) -> Tensor:
        inputs = _by_model(x, w.shape[-1])
        weight = w.reshape(len(inputs), -1, w.shape[-1])
        Q, C, B = len(weight), weight.shape[1], len(x)
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
        inputs, step = _by_model(x, w.shape[-1]), ctx.layer.step
        Q, D, _ = inputs.shape
        weight = w.view(Q, -1, D)
        slope = _by_model(gradients[0], weight.shape[1])  # [Q,C',B]
        gx = _beside(torch.bmm(weight.transpose(1, 2), slope)) if ctx.needs_input_grad[0] else None
        if step is None:
            gw = torch.bmm(slope, inputs.transpose(1, 2)).view(w.shape)
            return gx, gw, None if b is None else slope.sum(2).view(b.shape), None
        _fused(step, ctx.layer, weight, slope, inputs)
        if b is not None:
            step.move(ctx.layer.index_bias, b, slope.sum(2).view(b.shape))
        return gx, None, None, None


def _by_model(x: Tensor, width: int) -> Tensor:
    """Return activations [B,Q·D] as [Q,D,B]: Q is the slots where their federations share them, else the models."""
    return x.reshape(len(x), -1, width).permute(1, 2, 0)


def _beside(x: Tensor) -> Tensor:
    """Return activations [Q,C,B] as [B,Q·C], the models side by side."""
    return x.flatten(0, 1).t()


def _fused(step: Step, layer: GroupedLinear, weight: Tensor, slope: Tensor, inputs: Tensor) -> None:
    """Take the step of weights [Q,C',D] without writing their gradient."""
    rate = step.rate.reshape(len(weight), -1, 1)
    rate = rate.repeat_interleave(weight.shape[1] // rate.shape[1], dim=1)  # [Q,C',1]
    if step.momentum:
        speed = step.speed[layer.index_weight].view(weight.shape)
        speed.baddbmm_(slope, inputs.transpose(1, 2), beta=step.momentum)
        weight.addcmul_(speed, rate, value=-1)
    else:
        weight.baddbmm_(slope * -rate, inputs.transpose(1, 2))


class GroupedLinear(nn.Module):
    """nn.Linear for G models."""

    def __init__(self, index_weight: int, index_bias: int | None) -> None:
        super().__init__()
        self.index_weight, self.index_bias = index_weight, -1 if index_bias is None else index_bias
        self.step: Step | None = None
        self.calls = 0  # a layer called twice in one pass cannot take its step in the middle
        self.weight: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = _Linear.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return out


class _Conv2d(torch.autograd.Function):
    """A grouped convolution of stride 1 whose input gradient is a convolution too, one kernel for all groups."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, padding: tuple[int, int], groups: int
    ) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.padding, ctx.groups, ctx.has_bias = padding, groups, b is not None
        return F.conv2d(x, w, b, 1, padding, 1, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        gy, groups = gradients[0], ctx.groups
        gx = None
        if ctx.needs_input_grad[0]:
            turned = (
                w.view(groups, -1, *w.shape[1:]).transpose(1, 2).flip(3, 4).flatten(0, 1)
            )  # [groups·I,O,h,w]
            room = [k - 1 - p for k, p in zip(w.shape[2:], ctx.padding, strict=True)]
            gx = F.conv2d(gy, turned, None, 1, room, 1, groups)
        gw = conv2d_weight(x, w.shape, gy, 1, ctx.padding, 1, groups)  # type: ignore[no-untyped-call]
        return gx, gw, gy.sum((0, 2, 3)) if ctx.has_bias else None, None, None


class GroupedConv2d(nn.Module):
    """nn.Conv2d for G models."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise NotImplementedError(f"padding {layer.padding} {layer.padding_mode}")
        self.stride, self.padding, self.dilation = layer.stride, layer.padding, layer.dilation
        inside = all(p < k for p, k in zip(layer.padding, layer.kernel_size, strict=True))
        self.simple = set(layer.stride) == set(layer.dilation) == {1} and inside
        self.weight: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        groups = (
            x.shape[1] // self.weight.shape[3]
        )  # slots where the input is shared, models where it is not
        bias = None if self.bias is None else self.bias.flatten()
        weight = self.weight.flatten(0, 2)
        if self.simple:
            out: Tensor = _Conv2d.apply(x, weight, bias, self.padding, groups)  # type: ignore[no-untyped-call]
            return out
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, groups)


class _MaxPool2d(torch.autograd.Function):
    """Max pooling of tiles that do not overlap: each gradient goes back to one place, so it is put there, not searched for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tile: int) -> Tensor:
        out, places = F.max_pool2d(x, tile, return_indices=True)
        ctx.save_for_backward(places)
        ctx.tile, ctx.size = tile, x.shape[2:]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return F.max_unpool2d(
            gradients[0], ctx.saved_tensors[0], ctx.tile, output_size=list(ctx.size)
        ), None


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
        self.groups, self.channels, self.eps = layer.num_groups, layer.num_channels, layer.eps
        self.weight: Tensor | None
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        models = x.shape[1] // self.channels
        weight = None if self.weight is None else self.weight.flatten()
        return F.group_norm(
            x,
            self.groups * models,
            weight,
            None if self.bias is None else self.bias.flatten(),
            self.eps,
        )


@dataclass(frozen=True)
class Grouped:
    """A module whose layers take stacked parameters."""

    module: nn.Module
    slots: tuple[tuple[nn.Module, str, int], ...]  # (layer, attribute, which parameter)

    def bind(self, params: Sequence[Tensor | None], step: Step | None) -> None:
        """Give the layers their parameters [M,R,...] and, for training, the step to take."""
        for layer, name, i in self.slots:
            setattr(layer, name, params[i])
            if isinstance(layer, GroupedLinear):
                layer.step = step

    def called_once(self) -> bool:
        """Say whether no linear layer has been called twice since this was last asked."""
        layers = {
            id(layer): layer for layer, _, _ in self.slots if isinstance(layer, GroupedLinear)
        }
        once = all(layer.calls <= 1 for layer in layers.values())
        for layer in layers.values():
            layer.calls = 0
        return once

    def scores(self, params: Params, x: Tensor, step: Step | None = None) -> Tensor:
        """Return the scores [M,R,C,B] of models [M,R,...] on inputs [B,M,...], one batch per slot."""
        self.bind(params, step)
        out: Tensor = self.module(x.flatten(1, 2))
        return out.view(len(x), *params[0].shape[:2], -1).permute(1, 2, 3, 0)


def grouped(module: nn.Module) -> Grouped:
    """Return the module as one for many models; NotImplementedError where a layer cannot be grouped."""
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
    if (
        not list(theirs.children())
        and not isinstance(theirs, (*HARMLESS, nn.Flatten))
        and type(theirs).__module__.startswith("torch.")
    ):
        raise NotImplementedError(type(theirs).__name__)
    for name, child in theirs.named_children():
        setattr(mine, name, _replaced(getattr(mine, name), child, order, slots))
    return mine


def _layer(layer: nn.Module, order: dict[int, int]) -> nn.Module | None:
    makers: dict[type, Callable[[Any], nn.Module]] = {
        nn.Linear: lambda x: GroupedLinear(
            order[id(x.weight)], None if x.bias is None else order[id(x.bias)]
        ),
        nn.Conv2d: GroupedConv2d,
        nn.GroupNorm: GroupedNorm,
    }
    if TiledMaxPool2d.fits(layer):
        return TiledMaxPool2d(layer)  # type: ignore[arg-type]
    make = makers.get(type(layer))
    return None if make is None else make(layer)
