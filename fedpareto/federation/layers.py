"""Layers for many models at once, their channels side by side; see `grouped`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight


@dataclass(frozen=True)
class Tap:
    """What a layer with parameters took and gave in one pass."""

    layer: Any
    inputs: Tensor  # of a group norm, normalised
    out: Tensor


def tapped(layer: Any, inputs: Tensor, out: Tensor) -> Tensor:
    """Note what a layer took and gave, where somebody asks for it."""
    if layer.taps is not None:
        if not out.requires_grad:  # the first layer of all
            out.requires_grad_()
        layer.taps.append(Tap(layer, inputs.detach(), out))
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
        if not ctx.needs_input_grad[1]:
            return gx, None, None, None, None
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
        self.taps: list[Tap] | None = None

    def forward(self, x: Tensor) -> Tensor:
        # as many as slots if the federations of a slot share the input, else as many as models
        groups = x.shape[1] // self.weight.shape[3]
        bias = flat(self.bias)
        weight = self.weight.flatten(0, 2)
        if self.simple:
            out: Tensor = _Conv2d.apply(x, weight, bias, self.padding, groups)  # type: ignore[no-untyped-call]
        else:
            out = F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, groups)
        return tapped(self, x, out)


def flat(p: Tensor | None) -> Tensor | None:
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
        self.taps: list[Tap] | None = None

    def forward(self, x: Tensor) -> Tensor:
        groups = self.groups * (x.shape[1] // self.channels)
        weight, bias = flat(self.weight), flat(self.bias)
        if self.taps is None or weight is None or bias is None:
            return F.group_norm(x, groups, weight, bias, self.eps)
        inputs = F.group_norm(x, groups, None, None, self.eps)
        out = torch.addcmul(bias[:, None], inputs.flatten(2), weight[:, None]).view(x.shape)
        return tapped(self, inputs, out)
