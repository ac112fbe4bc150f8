"""A module as a function of many models' parameters, tried against each model alone.

Stacked parameters are [M,R,...]: M client slots outside, R federations inside, so that the R
federations of a slot share one gather of its images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedpareto.errors import ModelError, out_of_memory, told
from fedpareto.federation.grouped import Grouped, Params, Step, grouped

SCALES = (0.5, 1.0, 3.0)  # of the trial parameters, in units of their fan-in


@dataclass(frozen=True)
class Stack:
    """A module for many models: grouped where that is exact, else by torch.func.vmap."""

    module: nn.Module
    fast: Grouped | None

    @cached_property
    def names(self) -> list[str]:
        return [name for name, _ in self.module.named_parameters()]

    @property
    def initial(self) -> Params:
        return [p.detach() for p in self.module.parameters()]

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return sum(p.numel() for p in self.module.parameters())

    def scores(self, params: Params, x: Tensor, step: Step | None = None) -> Tensor:
        """Return the scores [M,R,C,B] of models [M,R,...] on inputs [B,M,...], a batch per slot."""
        if self.fast is not None:
            return self.fast.scores(params, x, step)
        inner = vmap(self.alone, in_dims=(0, None))
        out: Tensor = vmap(inner)(params, x.transpose(0, 1).contiguous())  # [M,R,B,C]
        return out.transpose(2, 3)

    def alone(self, params: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the scores [B,C] of one model on inputs [B,...]."""
        named = dict(zip(self.names, params, strict=True))
        out: Tensor = functional_call(self.module, named, (x,))
        return out


_tried: dict[object, bool] = {}  # which models can be grouped: trying a large one takes seconds


def stack_of(model: object, module: nn.Module, shape: tuple[int, ...], classes: int) -> Stack:
    """Return a module that a model has built as a stack; each model is tried once in a process."""
    key = (model, type(module), shape, classes)
    if key not in _tried:
        made = stack(module, shape, classes)
        _tried[key] = made.fast is not None
        return made
    return Stack(module, grouped(module) if _tried[key] else None)


def stack(module: nn.Module, shape: tuple[int, ...], classes: int) -> Stack:
    """Return a module as a stack, after trying that stacked models give what each gives alone."""
    _check_layers(module)
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(4, 2, *shape, generator=draw) * 2  # [B,M,...]
    _check_output(module, x[:, 0].contiguous(), classes)
    params = _trial_parameters(module)
    fast = _grouped(module, params, x)
    if fast is not None:
        return fast
    made = Stack(module, None)
    try:
        if _agrees(made, params, x):
            return made
    except Exception as error:
        if out_of_memory(error):
            raise
        raise ModelError(
            "the model cannot be stacked: its forward pass must be tensor operations alone, "
            "without random numbers, state or branches that depend on data, found: "
            f"{told(error)}"
        ) from error
    raise ModelError(
        "the model cannot be stacked: models side by side must give what each gives alone, found "
        "that they do not. Remove random numbers and state from its forward pass."
    )


def _grouped(module: nn.Module, params: Params, x: Tensor) -> Stack | None:
    """Return a module as a stack that runs once for all models; None where that is not exact."""
    try:
        made = Stack(module, grouped(module))
        return made if _agrees(made, params, x) else None
    except Exception as error:
        if out_of_memory(error):
            raise
        return None


def _check_output(module: nn.Module, x: Tensor, classes: int) -> None:
    """Refuse a module that does not turn inputs, one by one, into scores."""
    try:
        with torch.no_grad():
            out, first = module(x), module(x[:1])
    except Exception as error:
        if out_of_memory(error):
            raise
        raise ModelError(
            f"the model must take inputs of shape {list(x.shape[1:])}, found: "
            f"{told(error)}. Build it for these inputs, or choose other data."
        ) from error
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != len(x):
        found = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ModelError(
            f"the model must give a tensor of scores [batch, classes], found {found} for a batch "
            f"of {len(x)}."
        )
    if out.shape[1] < classes:
        raise ModelError(
            f"the model must give scores for {classes} classes, found {out.shape[1]}. Widen its "
            "last layer."
        )
    if not torch.allclose(out[:1], first, rtol=1e-3, atol=1e-5):
        raise ModelError(
            "the model must score each input by itself and always the same, found that an input's "
            "scores depend on its batch or change from call to call. Remove random numbers and "
            "state; for batch statistics, use nn.GroupNorm."
        )


