"""What the tests of rounds share: train some federations and return their trace."""

from __future__ import annotations

from fedpareto.federation.block import prepare
from fedpareto.federation.run import run
from fedpareto.federation.trace import Trace


def train(repeats, values, models, slots, device="cpu") -> Trace:
    return run(prepare(repeats, values, models, slots, device))[0]
