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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedpareto.federation.layers import GroupedConv2d, GroupedNorm, Tap, TiledMaxPool2d, tapped

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
    values: Mapping[str, Tensor] = field(default_factory=dict)  # settings, name → [R]
    noise: Params = field(default_factory=list)  # standard normal numbers [M,1,...], if asked for

    def totals(self, params: Params) -> tuple[Params, Tensor]:
        """Return what gradients of this step are added to, and times what, [M,R].

        That is the parameters themselves, or where there is momentum its buffer; `settle` ends it.
        """
        if not self.speed:
            return params, -self.rate
        for speed in self.speed:
            kept = self.momentum
            speed.mul_(of_each(kept, speed) if isinstance(kept, Tensor) else kept)
        return self.speed, torch.ones_like(self.rate)

    def settle(self, params: Params) -> None:
        """Move the parameters by the momentum that gradients were added to."""
        for p, speed in zip(params, self.speed, strict=False):
            p.addcmul_(speed, of_each(self.rate, p), value=-1)

    def move(self, i: int, p: Tensor, gradient: Tensor) -> None:
        """Move one parameter [M,R,...] against its gradient, in place."""
        if self.speed:
            kept = self.momentum
            if isinstance(kept, Tensor):
                kept = of_each(kept, p)
            gradient = self.speed[i].mul_(kept).add_(gradient)
        p.addcmul_(gradient, of_each(self.rate, p), value=-1)


def of_each(numbers: Tensor, p: Tensor) -> Tensor:
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
        if not ctx.needs_input_grad[1]:
            return gx, None, None, None
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
        self.taps: list[Tap] | None = None

    def forward(self, x: Tensor) -> Tensor:
        vars(self)["calls"] += 1
        out: Tensor = _Linear.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return tapped(self, x, out)


@dataclass(frozen=True)
class Grouped:
    """A module whose layers take the stacked parameters of many models."""

    module: nn.Module
    slots: tuple[tuple[nn.Module, str, int], ...]  # (layer, attribute, which parameter)

    def bind(self, params: Sequence[Tensor | None], step: Step | None) -> None:
        """Give the layers their parameters [M,R,...] and, for training, the step to take."""
        for layer, name, i in self.slots:
            held = vars(layer)  # a module looks long at what it is given by its attributes
            held[name] = params[i]
            if isinstance(layer, GroupedLinear):
                held["step"] = step

    def of_layer(self, params: Params, layer: nn.Module) -> tuple[Tensor, Tensor | None]:
        """Return a layer's weight and bias among parameters; None where it has no bias."""
        mine = {name: params[i] for held, name, i in self.slots if held is layer}
        return mine["weight"], mine.get("bias")

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

    def tapped(self, params: Params, x: Tensor) -> tuple[Tensor, list[Tap]]:
        """Return the scores, and what each layer with parameters took and gave, in their order.

        The gradient of the scores is that of what layers gave; parameters have none.
        """
        taps: list[Tap] = []
        for layer, _, _ in self.slots:
            vars(layer)["taps"] = taps
        try:
            return self.scores([p.detach() for p in params], x), taps
        finally:
            for layer, _, _ in self.slots:
                vars(layer)["taps"] = None


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
    if getattr(mine, "inplace", False):
        mine.inplace = False  # type: ignore[assignment]  # what a layer gave is asked for once more after it
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
