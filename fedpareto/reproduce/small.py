"""A few images of each data set of the papers, for the quick scale: most of its time went to tests.

They are the first of a fixed shuffle, in files beside the studies that name them.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.federation.data import Data, load
from fedpareto.files import write_whole

FEW = {f"few-{name}.npz": name for name in ("mnist", "fashion-mnist", "cifar10")}
TRAIN = 1000
TEST = 500


def write_few(file: str, folder: Path) -> None:
    """Write the few images that a study file names into its folder, if they are not there."""
    path = folder / file
    if path.is_file():
        return
    data = load(Data(FEW[file]))
    out: dict[str, Any] = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
        keep = np.random.default_rng(0).permutation(len(y))[:count]
        out |= {f"x_{part}": x[keep], f"y_{part}": y[keep]}
    held = io.BytesIO()
    np.savez_compressed(held, **out)
    write_whole(path, held.getvalue())
