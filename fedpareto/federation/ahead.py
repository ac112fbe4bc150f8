"""Noise for one step after another, drawn while the step before is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

MANY = 50_000  # numbers that take longer to draw than handing them to another thread


def filled(draw: Callable[[Tensor], object], out: Tensor, steps: int) -> Iterator[None]:
    """Fill out by draw before each of so many steps; what is drawn, and its order, are the same."""
    if out.is_cuda or out.numel() < MANY:
        for _ in range(steps):
            draw(out)
            yield
        return
    spare = torch.empty_like(out)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(draw, spare)
        for left in reversed(range(steps)):
            waiting.result()
            out.copy_(spare)
            if left:
                waiting = other.submit(draw, spare)
            yield
