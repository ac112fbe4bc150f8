"""Judging models on the test images, all together and client by client."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpareto.errors import SettingError
from fedpareto.federation.data import Dataset
from fedpareto.federation.grouped import Params
from fedpareto.federation.losses import Loss
from fedpareto.federation.measures import function_name
from fedpareto.federation.split import Split
from fedpareto.federation.stack import Stack
from fedpareto.federation.steps import Images
from fedpareto.settings import function_of

FIGURES = ("error", "loss", "worst_error", "worst_loss", "equal_error", "equal_loss")
Own = Callable[[NDArray[Any], NDArray[Any]], float]  # scores [n,C], labels [n] → a number


@dataclass(frozen=True)
class Judge:
    """The test images, and which client's share each belongs to in every repeat."""

    images: Images
    owner: Tensor  # [S,n] client of each test image
    shares: Tensor  # [S,K] images per client
    federations: int  # R, of each repeat
    loss: Loss
    own: tuple[str, ...] = ()  # measures of the user's own, as package.module:function

    @classmethod
    def of(
        cls,
        data: Dataset,
        splits: Sequence[Split],
        federations: int,
        device: str,
        loss: Loss,
        own: tuple[str, ...] = (),
    ) -> Judge:
        """Put the test images onto the device, with the client that holds each."""
        owner = np.empty((len(splits), len(data.y_test)), dtype=np.int64)
        for row, split in zip(owner, splits, strict=True):
            row[split.order] = np.repeat(np.arange(len(split.sizes)), split.sizes)
        x = torch.from_numpy(data.x_test).to(device)
        y = torch.from_numpy(data.y_test).to(device)
        shares = torch.from_numpy(np.stack([split.sizes for split in splits])).float().to(device)
        images = Images(x, y, data.scale, data.shift)
        return cls(images, torch.from_numpy(owner).to(device), shares, federations, loss, own)

    @property
    def names(self) -> tuple[str, ...]:
        """The figures that a judgement has."""
        return (*FIGURES, *self.own)

    @torch.no_grad()
    def __call__(self, stack: Stack, params: Params, own: bool = True) -> dict[str, Tensor]:
        """Return every figure of models [S·R,...], name → [S·R] as float64.

        The user's own are nan where they are not asked for: they may take long.
        """
        models = [p[None] for p in params]
        n, R = len(self.images.y), len(params[0])
        device = self.owner.device
        wrong = torch.empty(R, n, device=device)
        loss = torch.empty(R, n, device=device)
        kept: list[Tensor] = []
        for part in torch.split(torch.arange(n, device=device), images_at_once(stack, R)):
            scores = stack.scores(models, self.images.at(part)[:, None])[0]  # [R,C,b]
            truth = self.images.y[part]
            loss[:, part] = self.loss.each(scores, truth)
            missed = _missed(scores, truth)
            wrong[:, part] = missed.masked_fill(loss[:, part].isnan(), torch.nan)
            if self.own and own:
                kept.append(scores)
        found = {}
        for name, each in (("error", wrong), ("loss", loss)):
            clients = self._by_client(each)
            found[name] = each.mean(1).double()
            found[f"worst_{name}"] = torch.cat([c.amax(1) for c in clients]).double()
            found[f"equal_{name}"] = torch.cat([c.mean(1) for c in clients]).double()
        return found | (self._own(kept) if kept else unjudged(self.own, R, device))

    def _by_client(self, each: Tensor) -> list[Tensor]:
        """Return the mean over each client's share, S × [R,K], from figures per image [S·R,n].

        Clients that hold no test image are left out.
        """
        means = []
        clients = self.shares.shape[1]
        for s, rows in enumerate(torch.split(each, self.federations)):
            sums = torch.zeros(len(rows), clients, device=each.device)
            sums.index_add_(1, self.owner[s], rows)
            held = self.shares[s] > 0
            means.append((sums / self.shares[s])[:, held])
        return means

    def _own(self, kept: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the user's own measures, of all test images or of the clients' shares of them."""
        scores = torch.cat(list(kept), dim=2).transpose(1, 2).cpu().numpy()  # [S·R,n,C]
        labels = self.images.y.cpu().numpy()
        owners = self.owner.cpu().numpy()
        found = {}
        for name in self.own:
            function: Own = function_of(function_name(name))
            _, _, case = name.partition("@")
            values = []
            for i, row in enumerate(scores):
                if case:
                    owner = owners[i // self.federations]
                    values.append(_of_clients(name, function, row, labels, owner))
                else:
                    values.append(called(name, function, row, labels))
            found[name] = torch.tensor(values, dtype=torch.float64, device=self.owner.device)
        return found


def unjudged(names: Sequence[str], n: int, device: Any) -> dict[str, Tensor]:
    """Return nan for each of these figures, name → [n]."""
    nothing = torch.full((n,), torch.nan, dtype=torch.float64, device=device)
    return dict.fromkeys(names, nothing)


def _missed(scores: Tensor, truth: Tensor) -> Tensor:
    """Return 1 where the largest of scores [R,C,b] is not the class, [R,b]; nan of numbers."""
    if truth.is_floating_point():
        return torch.full_like(scores[:, 0], torch.nan)
    return (scores.max(1).indices != truth).float()


def _of_clients(
    name: str,
    function: Own,
    scores: NDArray[Any],
    labels: NDArray[Any],
    owner: NDArray[np.int64],
) -> float:
    """Return a measure of the clients' shares of the test images: the largest value, or a mean.

    The mean counts clients alike, or by their images. A share on which it is not defined, nan or an
    error of its own, does not count.
    """
    values, sizes = [], []
    for client in np.unique(owner):
        mine = owner == client
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = called(name, function, scores[mine], labels[mine])
        except SettingError:
            raise
        except Exception:  # such as AUC where a client holds one class alone
            continue
        if not np.isnan(value):
            values.append(value)
            sizes.append(mine.sum())
    if not values:
        return float("nan")
    if name.endswith("@worst"):
        return max(values)
    return float(np.average(values, weights=sizes if name.endswith("@by_size") else None))


def called(name: str, function: Own, scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return a measure as a number; nan where the scores are not finite."""
    if not np.isfinite(scores).all():
        return float("nan")
    value = function(scores.copy(), labels.copy())  # it may change what it is given
    try:
        return float(value)
    except (TypeError, ValueError):
        raise SettingError(
            f"measure {name!r}: must return one number, found {type(value).__name__}."
        ) from None


def images_at_once(stack: Stack, models: int) -> int:
    """Return how many test images to score at once, so that activations stay small."""
    convolutional = any(isinstance(layer, nn.Conv2d) for layer in stack.module.modules())
    return max(50, (60_000 if convolutional else 600_000) // models)
