"""Inversion: what picture somebody gets back from an upload."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.audit.base import ENCRYPTED, TRAINS, Finding, Points
from fedpareto.audit.gradients import (
    by_bias,
    by_neuron,
    first_linear,
    gradient_of,
    matched,
    ranks,
    replayed,
)
from fedpareto.audit.pictures import psnr, sheet, ssim
from fedpareto.audit.uploads import Sent, sent
from fedpareto.noise import derive, rng, stream
from fedpareto.problem import tell
from fedpareto.settings import check_fields, setting
from fedpareto.space import FloatArray

FEWEST = 2  # pictures
SHORTEST = 20  # iterations
DARK = 0.02  # how bright the darkest start is, of the span of pixels
SHEET = 10  # pictures on a sheet at the most


@dataclass(frozen=True)
class Inversion:
    """Rebuild the pictures of clients that hold few, from what is seen of the first round."""

    pictures: int = setting(
        10, help="clients that are attacked of each point", at_least=2, at_most=1000, search=False
    )
    images: int = setting(
        1, help="training images that each of them holds", at_least=1, at_most=64, search=False
    )
    starts: int = setting(
        8,
        help="searches from other starts where no linear layer comes first: the best match is kept",
        at_least=1,
        at_most=1000,
        search=False,
    )
    iterations: int = setting(
        400,
        help="steps of the search where no linear layer comes first",
        at_least=SHORTEST,
        at_most=1_000_000,
        search=False,
    )
    strides: int = setting(
        4,
        help="steps in which the search takes a client's local training again, at the most",
        at_least=1,
        at_most=1000,
        search=False,
    )
    candidates: int = setting(
        1000,
        help="training images in the line-up: which of them was it?",
        at_least=10,
        at_most=100_000,
        search=False,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def inapplicable(self, points: Points, view: str) -> str | None:
        """Return why nothing can be rebuilt."""
        if points.problem.private:
            return TRAINS
        if view == "release":
            return "what a model moved by is the sum of a round, divided by a number: see secagg"
        return ENCRYPTED if view == "server" and points.encrypted else None

    def seconds(self, points: Points, view: str) -> float:
        """Return about how long the attack takes, from small ones."""
        small = replace(self, pictures=FEWEST, iterations=SHORTEST)

        def timed(attack: Inversion) -> float:
            began = time.perf_counter()
            attack.audit(points, view, 0)
            return (time.perf_counter() - began) / FEWEST

        replace(small, candidates=10).audit(points, view, 0)  # what is done once takes no part
        one = timed(small)
        if self._how(sent(points, self.seeds(0)[:1], self.images, view))[0] is not None:
            return one * self.pictures
        more = max(0.0, timed(replace(small, iterations=2 * SHORTEST)) - one)
        return (one + more * (self.iterations / SHORTEST - 1)) * self.pictures

    def within(self, share: float) -> Inversion:
        return replace(
            self,
            pictures=max(FEWEST, min(self.pictures, round(2 * self.pictures * share))),
            iterations=max(SHORTEST, int(self.iterations * min(1.0, max(share, share**0.5)))),
        )

    def seeds(self, seed: int) -> list[int]:
        """Return a seed for each client that is attacked: its model, its images, its noise."""
        return [derive(seed, "inversion", i) for i in range(self.pictures)]

    def audit(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Rebuild pictures of each point, and line up candidates."""
        found = sent(points, self.seeds(seed), self.images, view)
        rebuilt, how = self._rebuilt(found, seed, alone=self.images == 1 and view == "server")
        labels = found.labels()
        places = self._lined_up(found, seed)
        return [
            Finding(*self._found(found, rebuilt[:, r], labels[:, r], places[:, r], how))
            for r in range(len(points))
        ]

    def _how(self, found: Sent) -> tuple[slice | None, str]:
        inputs = int(np.prod(found.x.shape[2:]))
        where = first_linear(found.module, inputs)
        return where, "closed form" if where else "matched gradients"

    def _rebuilt(self, found: Sent, seed: int, alone: bool) -> tuple[Tensor, str]:
        """Return what is made of uploads, [S,R,n,...], and how; alone is one image by itself."""
        where, how = self._how(found)
        if where is None:
            made = self._matched(found, seed)
        else:
            made = self._solved(found, where, alone)
        return (made if alone else _nearest(made, found.x)), how

    def _solved(self, found: Sent, where: slice, alone: bool) -> Tensor:
        """Return inputs [S,R,m,...] from the first linear layer: one, or one of each neuron."""
        S, R, P = found.updates.shape
        shape = found.x.shape[2:]
        layer = found.updates.reshape(S * R, P)[:, where]
        inputs = int(np.prod(shape))
        made = by_bias(layer, inputs) if alone else by_neuron(layer, inputs)
        return made.float().clamp(*found.span).view(S, R, -1, *shape)

    def _matched(self, found: Sent, seed: int) -> Tensor:
        """Return inputs [S,R,n,...] whose gradients point where uploads came from."""
        S, R, _ = found.updates.shape
        shape = found.x.shape[1:]
        if self.images == 1:
            labels = found.labels()[:, :, None]
        else:
            labels = found.y[:, None].expand(-1, R, -1)
        gradient = gradient_of(found.module, found.loss)
        device, (low, high) = found.updates.device, found.span
        made = torch.empty(S, R, *shape, device=device)
        for s in range(S):
            drawn = torch.rand(self.starts, *shape, generator=stream(seed, "start", s)).to(device)
            models = found.models[s].expand(self.starts, -1)
            for r in range(R):
                strides = min(self.strides, found.steps[r])
                made[s, r] = matched(
                    replayed(gradient, found.rate[r], strides),
                    models,
                    found.updates[s, r],
                    low + _dimmed(drawn) * (high - low),
                    labels[s, r],
                    self.iterations,
                    found.span,
                    stream(seed, "wander", s, device=str(device)),
                )
                tell((s * R + r + 1) / (S * R))
        return made

    def _lined_up(self, found: Sent, seed: int) -> Tensor:
        """Return the place of the true image among candidates, [S,R]."""
        gradient = gradient_of(found.module, found.loss)
        out = []
        for s in range(len(found.x)):
            n = len(found.records.y)
            others = rng(seed, "line-up", s).permutation(n)
            others = others[~np.isin(others, found.held[s])]
            mine = np.append(found.held[s], others)[: self.candidates]
            x, y = found.at(mine)
            true = range(len(found.held[s]))
            out.append(ranks(gradient, found.models[s], found.updates[s], x, y, true))
        return torch.stack(out)

    def _found(
        self, found: Sent, rebuilt: Tensor, labels: Tensor, places: Tensor, how: str
    ) -> tuple[dict[str, Any], bytes | None]:
        """Return what was found of one point, and originals above what was rebuilt of them."""
        low, high = found.span
        x = found.x.flatten(0, 1).double().cpu().numpy()
        made = rebuilt.flatten(0, 1).double().cpu().numpy()
        mean = found.mean.double().cpu().numpy()
        candidates = min(self.candidates, len(found.records.y))
        near = [psnr(a, b, high - low) for a, b in zip(x, made, strict=True)]
        plain = [psnr(a, mean, high - low) for a in x]
        measures: dict[str, Any] = {
            "psnr": float(np.median(near)),
            "psnr_of_mean": float(np.median(plain)),
            "psnr_each": [round(v, 2) for v in near],
            "above_mean": float(np.mean(np.array(near) > np.array(plain))),
            "lineup": float((places == 0).double().mean()),
            "lineup_place": float(places.double().median()),
            "lineup_chance": self.images / candidates,
            "candidates": candidates,
            "pictures": self.pictures,
            "images": self.images,
            "form": how,
        }
        if found.tells_labels:
            measures["label"] = float((labels == found.y[:, 0]).double().mean())
        if x[0].ndim == 3:
            measures |= {
                "ssim": _median_ssim(x, made, high - low),
                "ssim_of_mean": _median_ssim(x, np.broadcast_to(mean, x.shape), high - low),
            }
        return measures, sheet([list(x[:SHEET]), list(made[:SHEET])], low, high - low)


def _dimmed(drawn: Tensor) -> Tensor:
    """Return numbers [B,...] from 0 to 1 as starts from nearly dark to as bright as drawn."""
    bright = torch.linspace(DARK, 1, len(drawn), device=drawn.device)
    return drawn * bright.view(-1, *[1] * (drawn.dim() - 1))


def _median_ssim(one: FloatArray, other: FloatArray, span: float) -> float:
    return float(np.median([ssim(a, b, span) for a, b in zip(one, other, strict=True)]))


def _nearest(made: Tensor, x: Tensor) -> Tensor:
    """Return for each of several images x [S,n,...] the nearest of what was made [S,R,m,...]."""
    S, R = made.shape[:2]
    true = x[:, None].flatten(3).expand(-1, R, -1, -1)
    apart = torch.cdist(true.double(), made.flatten(3).double())
    best = apart.argmin(3)  # [S,R,n]
    index = best.view(S, R, -1, *[1] * (x.dim() - 2)).expand(-1, -1, -1, *x.shape[2:])
    return made.gather(2, index)
