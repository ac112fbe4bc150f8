"""Local training of many federations in one pass: one module, its parameters stacked over clients and federations.

Stacked parameters are [M,R,...]: M client slots outside, R federations inside, so that the R federations of a slot
share one gather of its images.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

Params = list[Tensor]

SMALL = 5e7


@dataclass(frozen=True)
class Stack:
    """A module as a function of stacked parameters."""

    module: nn.Module

    @property
    def initial(self) -> Params:
        return [p.detach() for p in self.module.parameters()]

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return sum(p.numel() for p in self.module.parameters())

    def _one(self, params: Sequence[Tensor], x: Tensor) -> Tensor:
        names = [name for name, _ in self.module.named_parameters()]
        out: Tensor = functional_call(self.module, dict(zip(names, params, strict=True)), (x,))
        return out

    def over_federations(self, params: Params, x: Tensor) -> Tensor:
        """Return the scores [R,B,C] of models [R,...] on shared inputs [B,...]."""
        out: Tensor = vmap(self._one, in_dims=(0, None))(params, x)
        return out

    def over_clients(self, params: Params, x: Tensor) -> Tensor:
        """Return the scores [M,R,B,C] of models [M,R,...] on inputs [M,B,...], one batch per client slot."""
        out: Tensor = vmap(self.over_federations)(params, x)
        return out


def losses(scores: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy [...,B] of scores [...,B,C] for labels that broadcast to [...,B]."""
    labels = y.expand(scores.shape[:-1])
    return cross_entropy(scores.flatten(0, -2), labels.flatten(), reduction="none").view(labels.shape)


def per_federation(value: Tensor, like: Tensor) -> Tensor:
    """Shape [R] so that it multiplies a stacked parameter [M,R,...]."""
    return value.view(1, -1, *[1] * (like.dim() - 2))


def local_step(stack: Stack, params: Params, x: Tensor, y: Tensor, kept: Tensor, rate: Tensor,
               momentum: float, speed: Params) -> None:
    """Take one SGD step in place.

    x [M,B,...], y [M,B]; kept [M,B] is 0 where a batch is padded; rate [R]. A client slot whose batch is all padding
    does not move.
    """
    for p in params:
        p.requires_grad_()
    loss = losses(stack.over_clients(params, x), y[:, None]) * (kept / kept.sum(1, keepdim=True).clamp_min(1))[:, None]
    gradients = torch.autograd.grad(loss.sum(), params)
    moves = kept.any(1)
    with torch.no_grad():
        for p, v, g in zip(params, speed, gradients, strict=True):
            p.requires_grad_(False)
            here = moves.view(-1, *[1] * (p.dim() - 1))
            if momentum:
                v.copy_(torch.where(here, momentum * v + g, v))
                g = torch.where(here, v, 0.0)
            p.sub_(per_federation(rate, p) * g)


def local_training(stack: Stack, start: Params, batches: Iterable[tuple[Tensor, Tensor, Tensor]], rate: Tensor,
                   momentum: float, slots: int) -> Tensor:
    """Train every slot from the same global models [R,...] and return the updates [R,M,P]."""
    params = [p.expand(slots, *p.shape).clone() for p in start]
    speed = [torch.zeros_like(p) if momentum else p for p in params]
    for x, y, kept in batches:
        local_step(stack, params, x, y, kept, rate, momentum, speed)
    return torch.cat([(p - s).flatten(2) for p, s in zip(params, start, strict=True)], dim=2).transpose(0, 1)


def unflatten(flat: Tensor, like: Params) -> Params:
    """Cut vectors [R,P] into parameters [R,...]."""
    pieces = torch.split(flat, [p.numel() for p in like], dim=1)
    return [piece.view(-1, *p.shape) for piece, p in zip(pieces, like, strict=True)]


@contextlib.contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Use one thread where a step has little work, in multiplications: waking a second one would cost more than it gives."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < SMALL else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module with its own random numbers, leaving the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
