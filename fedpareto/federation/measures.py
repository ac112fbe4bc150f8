"""Measures: what a training showed and its settings say, as one number per federation.

Objectives pick them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.privacy import gu24_eq2, kang23_eq13, kang23_eq13_smooth, kang23_eq15, xiao25_eq7
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from fedpareto.federation.trace import Trace

# What protection costs: a measure of the models → what it is without protection
LOST = {"test_error": "unprotected_error", "test_loss": "unprotected_loss"}
WORST = "@worst"  # behind an own measure that is taken of the worst client's share

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
    worst: str | None = None  # the measure for the worst client, where clients differ
    # whether it is of the worst client itself, or the same for every client of a round
    of_each: bool = False
    on_request: bool = False  # whether rows hold it only where an objective asks for it
    # costs of rounds that it is computed from; it is known where these follow from the settings
    figures: tuple[str, ...] = ()
    # why it must not be shown where data are private and it does not follow from the settings
    reason: str = "it depends on what clients hold or send, which no noise hides"

    @property
    def judges(self) -> bool:
        """Say whether it tells how good models are, rather than what they leak or cost."""
        return self.source == "models" or bool({*LOST.values()} & {*self.needs})

    def of_worst(self, name: str) -> str | None:
        """Return the measure, called so, of the worst client; None where there is none."""
        if self.of_each or self.source == "settings":  # settings are the same for every client
            return name
        return self.worst

    def known_from(self, figures: Columns, columns: Columns) -> FloatArray:
        """Return the measure from figures at each row's own end, without a training."""
        return self.compute(SimpleNamespace(figures=figures), columns)

    def follows(self, columns: Columns, costs: Columns) -> bool:
        """Say whether it is known where these columns and figures are."""
        costs_known = bool(self.figures) and all(name in costs for name in self.figures)
        if not (self.source == "settings" or costs_known):
            return False
        return all(need in columns for need in self.needs)


def _last(name: str) -> Compute:
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


def _per_round(compute: Compute) -> Compute:
    """Compute a total as a mean over rounds."""
    return lambda trace, s: compute(trace, s) / s["rounds"]


def _of_dense(compute: Compute, unit: float) -> Compute:
    """Compute a figure in units of what all clients would have sent unprotected."""

    def ratio(trace: Any, s: Columns) -> FloatArray:
        unprotected = unit * s["parameters"] * s["cohort"] * s["rounds"]
        return compute(trace, s) / unprotected

    return ratio


def _eq15(over: Callable[..., FloatArray]) -> Compute:
    """Compute the leakage of Kang 2023, Eq. 15: over the clients of each round, then over rounds.

    Rounds count as the setting leakage_rounds says: so many of the last ones, 0 for all.
    """

    def compute(trace: Trace, s: Columns) -> FloatArray:
        with np.errstate(all="ignore"):
            leakage = kang23_eq15(np.nan_to_num(trace.withheld), s["c2"][:, None, None])  # [R,T,M]
        there = np.ma.masked_array(leakage, ~np.isfinite(trace.withheld))
        each = np.ma.stack([over(there[:, t], axis=1) for t in range(there.shape[1])], axis=1)
        last, most = s["rounds"][:, None], s["leakage_rounds"][:, None]
        t = np.arange(1, each.shape[1] + 1)
        counts = (t <= last) & ((most == 0) | (t > last - most))
        counted = np.ma.masked_array(each, ~counts | np.ma.getmaskarray(each))
        return np.asarray(np.ma.filled(counted.mean(axis=1), np.nan))

    return compute


def _column(name: str) -> Compute:
    """Take a measure as it stands among the columns."""
    return lambda trace, s: s[name]


_SENT = ("sigma", "clipping_norm")
_UP = ("upload_bytes",)
_DOWN = ("download_bytes",)

_WITHHELD = "it is computed from values that clients withhold, which no noise hides"

