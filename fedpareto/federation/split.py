"""Deal the images of a data set to clients: one function per kind of split.

The same seed gives the same split. A client's share of the test images follows the same proportions
as its training images.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError, guarded, told
from fedpareto.federation.data import Data, load
from fedpareto.noise import derive, rng
from fedpareto.settings import function_of

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Which client holds which images: the images sorted by client."""

    order: Indices  # [N]
    starts: Indices  # [K+1], client k holds order[starts[k]:starts[k+1]]

    def of(self, client: int) -> Indices:
        """Return the images of one client."""
        return self.order[self.starts[client] : self.starts[client + 1]]

    @property
    def sizes(self) -> Indices:
        """Return how many images each client holds, [K]."""
        return np.diff(self.starts)

    @classmethod
    def by_owner(cls, owner: Indices, clients: int) -> Split:
        """Return the split in which image i belongs to client owner[i]."""
        sizes = np.bincount(owner, minlength=clients)
        return cls(np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(sizes)]))


def iid(labels: Indices, data: Data, seed: int) -> Split:
    """Deal the images at random, in shares that differ by at most one image."""
    n = len(labels)
    starts = np.linspace(0, n, data.clients + 1).astype(np.int64)
    return Split(rng(seed, "split", n).permutation(n), starts)


def dirichlet(labels: Indices, data: Data, seed: int) -> Split:
    """Deal each class in shares drawn from Dirichlet(alpha) (label skew)."""
    owner = np.empty(len(labels), dtype=np.int64)
    by_class = np.argsort(labels, kind="stable")
    classes, starts = np.unique(labels[by_class], return_index=True)
    for c, images in zip(classes.tolist(), np.split(by_class, starts[1:]), strict=True):
        mine = rng(seed, "split", len(labels), c).permutation(images)
        shares = rng(seed, "shares", c).dirichlet(np.full(data.clients, data.alpha))
        owner[mine] = _cut(shares, len(mine))
    return Split.by_owner(owner, data.clients)


def unequal(labels: Indices, data: Data, seed: int) -> Split:
    """Deal the images at random, in shares drawn from Dirichlet(alpha)."""
    n = len(labels)
    owner = np.empty(n, dtype=np.int64)
    shares = rng(seed, "shares").dirichlet(np.full(data.clients, data.alpha))
    owner[rng(seed, "split", n).permutation(n)] = _cut(shares, n)
    return Split.by_owner(owner, data.clients)


def shards(labels: Indices, data: Data, seed: int) -> Split:
    """Sort the images by class, cut them into shards, and deal each client data.shards of them."""
    n = len(labels)
    count = data.clients * data.shards
    shuffled = rng(seed, "split", n).permutation(n)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    owner_of_shard = rng(seed, "shards").permutation(count) % data.clients
    shard = np.arange(n) * count // n
    owner = np.empty(n, dtype=np.int64)
    owner[by_class] = owner_of_shard[shard]
    return Split.by_owner(owner, data.clients)


def by_site(sites: Indices | None, data: Data) -> Split:
    """Deal each record to the client that is its site."""
    if sites is None:
        raise DataError(
            "data.split: site needs data that name the site of each record, found none. Name the "
            "column of a table as data.site, or put the arrays site_train and site_test into the "
            ".npz file."
        )
    found = int(sites.max()) + 1
    if found > data.clients:
        raise DataError(
            f"data.clients: must be the number of sites, {found}, found {data.clients}. Write "
            f"clients = {found}."
        )
    return Split.by_owner(sites.astype(np.int64), data.clients)


