"""Local steps of many models in one pass. This is the only file that knows CUDA graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpareto.federation.ahead import filled
from fedpareto.federation.grouped import Params, Step
from fedpareto.federation.local import ClipsRecords, LocalStep, MiniBatch, Sgd
from fedpareto.federation.losses import CrossEntropy, Loss
from fedpareto.federation.stack import Stack, unflatten
from fedpareto.threads import training_threads

NO_STEP = -2  # in place of an image where a slot takes no step; −1 where a mini-batch is padded
Where = tuple[Tensor, ...]  # places [n] in each of two dimensions
SMALL = 1e7  # multiplications in a step below which a second thread costs more than it gives


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
        """Write the inputs at these places into memory that is there already.

        Giving large memory back and asking for it again costs more than reading.
        """
        torch.index_select(self.x.flatten(1), 0, picks.flatten(), out=raw)
        torch.mul(raw, self.scale, out=out)
        if self.shift:
            out.add_(self.shift)
        return out.view(*picks.shape, *self.x.shape[1:])


@dataclass(frozen=True)
class Recipe:
    """How every client trains: the model, the loss, and how one mini-batch step is taken."""

    stack: Stack
    momentum: float | None = 0.0  # None where each federation has its own
    loss: Loss = field(default_factory=CrossEntropy)
    local: LocalStep = field(default_factory=Sgd)


class LocalSteps:
    """The local steps of M slots × R federations, in fixed memory that a CUDA graph can replay."""

    def __init__(
        self,
        recipe: Recipe,
        images: Images,
        slots: int,
        federations: int,
        picks: Tensor,
        thin: Sequence[Tensor | None] = (),
        values: Mapping[str, Tensor] | None = None,
    ) -> None:
        device = images.x.device
        self.recipe = recipe
        self.images = images
        self.thin = thin  # which parameters there are, [S,1,R,...] each; None or nothing for all
        shapes = [(slots, federations, *p.shape) for p in recipe.stack.initial]
        self.params = [torch.zeros(shape, device=device).requires_grad_() for shape in shapes]
        each = torch.zeros(slots, federations, device=device)
        speed = []
        if recipe.momentum != 0:
            speed = [torch.zeros_like(p, requires_grad=False) for p in self.params]
        momentum = torch.zeros_like(each) if recipe.momentum is None else recipe.momentum
        self.step = Step(each, momentum, speed, values or {})
        self.noise: Tensor | None = None  # [M,P] standard normal numbers for the next step
        if isinstance(recipe.local, ClipsRecords):
            self.noise = torch.zeros(slots, recipe.stack.size, device=device)
            self.step.noise = [p[:, None] for p in unflatten(self.noise, recipe.stack.initial)]
        self.rate = torch.zeros_like(each)
        self.picks = torch.zeros_like(picks)  # [steps,B,M]
        self.now = torch.zeros(1, dtype=torch.int64, device=device)  # which step is next
        rows = images.x.flatten(1)
        self.raw = rows.new_empty(picks[0].numel(), rows.shape[1])
        self.inputs = torch.empty_like(self.raw, dtype=torch.float32)
        self.graph = self._capture() if device.type == "cuda" else None

    def _once(self, width: int | None = None) -> None:
        """Take the next step; padding counts nothing, and a slot without a step stays put.

        width is how many images there are in the largest mini-batch; all that fit if left out.
        """
        picks = self.picks.index_select(0, self.now)[0, :width]  # [B,M], −1 where padded
        present = picks >= 0
        taken = present.any(0) if self.noise is None else picks[0] != NO_STEP  # [M]
        torch.mul(taken.float()[:, None], self.rate, out=self.step.rate)
        safe = picks.clamp_min(0)
        rows = safe.numel()
        x = self.images.into(self.raw[:rows], self.inputs[:rows], safe)
        y = self.images.y.index_select(0, safe.flatten()).view(safe.shape)
        batch = MiniBatch(x, y, self._weights(present.float()))
        recipe = self.recipe
        recipe.local.descend(recipe.stack, self.params, batch, recipe.loss, self.step)
        with torch.no_grad():
            for p, there in zip(self.params, self.thin, strict=False):
                if there is not None:
                    p.view(len(there), -1, *there.shape[2:]).mul_(there)
        self.now += 1

    def _widths(self, picks: Tensor) -> Sequence[int | None]:
        """Return how many places of each step are used, where mini-batches differ in size.

        picks is [steps,B,M].
        """
        if self.noise is None or self.graph is not None:
            return [None] * len(picks)
        widths: list[int] = (picks >= 0).any(2).sum(1).clamp_min(1).tolist()
        return widths

    def _weights(self, there: Tensor) -> Tensor:
        """Return what each record there is [B,M] counts in its batch's mean, [B,M] or [B,M,R].

        Where records are hidden, the divisor must not tell how many there are.
        """
        if self.noise is None:
            return there / there.sum(0).clamp_min(1)
        return there[:, :, None] / self.step.values["batch_size"]

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record one step as a CUDA graph, after the few that CUDA wants to warm up with."""
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
    def _begin(self, start: Params, picks: Tensor, rate: Tensor, momentum: Tensor | None) -> None:
        for p, s in zip(self.params, start, strict=True):
            p.copy_(s)
        for v in self.step.speed:
            v.zero_()
        self.picks[: len(picks)] = -1
        self.picks[: len(picks), : picks.shape[1]] = picks
        self.rate.copy_(rate)
        if isinstance(self.step.momentum, Tensor) and momentum is not None:
            self.step.momentum.copy_(momentum)
        self.now.zero_()

    def run(
        self,
        start: Params,
        picks: Tensor,
        rate: Tensor,
        momentum: Tensor | None = None,
        ends: NDArray[np.int64] | None = None,
        draw: Callable[[Tensor], object] | None = None,
    ) -> Tensor:
        """Train models [M,R,...] on picks [steps,B,M], −1 padded, at rates [R]: updates [M,R,P].

        momentum [R] is each federation's own, where the recipe has none for all. Rates and momentum
        may differ among slots too, [M,R]. ends [M,R] says after how many steps each model is done;
        all are after the last if it is left out. draw fills [M,P] with standard normal numbers for
        the noise of the next step, where records are hidden.
        """
        self._begin(start, picks, rate, momentum)
        early = {} if ends is None else _early(ends, len(picks))
        kept = []
        noises: Iterator[None] = repeat(None)
        if self.noise is not None and draw is not None:
            noises = filled(draw, self.noise, len(picks))
        for done, (width, _) in enumerate(zip(self._widths(picks), noises, strict=False), 1):
            if self.graph is None:
                self._once(width)
            else:
                self.graph.replay()
            if done in early:
                kept.append((early[done], self._moved(start, early[done])))
        update = self._moved(start, None)
        for where, moved in kept:
            update[where] = moved
        return update

    @torch.no_grad()
    def _moved(self, start: Params, where: Where | None) -> Tensor:
        """Return how far models have moved: all, [M,R,P], or those at some places, [n,P]."""
        now = zip(self.params, start, strict=True)
        if where is None:
            return torch.cat([(p - s).flatten(2) for p, s in now], dim=2)
        return torch.cat([(p[where] - s[where]).flatten(1) for p, s in now], dim=1)


def _early(ends: NDArray[np.int64], steps: int) -> dict[int, Where]:
    """Return which models [M,R] are done before the last step, step → where.

    They train on with the others, since to leave them out would change how the others round; what
    they had learned by then is what counts.
    """
    early = np.unique(ends[ends < steps]).tolist()
    return {step: tuple(map(torch.from_numpy, np.nonzero(ends == step))) for step in early}


@contextlib.contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Use one thread where a step has little work, in multiplications.

    Waking a second thread would cost more than it gives.
    """
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
