"""Who holds which images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.noise import rng

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Images in the order of the clients that hold them."""

    order: Indices  # [N]
    starts: Indices  # [K+1], client k holds order[starts[k]:starts[k+1]]

    def of(self, client: int) -> Indices:
        """Return the images of one client."""
        return self.order[self.starts[client] : self.starts[client + 1]]

    @property
    def sizes(self) -> Indices:
        """[K], how many images each client holds."""
        return np.diff(self.starts)


def iid(images: int, clients: int, seed: int) -> Split:
    """Deal the images at random, in shares that differ by one at the most."""
    starts = np.linspace(0, images, clients + 1).astype(np.int64)
    return Split(rng(seed, "split", images).permutation(images), starts)
