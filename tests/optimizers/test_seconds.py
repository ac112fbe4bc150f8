"""How long proposals take: seconds of the processor, so that others at work on the machine count little."""

from __future__ import annotations

import time

import numpy as np
import pytest

from fedpareto.history import History
from fedpareto.optimizers import QLogNehvi
from fedpareto.testing import continuous


def three(x):
    radius = 1 + ((x[:, 2:] - 0.5) ** 2).sum(axis=1)
    a, b = x[:, 0] * np.pi / 2, x[:, 1] * np.pi / 2
    return radius[:, None] * np.stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)], axis=1)


@pytest.mark.parametrize("m", [2, 3])
def test_qlognehvi_proposes_five_points_after_a_hundred_within_five_seconds(m):
    problem = continuous(lambda x: three(x)[:, :m], 5, m)
    x = np.random.default_rng(0).random((100, 5))
    x[50:, 2:] = 0.5  # half of them on the front
    history = History.empty(5, m).extend(x, three(x)[:, :m])
    QLogNehvi(steps=1).propose(problem, history, 1, seed=0)  # loads BoTorch, which compiles a part of itself once
    began = time.process_time()
    QLogNehvi().propose(problem, history, 5, seed=0)
    assert time.process_time() - began < 5