MEASURES: dict[str, Measure] = {
    "test_error": Measure(
        "share of test records classified wrongly by the final model",
        _last("error"),
        reference=1.0,
        worst="test_error_worst",
        source="models",
    ),
    "test_loss": Measure(
        "mean cross-entropy of the final model on the test records",
        _last("loss"),
        worst="test_loss_worst",
        source="models",
    ),
    "test_error_worst": Measure(
        "test error of the client whose share of the test records fares worst",
        _last("worst_error"),
        reference=1.0,
        of_each=True,
        source="models",
    ),
    "test_loss_worst": Measure(
        "test loss of the client whose share of the test records fares worst",
        _last("worst_loss"),
        of_each=True,
        source="models",
    ),
    "utility_lost": Measure(
        "test error beyond that of the same training unprotected (Kang 2023, Eq. 7); "
        "trains each point twice",
        lambda trace, s: _last("error")(trace, s) - s["unprotected_error"],
        reference=1.0,
        needs=("unprotected_error",),
        source="raw",
        reason="it trains every point again without noise",
    ),
    "loss_lost": Measure(
        "test loss beyond that of the same training unprotected (Kang 2023, Eq. 7); "
        "trains each point twice",
        lambda trace, s: _last("loss")(trace, s) - s["unprotected_loss"],
        needs=("unprotected_loss",),
        source="raw",
        reason="it trains every point again without noise",
    ),
    "gu24_eq2": Measure(
        "leakage of randomization by Gu 2024, Eq. 2, with leakage_c for C",
        lambda _, s: gu24_eq2(
            s["sigma"],
            s["clipping_norm"],
            s["sample_ratio"],
            s["rounds"],
            s["clients"],
            s["delta"],
            s.get("leakage_c", 1.0),
        ),
        needs=_SENT,
        proxy="Gu 2024, Eq. 2",
        source="settings",
    ),
    "kang23_eq13": Measure(
        "leakage of randomization, from 0 to 1, by Kang 2023, Eq. 13, with leakage_c1 for C₁",
        lambda _, s: kang23_eq13(
            s["sigma"], s["clipping_norm"], s["parameters"], s.get("leakage_c1", 1.0)
        ),
        reference=1.0,
        needs=_SENT,
        proxy="Kang 2023, Eq. 13",
        source="settings",
    ),
    "kang23_eq13_smooth": Measure(
        "the same without its kink and without C₁: graded where Eq. 13 is 0",
        lambda _, s: kang23_eq13_smooth(s["sigma"], s["clipping_norm"], s["parameters"]),
        reference=1.0,
        needs=_SENT,
        proxy="Kang 2023, Eq. 13, smooth",
        source="settings",
    ),
    "kang23_eq15": Measure(
        "leakage of sparsification, from 0 to 1, by Kang 2023, Eq. 15, mean over clients "
        "and rounds",
        _eq15(np.ma.mean),
        reference=1.0,
        needs=("private_fraction",),
        proxy="Kang 2023, Eq. 15",
        worst="kang23_eq15_worst",
        source="raw",
        reason=_WITHHELD,
    ),
    "kang23_eq15_worst": Measure(
        "the same for the client of each round that leaks most",
        _eq15(np.ma.max),
        reference=1.0,
        of_each=True,
        needs=("private_fraction",),
        proxy="Kang 2023, Eq. 15",
        source="raw",
        reason=_WITHHELD,
    ),
    "xiao25_eq7": Measure(
        "privacy budget by Xiao 2025, Eq. 7, the sampling rate multiplying",
        lambda _, s: xiao25_eq7(s["multiplier_of_eq7"], s["rounds"], s["sample_ratio"], s["delta"]),
        needs=("noise_multiplier",),
        proxy="Xiao 2025, Eq. 7",
        source="settings",
    ),
    "xiao25_eq7_printed": Measure(
        "privacy budget by Xiao 2025, Eq. 7 as printed, the sampling rate dividing",
        lambda _, s: xiao25_eq7(
            s["multiplier_of_eq7"], s["rounds"], s["sample_ratio"], s["delta"], printed=True
        ),
        needs=("noise_multiplier",),
        proxy="Xiao 2025, Eq. 7, as printed",
        source="settings",
    ),
    "epsilon": Measure(
        "true ε over all rounds, for the view, unit and δ of [privacy]",
        _column("epsilon"),
        needs=("epsilon",),
        source="settings",
    ),
    "epsilon_server": Measure(
        "true ε if the server sees each upload",
        _column("epsilon_server"),
        needs=("epsilon_server",),
        source="settings",
    ),
    "epsilon_secagg": Measure(
        "true ε if the server sees sums and knows who took part",
        _column("epsilon_secagg"),
        needs=("epsilon_secagg",),
        source="settings",
    ),
    "epsilon_release": Measure(
        "true ε if only models are seen and participation is secret",
        _column("epsilon_release"),
        needs=("epsilon_release",),
        source="settings",
    ),
    "epsilon_record": Measure(
        "true ε of a record, or of records_per_person of them, by the noise of local steps",
        _column("epsilon_record"),
        needs=("epsilon_record",),
        source="settings",
    ),
    "epsilon_client": Measure(
        "true ε of a client by the noise on its updates, for the view of [privacy], where the "
        "unit is a record that local steps hide",
        _column("epsilon_client"),
        needs=("epsilon_client",),
        source="settings",
    ),
    "upload_bytes": Measure(
        "bytes sent by all clients over all rounds",
        _last("upload_bytes"),
        figures=_UP,
        source="costs",
    ),
    "upload_bytes_per_round": Measure(
        "bytes sent by all clients in a round, mean over rounds",
        _per_round(_last("upload_bytes")),
        figures=_UP,
        source="costs",
    ),
    "download_bytes": Measure(
        "bytes received by all clients over all rounds",
        _last("download_bytes"),
        figures=_DOWN,
        source="costs",
    ),
    "download_bytes_per_round": Measure(
        "bytes received by all clients in a round, mean over rounds",
        _per_round(_last("download_bytes")),
        figures=_DOWN,
        source="costs",
    ),
    "size_ratio": Measure(
        "bytes sent, in units of the same uploads unprotected (Xiao 2025, Eq. 6)",
        _of_dense(_last("upload_bytes"), 4.0),
        reference=1.0,
        figures=_UP,
        source="costs",
    ),
    "parameters_shared": Measure(
        "numbers a client sends in a round (Kang 2023, Eq. 16), mean over clients and rounds",
        _per_round(_last("shared")),
        worst="parameters_shared_worst",
        figures=("shared",),
        source="costs",
    ),
    "parameters_shared_worst": Measure(
        "the same for the client of each round that sends most",
        _per_round(_last("shared_worst")),
        of_each=True,
        figures=("shared_worst",),
        source="costs",
    ),
    "training_seconds": Measure(
        "seconds a client spends on training and protection over all rounds, by the cost model, "
        "mean over clients",
        _last("seconds"),
        worst="training_seconds_worst",
        figures=("seconds",),
        source="costs",
    ),
    "training_seconds_worst": Measure(
        "the same for the slowest client of each round",
        _last("seconds_worst"),
        of_each=True,
        figures=("seconds_worst",),
        source="costs",
    ),
    "kang23_eq14": Measure(
        "seconds a client spends on training and encryption, mean over clients, and the server on "
        "adding (Kang 2023, Eq. 14), by the cost model",
        lambda trace, s: _last("seconds")(trace, s) + _last("server_seconds")(trace, s),
        worst="kang23_eq14_worst",
        figures=("seconds", "server_seconds"),
        source="costs",
    ),
    "kang23_eq14_worst": Measure(
        "the same for the slowest client of each round",
        lambda trace, s: _last("seconds_worst")(trace, s) + _last("server_seconds")(trace, s),
        of_each=True,
        on_request=True,
        figures=("seconds_worst", "server_seconds"),
        source="costs",
    ),
    "decryption_seconds": Measure(
        "seconds a client spends on decryption over all rounds, by the cost model, "
        "mean over clients",
        _last("reading_seconds"),
        of_each=True,
        figures=("reading_seconds",),
        source="costs",
    ),
    "gu24_eq4": Measure(
        "rounds × seconds of a round (Gu 2024, Eq. 4): the slowest client's work and transfers, "
        "by the cost model",
        _last("round_seconds"),
        of_each=True,
        figures=("round_seconds",),
        source="costs",
    ),
}


def own_measure(name: str) -> Measure:
    """Return the measure of the user's own that a dotted path names."""
    return Measure(f"your own measure {name}", _last(name), "models", worst=f"{name}{WORST}")


def measures_of(own: Sequence[str] = ()) -> dict[str, Measure]:
    """Return every measure, these of the user's own included."""
    return {**MEASURES, **{name: own_measure(name) for name in own}}
