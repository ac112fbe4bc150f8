"""One measure: how it is computed from a training and its settings, and over which clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.errors import SettingError
from fedpareto.privacy import kang23_eq15
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from fedpareto.federation.trace import Trace

# What protection costs: a measure of the models → what it is without protection
LOST = {"test_error": "unprotected_error", "test_loss": "unprotected_loss"}
CASES = ("worst", "equal", "by_size")  # over which clients, beside the average as a measure has it

Columns = Mapping[str, FloatArray]  # every setting and what follows from settings alone, name → [R]
Compute = Callable[[Any, Columns], FloatArray]  # of a Trace, or of what is known of it


@dataclass(frozen=True)
class Measure:
    """A named number; reference is its natural largest value, where it has one."""

    help: str
    compute: Compute
    # what it is computed from: settings alone; models, by their scores on the test data; costs,
    # what rounds took; raw, what clients hold or withhold, or a training without noise
    source: str
    reference: float | None = None
    # settings and other columns it is computed from, beside those of every study
    needs: tuple[str, ...] = ()
    proxy: str | None = None
    # the same for other cases, where clients differ: for the worst client; for the mean over
    # clients; for the mean by how many examples they hold (Kang 2023, Def. 5, with p = n_k/n)
    worst: str | None = None
    equal: str | None = None
    by_size: str | None = None
    of_one: bool = False  # whether it is of the worst client itself
    same: bool = False  # whether it is the same for every client of a round
    on_request: bool = False  # whether rows hold it only where an objective asks for it
    # costs of rounds that it is computed from; it is known where these follow from the settings
    figures: tuple[str, ...] = ()
    # why it must not be shown where data are private and it does not follow from the settings
    reason: str = "it depends on what clients hold or send, which no noise hides"

    @property
    def judges(self) -> bool:
        """Say whether it tells how good models are, rather than what they leak or cost."""
        return self.source == "models" or bool({*LOST.values()} & {*self.needs})

    def of_case(self, name: str, case: str) -> str | None:
        """Return the measure, called so, for a case; None where there is none."""
        if case == "average" or self.same or self.source == "settings":
            return name
        if case == "worst" and self.of_one:
            return name
        return {"worst": self.worst, "equal": self.equal, "by_size": self.by_size}[case]

    def known_from(self, figures: Columns, columns: Columns) -> FloatArray:
        """Return the measure from figures at each row's own end, without a training."""
        return self.compute(SimpleNamespace(figures=figures), columns)

    def follows(self, columns: Columns, costs: Columns) -> bool:
        """Say whether it is known where these columns and figures are."""
        costs_known = bool(self.figures) and all(name in costs for name in self.figures)
        if not (self.source == "settings" or costs_known):
            return False
        return all(need in columns for need in self.needs)


def last(name: str) -> Compute:
    """Compute a figure [R,T] of the trace at each federation's own last round, [R].

    What is known of it without a training, [R], is known at the last round.
    """

    def compute(trace: Any, s: Columns) -> FloatArray:
        figure = trace.figures[name]
        if figure.ndim == 1:
            return np.asarray(figure)
        last = s["rounds"].astype(int) - 1
        return np.asarray(figure[np.arange(len(figure)), last])

    return compute


def per_round(compute: Compute) -> Compute:
    """Compute a total as a mean over rounds."""
    return lambda trace, s: compute(trace, s) / s["rounds"]


def of_dense(compute: Compute, unit: float) -> Compute:
    """Compute a figure in units of what all clients would have sent unprotected."""

    def ratio(trace: Any, s: Columns) -> FloatArray:
        unprotected = unit * s["parameters"] * s["cohort"] * s["rounds"]
        return compute(trace, s) / unprotected

    return ratio


def eq15(over: str) -> Compute:
    """Compute the leakage of Kang 2023, Eq. 15: over the clients of each round, then over rounds.

    Clients count equally, by the examples they hold (by_size), or as the one that leaks most
    (worst). Rounds count as the setting leakage_rounds says: so many of the last ones, 0 for all.
    """

    def compute(trace: Trace, s: Columns) -> FloatArray:
        with np.errstate(all="ignore"):
            leakage = kang23_eq15(np.nan_to_num(trace.withheld), s["c2"][:, None, None])  # [R,T,M]
        there = np.ma.masked_array(leakage, ~np.isfinite(trace.withheld))
        rounds = range(there.shape[1])
        each = np.ma.stack([_of_clients(there[:, t], trace.held[:, t], over) for t in rounds], 1)
        last, most = s["rounds"][:, None], s["leakage_rounds"][:, None]
        t = np.arange(1, each.shape[1] + 1)
        counts = (t <= last) & ((most == 0) | (t > last - most))
        counted = np.ma.masked_array(each, ~counts | np.ma.getmaskarray(each))
        return np.asarray(np.ma.filled(counted.mean(axis=1), np.nan))

    return compute


def _of_clients(each: Any, held: FloatArray, over: str) -> Any:
    """Return one figure of clients that hold so many examples, from one of each, [R,M] → [R]."""
    if over == "worst":
        return each.max(axis=1)
    return np.ma.average(each, axis=1, weights=held) if over == "by_size" else each.mean(axis=1)


def local_loss(trace: Any, s: Columns) -> FloatArray:
    """Compute the mean of local losses (Xiao 2025, Eq. 5), if clients were asked for theirs."""
    if "local_loss" not in trace.figures:
        raise SettingError(
            "xiao25_eq5: must be an objective or a limit to be measured, found neither: clients "
            "judge what they send only where it is asked for. Name it in [objectives] or [limits]."
        )
    return last("local_loss")(trace, s)


def column(name: str) -> Compute:
    """Take a measure as it stands among the columns."""
    return lambda trace, s: s[name]
