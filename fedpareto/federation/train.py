"""Local training of many models in one pass: one module, its parameters stacked over clients and federations.

Stacked parameters are [M,R,...]: M client slots outside, R federations inside, so that the R federations of a slot share one
gather of its images. This is the only file that knows CUDA graphs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import one_hot

from fedpareto.errors import ModelError
from fedpareto.federation.grouped import Grouped, Params, Step, grouped
from fedpareto.threads import training_threads

SMALL = 1e7  # multiplications in a step below which a second thread costs more than it gives


@dataclass(frozen=True)
class Stack:
    """A module as a function of stacked parameters: grouped where that is exact, else by torch.func.vmap."""

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
        """Return the scores [M,R,C,B] of models [M,R,...] on inputs [B,M,...], one batch per slot."""
        if self.fast is not None:
            return self.fast.scores(params, x, step)
        inner = vmap(self._one, in_dims=(0, None))
        out: Tensor = vmap(inner)(params, x.transpose(0, 1).contiguous())  # [M,R,B,C]
        return out.transpose(2, 3)

    def _one(self, params: Sequence[Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(self.module, dict(zip(self.names, params, strict=True)), (x,))
        return out

    def descend(self, params: Params, x: Tensor, y: Tensor, weight: Tensor, step: Step) -> None:
        """Take one step of SGD on cross-entropy, in place; weight [B,M] is what each image counts in its batch's mean."""
        scores = self.scores(params, x, step)
        with torch.no_grad():
            slope = scores.softmax(2)
            slope -= one_hot(y.t(), scores.shape[2]).transpose(1, 2)[:, None]  # [M,1,C,B]
            slope *= weight.t()[:, None, None]
        gradients = torch.autograd.grad(scores, params, slope, allow_unused=True)
        with torch.no_grad():
            for i, (p, gradient) in enumerate(zip(params, gradients, strict=True)):
                if gradient is not None:
                    step.move(i, p, gradient)


def stack(module: nn.Module, shape: tuple[int, ...], classes: int) -> Stack:
    """Return a module as a stack, after trying that stacked models give what each gives alone."""
    _check_layers(module)
    x = torch.rand(4, 2, *shape, generator=torch.Generator().manual_seed(0)) * 2  # [B,M,...]
    _check_output(module, x[:, 0].contiguous(), classes)
    with contextlib.suppress(Exception):
        made = Stack(module, grouped(module))
        if all(_agrees(made, x, scale) for scale in SCALES):
            return made
    made = Stack(module, None)
    try:
        if all(_agrees(made, x, scale) for scale in SCALES):
            return made
    except Exception as error:
        raise ModelError("the model cannot be stacked: its forward pass must be tensor operations alone, without random numbers, "
                         f"state or branches that depend on data, found: {_first_line(error)}") from error
    raise ModelError("the model cannot be stacked: models side by side must give what each gives alone, found that they do not. "
                     "Remove random numbers and state from its forward pass.")


SCALES = (0.5, 1.0, 3.0)  # of the trial parameters, in units of their fan-in


def _check_output(module: nn.Module, x: Tensor, classes: int) -> None:
    """Refuse a module that does not turn inputs, one by one, into scores."""
    try:
        with torch.no_grad():
            out, first = module(x), module(x[:1])
    except Exception as error:
        raise ModelError(f"the model must take inputs of shape {list(x.shape[1:])}, found: {_first_line(error)}. Build it for these "
                         "inputs, or choose other data.") from error
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != len(x):
        found = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ModelError(f"the model must give a tensor of scores [batch, classes], found {found} for a batch of {len(x)}.")
    if out.shape[1] < classes:
        raise ModelError(f"the model must give scores for {classes} classes, found {out.shape[1]}. Widen its last layer.")
    if not torch.allclose(out[:1], first, rtol=1e-3, atol=1e-5):
        raise ModelError("the model must score each input by itself and always the same, found that an input's scores depend on its batch "
                         "or change from call to call. Remove random numbers and state; for batch statistics, use nn.GroupNorm.")


def _check_layers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ModelError(f"the model's layer {name!r} must not keep batch statistics, which do not federate, found "
                             f"{type(layer).__name__}. Use nn.GroupNorm.")
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise ModelError(f"the model's layer {name!r} must not draw random numbers, found {type(layer).__name__}. Take it out, or "
                             "set its p to 0.")
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    if frozen:
        raise ModelError(f"the model's parameters must all be trained, found {frozen[0]!r} frozen. Make it a buffer, or let it train.")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"


@torch.no_grad()
def _agrees(made: Stack, x: Tensor, scale: float) -> bool:
    """Say whether stacked models [2,2] with random parameters score as each does alone."""
    draw = torch.Generator().manual_seed(1)
    params = [torch.randn(2, 2, *p.shape, generator=draw) * scale * math.sqrt(2 / max(1, p[0].numel())) for p in made.initial]
    together = made.scores(params, x)
    alone = torch.stack([torch.stack([made._one([p[m, r] for p in params], x[:, m].contiguous()) for r in range(2)]) for m in range(2)])
    once = made.fast is None or made.fast.called_once()
    return once and bool(torch.allclose(together, alone.transpose(2, 3), rtol=1e-3, atol=1e-4 * float(alone.std())))


