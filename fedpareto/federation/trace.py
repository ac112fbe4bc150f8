"""What federations showed, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpareto.federation.spent import BY_SIZE, LARGEST, SUMMED
from fedpareto.space import FloatArray

GROWING = (*SUMMED, *LARGEST, *BY_SIZE, "server_seconds")  # figures that add up over the rounds


@dataclass(frozen=True)
class Trace:
    """What federations showed after every round; nan where a round was not judged.

    The figures, and what each is:
        error, worst_error             share of test images classified wrongly; of the worst client
        loss, worst_loss               mean loss on the test images; of the worst client
        equal_error, equal_loss        means of the clients' own, all clients alike
        local_loss                     mean loss of what clients sent on what they hold, if asked
        upload_bytes, download_bytes   sent and received by all clients so far
        shared, shared_worst           numbers a client has sent so far: mean; of who sent most
        seconds, seconds_worst         of training and protection so far: mean; of the slowest
        shared_by_size                 the means of both, clients counted by what they hold
        seconds_by_size
        round_seconds                  of all rounds so far: slowest client, transfers, server
        reading_seconds                of decryption so far, mean over a round's clients
        server_seconds                 that the server has spent on adding uploads so far
    """

    figures: Mapping[str, FloatArray]  # name → [R,T]
    withheld: FloatArray  # [R,T,M] size of what each client keeps private; nan for who is absent
    diverged: FloatArray  # [R] round in which training diverged, nan where it did not
    parameters: FloatArray  # [R] parameters of the model
    held: FloatArray  # [R,T,M] examples of each client that withheld knows

    @property
    def rounds(self) -> int:
        """T, the rounds trained."""
        return int(next(iter(self.figures.values())).shape[1])

    def rows(self, keep: NDArray[np.int64]) -> Trace:
        """Return these rows alone."""
        figures = {name: column[keep] for name, column in self.figures.items()}
        withheld = self.withheld[keep]
        parameters, held = self.parameters[keep], self.held[keep]
        return Trace(figures, withheld, self.diverged[keep], parameters, held)


@dataclass(frozen=True)
class Shown:
    """What one round showed."""

    figures: Mapping[str, Tensor]  # name → [S·R]
    withheld: Tensor  # [S,R,M]
    wild: Tensor  # [S,R] whether an update was too long to be training
    held: Tensor  # [S,R,M]


def collected(shown: Sequence[Shown], parameters: Tensor) -> Trace:
    """Put the rounds side by side; parameters [S,R] is the size of each model."""
    figures = {}
    for name in shown[0].figures:
        columns = torch.stack([each.figures[name] for each in shown], dim=1).cpu().numpy()
        figures[name] = np.cumsum(columns, axis=1) if name in GROWING else columns
    withheld = torch.stack([each.withheld for each in shown], dim=2).flatten(0, 1)
    held = torch.stack([each.held for each in shown], dim=2).flatten(0, 1).cpu().numpy()
    wild = torch.stack([each.wild for each in shown], dim=2).flatten(0, 1).cpu().numpy()
    first = np.where(wild.any(axis=1), wild.argmax(axis=1) + 1.0, np.nan)
    sizes = parameters.flatten().cpu().numpy()
    return Trace(figures, withheld.cpu().numpy(), first, sizes, held)