def _check_layers(module: nn.Module) -> None:
    """Refuse layers with batch statistics or random numbers, and frozen parameters."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ModelError(
                f"the model's layer {name!r} must not keep batch statistics, which do not "
                f"federate, found {type(layer).__name__}. Use nn.GroupNorm."
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise ModelError(
                f"the model's layer {name!r} must not draw random numbers, found "
                f"{type(layer).__name__}. Take it out, or set its p to 0."
            )
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    if frozen:
        raise ModelError(
            f"the model's parameters must all be trained, found {frozen[0]!r} frozen. Make it a "
            "buffer, or let it train."
        )


def _trial_parameters(module: nn.Module) -> Params:
    """Return random parameters of models [2,2], in units of their fan-in."""
    draw = torch.Generator().manual_seed(1)
    drawn = []
    for p in module.parameters():
        fan_in = max(1, math.prod(p.shape[1:]))
        drawn.append(torch.randn(2, 2, *p.shape, generator=draw).mul_(math.sqrt(2 / fan_in)))
    return drawn


@torch.no_grad()
def _agrees(made: Stack, params: Params, x: Tensor) -> bool:
    """Say whether stacked models [2,2] score as each does alone, at every scale of parameters."""
    return all(_agrees_at(made, [p * scale for p in params], x) for scale in SCALES)


def _agrees_at(made: Stack, params: Params, x: Tensor) -> bool:
    together = made.scores(params, x)
    once = made.fast is None or made.fast.called_once()
    if not once:
        return False
    inputs = [x[:, m].contiguous() for m in range(2)]
    rows = [[made.alone([p[m, r] for p in params], inputs[m]) for r in range(2)] for m in range(2)]
    alone = torch.stack([torch.stack(row) for row in rows]).transpose(2, 3)
    near = 1e-4 * float(alone.std())
    return bool(torch.allclose(together, alone, rtol=1e-3, atol=near))


def unflatten(flat: Tensor, like: Params) -> Params:
    """Cut vectors [R,P] into parameters [R,...]."""
    pieces = torch.split(flat, [p.numel() for p in like], dim=1)
    return [piece.view(-1, *p.shape) for piece, p in zip(pieces, like, strict=True)]


def linear_weights(module: nn.Module) -> Tensor:
    """Mark the weights of fully connected layers among a module's parameters, [P]."""
    weights = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Linear)}
    marks = [torch.full((p.numel(),), id(p) in weights) for p in module.parameters()]
    return torch.cat(marks)


def embedded(narrow: Params, wide: Params) -> Params:
    """Put a narrow model's parameters into the first places of the widest model; others are 0."""
    out = [torch.zeros(w.shape) for w in wide]
    for n, o in zip(narrow, out, strict=True):
        o[tuple(slice(size) for size in n.shape)] = n
    return out


def cut_out(wide: Sequence[Tensor], narrow: Sequence[Tensor]) -> Params:
    """Return the parameters of a narrow model from the first places of the widest one's."""
    return [
        w[tuple(slice(size) for size in n.shape)].clone() for w, n in zip(wide, narrow, strict=True)
    ]


def mask(narrow: Params, wide: Params) -> Tensor:
    """Return which parameters of the widest model a narrow one has, [P]."""
    ones = [torch.ones(p.shape) for p in narrow]
    return torch.cat([m.flatten() for m in embedded(ones, wide)]).bool()