@dataclass(frozen=True)
class Images:
    """Data on the device, once, as they are; an input is x * scale + shift."""

    x: Tensor
    y: Tensor
    scale: float
    shift: float

    def at(self, picks: Tensor) -> Tensor:
        """Return the inputs at these places, [*picks, ...]."""
        rows = self.x.flatten(1)
        raw = rows.new_empty(picks.numel(), rows.shape[1])
        return self.into(raw, torch.empty_like(raw, dtype=torch.float32), picks)

    def into(self, raw: Tensor, out: Tensor, picks: Tensor) -> Tensor:
        """Do the same in memory that is there already: giving large memory back and asking for it again costs more than reading."""
        torch.index_select(self.x.flatten(1), 0, picks.flatten(), out=raw)
        torch.mul(raw, self.scale, out=out)
        return (out.add_(self.shift) if self.shift else out).view(*picks.shape, *self.x.shape[1:])


class LocalSteps:
    """The local steps of M slots × R federations, their tensors in fixed places so that a CUDA graph can replay them."""

    def __init__(self, stack: Stack, images: Images, slots: int, federations: int, picks: Tensor, momentum: float,
                 thin: Sequence[Tensor | None] = ()) -> None:
        device = images.x.device
        self.stack, self.images = stack, images
        self.thin = thin  # which parameters there are, [S,1,R,...] each, None for all of one; empty for all
        self.params = [torch.zeros(slots, federations, *p.shape, device=device).requires_grad_() for p in stack.initial]
        speed = [torch.zeros_like(p, requires_grad=False) for p in self.params] if momentum else []
        self.step = Step(torch.zeros(slots, federations, device=device), momentum, speed)
        self.rate = torch.zeros(federations, device=device)
        self.picks = torch.zeros_like(picks)  # [steps,B,M]
        self.now = torch.zeros(1, dtype=torch.int64, device=device)  # which step is next
        rows = images.x.flatten(1)
        self.raw = rows.new_empty(picks[0].numel(), rows.shape[1])
        self.inputs = torch.empty_like(self.raw, dtype=torch.float32)
        self.graph = self._capture() if device.type == "cuda" else None

    def _once(self) -> None:
        """Take the next step; a padded place counts nothing, and a slot without images stays where it is."""
        picks = self.picks.index_select(0, self.now)[0]  # [B,M], −1 where padded
        kept = (picks >= 0).float()
        count = kept.sum(0)  # [M]
        torch.mul((count > 0).float()[:, None], self.rate, out=self.step.rate)
        safe = picks.clamp_min(0)
        x, y = self.images.into(self.raw, self.inputs, safe), self.images.y.index_select(0, safe.flatten()).view(safe.shape)
        self.stack.descend(self.params, x, y, kept / count.clamp_min(1), self.step)
        with torch.no_grad():
            for p, there in zip(self.params, self.thin, strict=False):
                if there is not None:
                    p.view(len(there), -1, *p.shape[1:]).mul_(there)
        self.now += 1

    def _capture(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._once()
                self.now.zero_()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._once()
        return graph

    @torch.no_grad()
    def _begin(self, start: Params, picks: Tensor, rate: Tensor) -> None:
        for p, s in zip(self.params, start, strict=True):
            p.copy_(s)
        for v in self.step.speed:
            v.zero_()
        self.picks[: len(picks)] = picks
        self.rate.copy_(rate)
        self.now.zero_()

    def run(self, start: Params, picks: Tensor, rate: Tensor) -> Tensor:
        """Train from models [M,R,...] on picks [steps,B,M] (−1 where padded) at rates [R]; return the updates [M,R,P]."""
        self._begin(start, picks, rate)
        for _ in picks:
            if self.graph is None:
                self._once()
            else:
                self.graph.replay()
        with torch.no_grad():
            return torch.cat([(p - s).flatten(2) for p, s in zip(self.params, start, strict=True)], dim=2)


def unflatten(flat: Tensor, like: Params) -> Params:
    """Cut vectors [R,P] into parameters [R,...]."""
    pieces = torch.split(flat, [p.numel() for p in like], dim=1)
    return [piece.view(-1, *p.shape) for piece, p in zip(pieces, like, strict=True)]


@contextlib.contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Use one thread where a step has little work, in multiplications: waking a second one would cost more than it gives."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < SMALL else training_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def precision(tf32: bool) -> Iterator[None]:
    """Let CUDA's products and convolutions round their inputs to TF32, or not."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32 = cudnn.allow_tf32 = tf32
    cudnn.benchmark = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module with its own random numbers, leaving the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
