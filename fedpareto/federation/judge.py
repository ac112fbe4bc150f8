"""Judging models on the test images, all together and client by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpareto.federation.data import Dataset
from fedpareto.federation.grouped import Params
from fedpareto.federation.split import Split
from fedpareto.federation.train import Images, Stack


@dataclass(frozen=True)
class Judge:
    """The test images, and which client's share each belongs to in every repeat."""

    images: Images
    owner: Tensor  # [S,n] client of each test image
    shares: Tensor  # [S,K] images per client
    federations: int  # R, of each repeat

    @classmethod
    def of(cls, data: Dataset, splits: Sequence[Split], federations: int, device: str) -> Judge:
        owner = np.empty((len(splits), len(data.y_test)), dtype=np.int64)
        for row, split in zip(owner, splits, strict=True):
            row[split.order] = np.repeat(np.arange(len(split.sizes)), split.sizes)
        images = Images(torch.from_numpy(data.x_test).to(device), torch.from_numpy(data.y_test).to(device), data.scale, data.shift)
        shares = torch.from_numpy(np.stack([split.sizes for split in splits])).float()
        return cls(images, torch.from_numpy(owner).to(device), shares.to(device), federations)

    @torch.no_grad()
    def __call__(self, stack: Stack, params: Params) -> Tensor:
        """Return test error, test loss, and both for the worst client, of models [S·R,...]: [4,S·R]."""
        models = [p[None] for p in params]
        n, R = len(self.images.y), len(params[0])
        wrong, loss = (torch.empty(R, n, device=self.owner.device) for _ in range(2))
        for part in torch.split(torch.arange(n, device=self.owner.device), _images_at_once(stack, R)):
            scores = stack.scores(models, self.images.at(part)[:, None])[0]  # [R,C,b]
            truth = self.images.y[part]
            loss[:, part] = cross_entropy(scores, truth.expand(R, -1), reduction="none")
            missed = (scores.max(1).indices != truth).float()
            wrong[:, part] = missed.masked_fill(loss[:, part].isnan(), torch.nan)
        return torch.stack([wrong.mean(1), loss.mean(1), self._worst(wrong), self._worst(loss)])

    def _worst(self, each: Tensor) -> Tensor:
        """Return the largest mean over a client's share, [S·R], from figures per image [S·R,n]."""
        worst = []
        for s, rows in enumerate(torch.split(each, self.federations)):
            sums = torch.zeros(len(rows), self.shares.shape[1], device=each.device).index_add_(1, self.owner[s], rows)
            held = self.shares[s] > 0
            worst.append((sums / self.shares[s])[:, held].amax(1))
        return torch.cat(worst)


def _images_at_once(stack: Stack, models: int) -> int:
    """Return how many test images to score at once, so that activations stay small."""
    convolutional = any(isinstance(layer, nn.Conv2d) for layer in stack.module.modules())
    return max(50, (60_000 if convolutional else 600_000) // models)
