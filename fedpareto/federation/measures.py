"""Measures: what a training showed and its settings say, as one number per federation. Objectives pick them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.privacy import kang23_eq13
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from fedpareto.federation.rounds import Trace

Columns = Mapping[str, FloatArray]  # every setting, name → [R]


@dataclass(frozen=True)
class Measure:
    """A named number; reference is its natural largest value, where it has one."""

    help: str
    compute: Callable[[Trace, Columns], FloatArray]
    reference: float | None = None
    needs: tuple[str, ...] = ()
    proxy: str | None = None
    worst: str | None = None  # the measure for the worst client, where clients differ


def _at_last_round(figures: FloatArray, settings: Columns) -> FloatArray:
    """Return figures [R,T] at each federation's own last round, [R]."""
    return np.asarray(figures[np.arange(len(figures)), settings["rounds"].astype(int) - 1])


MEASURES: dict[str, Measure] = {
    "test_error": Measure("share of test images classified wrongly by the final model",
                          lambda trace, s: _at_last_round(trace.error, s), reference=1.0, worst="test_error_worst"),
    "test_loss": Measure("mean cross-entropy of the final model on the test images",
                         lambda trace, s: _at_last_round(trace.loss, s), worst="test_loss_worst"),
    "test_error_worst": Measure("test error of the client whose share of the test images fares worst",
                                lambda trace, s: _at_last_round(trace.worst_error, s), reference=1.0),
    "test_loss_worst": Measure("test loss of the client whose share of the test images fares worst",
                               lambda trace, s: _at_last_round(trace.worst_loss, s)),
    "kang23_eq13": Measure("leakage of randomization, from 0 to 1, by Kang 2023, Eq. 13",
                           lambda trace, s: kang23_eq13(s["sigma"], s["clipping_norm"], trace.parameters),
                           reference=1.0, needs=("sigma", "clipping_norm"), proxy="Kang 2023, Eq. 13"),
    "upload_bytes": Measure("bytes sent by all clients over all rounds",
                            lambda trace, s: _at_last_round(trace.upload_bytes, s)),
}