def dealt(labels: Indices, data: Data, seed: int, sites: Indices | None = None) -> Split:
    """Deal records in the way that the data name, perhaps by a function of the user's own."""
    if data.split == "site":
        return by_site(sites, data)
    if data.split in SPLITS:
        return SPLITS[data.split](labels, data, seed)
    where = f"data.split: {data.split!r}"
    function = function_of(data.split)
    try:
        with guarded():
            found = function(labels.copy(), data.clients, rng(seed, "split", len(labels)))
            owner = np.asarray(found)
    except Exception as error:
        raise DataError(
            f"{where} must return the client of each record, found {told(error)}."
        ) from error
    if owner.shape != (len(labels),) or owner.dtype.kind not in "iu":
        raise DataError(
            f"{where} must return a whole number for each of {len(labels):,} records, found "
            f"{owner.dtype} of shape {owner.shape}."
        )
    if owner.min() < 0 or owner.max() >= data.clients:
        raise DataError(
            f"{where} must return clients from 0 to {data.clients - 1}, found {owner.min()} to "
            f"{owner.max()}."
        )
    return Split.by_owner(owner.astype(np.int64), data.clients)


def _cut(shares: NDArray[np.float64], n: int) -> Indices:
    """Return the owner of each of n images, so that client k has about shares[k] of them."""
    ends = np.round(np.cumsum(shares) * n).astype(np.int64)
    return np.searchsorted(ends, np.arange(n), side="right").clip(max=len(shares) - 1)


SPLITS: dict[str, Callable[[Indices, Data, int], Split]] = {
    "dirichlet": dirichlet,
    "iid": iid,
    "shards": shards,
    "unequal": unequal,
}


# the seed of a split that is the same in every training: where data are private or records hidden
FIXED_SPLIT = 0
TRIES = 50  # of a split that leaves no client without an image
MOST_WORK = 3 * 10**7  # numbers drawn by all tries, seconds of work
CLASS_WORK = 1000  # numbers that could be drawn in the time that a class takes otherwise


def deal(labels: Indices, data: Data, seed: int, sites: Indices | None = None) -> tuple[Split, int]:
    """Deal training images so that every client gets one; return the split and its seed."""
    _check(labels, data)
    tries = 1 if data.split == "site" else _tries(labels, data)
    for attempt in range(tries):
        drawn = derive(seed, "deal", attempt)
        split = dealt(labels, data, drawn, sites)
        empty = np.flatnonzero(split.sizes == 0)
        if not len(empty):
            return split, drawn
    raise DataError(
        f"data.split: every client must hold an image, found {len(empty)} of {data.clients} with "
        f"none (client {empty[0]} the first) in the last of {tries} {data.split} splits. Raise "
        "data.alpha, or lower data.clients."
    )


def _check(labels: Indices, data: Data) -> None:
    """Refuse a split that these labels cannot have."""
    if labels.dtype.kind == "f" and data.split in ("dirichlet", "shards"):
        raise DataError(
            f"data.split: must be iid or unequal where numbers are predicted, found {data.split}: "
            "there are no classes to deal by."
        )
    if data.split == "shards" and data.clients * data.shards > len(labels):
        raise DataError(
            "data.shards: every shard must hold an image, so clients × shards at most "
            f"{len(labels):,}, found {data.clients * data.shards:,}. Lower either."
        )
    if data.clients > len(labels):
        raise DataError(
            f"data.clients: every client must hold an image, so at most {len(labels):,} clients, "
            f"found {data.clients:,}. Lower data.clients."
        )


def _tries(labels: Indices, data: Data) -> int:
    """Return how often a split may be drawn, so that dealing ends within seconds."""
    work = len(labels) + data.clients
    if data.split == "dirichlet":
        classes = len(np.unique(labels))
        work = len(labels) + classes * (CLASS_WORK + data.clients)
        if work > MOST_WORK:
            raise DataError(
                "data.split: dirichlet draws a share for every class and client, so classes × "
                f"(clients + {CLASS_WORK:,}) must be at most {MOST_WORK - len(labels):,}, found "
                f"{classes:,} classes and {data.clients:,} clients. Use iid, unequal or shards, or "
                "lower data.clients."
            )
    return max(1, min(TRIES, MOST_WORK // work))


@functools.lru_cache(maxsize=64)
def fixed_sizes(data: Data) -> tuple[int, ...]:
    """Return how many images clients hold, [K], where the split is the same in every training."""
    loaded = load(data)
    split, _ = deal(loaded.y_train, data, FIXED_SPLIT, loaded.sites_train)
    return tuple(split.sizes.tolist())
