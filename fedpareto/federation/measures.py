"""Measures: what a training showed and its settings say, as one number per federation.

Objectives pick them by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedpareto.federation.measure import (
    CASES,
    Measure,
    column,
    eq15,
    last,
    local_loss,
    of_dense,
    per_round,
)
from fedpareto.privacy import gu24_eq2, kang23_eq13, kang23_eq13_smooth, xiao25_eq7

_SENT = ("sigma", "clipping_norm")
_UP = ("upload_bytes",)
_DOWN = ("download_bytes",)

_WITHHELD = "it is computed from values that clients withhold, which no noise hides"

MEASURES: dict[str, Measure] = {
    "test_error": Measure(
        "share of test records classified wrongly by the final model",
        last("error"),
        reference=1.0,
        worst="test_error_worst",
        equal="test_error_equal",
        by_size="test_error",
        source="models",
    ),
    "test_loss": Measure(
        "mean cross-entropy of the final model on the test records",
        last("loss"),
        worst="test_loss_worst",
        equal="test_loss_equal",
        by_size="test_loss",
        source="models",
    ),
    "test_error_equal": Measure(
        "mean of the clients' test errors, each on its share of the test records",
        last("equal_error"),
        reference=1.0,
        on_request=True,
        source="models",
    ),
    "test_loss_equal": Measure(
        "mean of the clients' test losses, each on its share of the test records",
        last("equal_loss"),
        on_request=True,
        source="models",
    ),
    "test_error_worst": Measure(
        "test error of the client whose share of the test records fares worst",
        last("worst_error"),
        reference=1.0,
        of_one=True,
        source="models",
    ),
    "test_loss_worst": Measure(
        "test loss of the client whose share of the test records fares worst",
        last("worst_loss"),
        of_one=True,
        source="models",
    ),
    "utility_lost": Measure(
        "test error beyond that of the same training unprotected (Kang 2023, Eq. 7); "
        "trains each point twice",
        lambda trace, s: last("error")(trace, s) - s["unprotected_error"],
        reference=1.0,
        needs=("unprotected_error",),
        source="raw",
        reason="it trains every point again without noise",
    ),
    "loss_lost": Measure(
        "test loss beyond that of the same training unprotected (Kang 2023, Eq. 7); "
        "trains each point twice",
        lambda trace, s: last("loss")(trace, s) - s["unprotected_loss"],
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
        eq15("mean"),
        reference=1.0,
        needs=("private_fraction",),
        proxy="Kang 2023, Eq. 15",
        worst="kang23_eq15_worst",
        equal="kang23_eq15",
        by_size="kang23_eq15_by_size",
        source="raw",
        reason=_WITHHELD,
    ),
    "kang23_eq15_by_size": Measure(
        "the same, clients counted by the training records that they hold",
        eq15("by_size"),
        reference=1.0,
        on_request=True,
        needs=("private_fraction",),
        proxy="Kang 2023, Eq. 15",
        source="raw",
        reason=_WITHHELD,
    ),
    "kang23_eq15_worst": Measure(
        "the same for the client of each round that leaks most",
        eq15("worst"),
        reference=1.0,
        of_one=True,
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
    "xiao25_eq5": Measure(
        "mean over a round's clients of the loss, on the training records of each, of the model "
        "that it sends (Xiao 2025, Eq. 5), in the last round",
        local_loss,
        equal="xiao25_eq5",
        on_request=True,
        source="raw",
        reason="clients compute it on what they hold",
    ),
    "epsilon": Measure(
        "true ε over all rounds, for the view, unit and δ of [privacy]",
        column("epsilon"),
        needs=("epsilon",),
        source="settings",
    ),
    "epsilon_server": Measure(
        "true ε if the server sees each upload",
        column("epsilon_server"),
        needs=("epsilon_server",),
        source="settings",
    ),
    "epsilon_secagg": Measure(
        "true ε if the server sees sums and knows who took part",
        column("epsilon_secagg"),
        needs=("epsilon_secagg",),
        source="settings",
    ),
    "epsilon_release": Measure(
        "true ε if only models are seen and participation is secret",
        column("epsilon_release"),
        needs=("epsilon_release",),
        source="settings",
    ),
    "epsilon_record": Measure(
        "true ε of a record, or of records_per_person of them, by the noise of local steps",
        column("epsilon_record"),
        needs=("epsilon_record",),
        source="settings",
    ),
    "epsilon_client": Measure(
        "true ε of a client by the noise on its updates, for the view of [privacy], where the "
        "unit is a record that local steps hide",
        column("epsilon_client"),
        needs=("epsilon_client",),
        source="settings",
    ),
    "upload_bytes": Measure(
        "bytes sent by all clients over all rounds",
        last("upload_bytes"),
        figures=_UP,
        source="costs",
    ),
    "upload_bytes_per_round": Measure(
        "bytes sent by all clients in a round, mean over rounds",
        per_round(last("upload_bytes")),
        figures=_UP,
        source="costs",
    ),
    "download_bytes": Measure(
        "bytes received by all clients over all rounds",
        last("download_bytes"),
        figures=_DOWN,
        source="costs",
    ),
    "download_bytes_per_round": Measure(
        "bytes received by all clients in a round, mean over rounds",
        per_round(last("download_bytes")),
        figures=_DOWN,
        source="costs",
    ),
    "size_ratio": Measure(
        "bytes sent, in units of the same uploads unprotected (Xiao 2025, Eq. 6)",
        of_dense(last("upload_bytes"), 4.0),
        reference=1.0,
        figures=_UP,
        source="costs",
    ),
    "parameters_shared": Measure(
        "numbers a client sends in a round (Kang 2023, Eq. 16), mean over clients and rounds",
        per_round(last("shared")),
        worst="parameters_shared_worst",
        equal="parameters_shared",
        by_size="parameters_shared_by_size",
        figures=("shared",),
        source="costs",
    ),
    "parameters_shared_worst": Measure(
        "the same for the client of each round that sends most",
        per_round(last("shared_worst")),
        of_one=True,
        figures=("shared_worst",),
        source="costs",
    ),
    "parameters_shared_by_size": Measure(
        "the same, clients counted by the training records that they hold",
        per_round(last("shared_by_size")),
        on_request=True,
        figures=("shared_by_size",),
        source="costs",
    ),
    "training_seconds": Measure(
        "seconds a client spends on training and protection over all rounds, by the cost model, "
        "mean over clients",
        last("seconds"),
        worst="training_seconds_worst",
        equal="training_seconds",
        by_size="training_seconds_by_size",
        figures=("seconds",),
        source="costs",
    ),
    "training_seconds_worst": Measure(
        "the same for the slowest client of each round",
        last("seconds_worst"),
        of_one=True,
        figures=("seconds_worst",),
        source="costs",
    ),
    "training_seconds_by_size": Measure(
        "the same, clients counted by the training records that they hold",
        last("seconds_by_size"),
        on_request=True,
        figures=("seconds_by_size",),
        source="costs",
    ),
    "kang23_eq14": Measure(
        "seconds a client spends on training and encryption, mean over clients, and the server on "
        "adding (Kang 2023, Eq. 14), by the cost model",
        lambda trace, s: last("seconds")(trace, s) + last("server_seconds")(trace, s),
        worst="kang23_eq14_worst",
        equal="kang23_eq14",
        by_size="kang23_eq14_by_size",
        figures=("seconds", "server_seconds"),
        source="costs",
    ),
    "kang23_eq14_worst": Measure(
        "the same for the slowest client of each round",
        lambda trace, s: last("seconds_worst")(trace, s) + last("server_seconds")(trace, s),
        of_one=True,
        on_request=True,
        figures=("seconds_worst", "server_seconds"),
        source="costs",
    ),
    "kang23_eq14_by_size": Measure(
        "the same, clients counted by the training records that they hold, and the server",
        lambda trace, s: last("seconds_by_size")(trace, s) + last("server_seconds")(trace, s),
        on_request=True,
        figures=("seconds_by_size", "server_seconds"),
        source="costs",
    ),
    "decryption_seconds": Measure(
        "seconds a client spends on decryption over all rounds, by the cost model, "
        "mean over clients",
        last("reading_seconds"),
        same=True,
        figures=("reading_seconds",),
        source="costs",
    ),
    "gu24_eq4": Measure(
        "rounds × seconds of a round (Gu 2024, Eq. 4): the slowest client's work and transfers, "
        "by the cost model",
        last("round_seconds"),
        same=True,
        figures=("round_seconds",),
        source="costs",
    ),
}


def own_measure(name: str) -> Measure:
    """Return the measure of the user's own that a dotted path names."""
    worst, equal, by_size = (f"{name}@{case}" for case in CASES)
    words = f"your own measure {name}"
    return Measure(words, last(name), "models", worst=worst, equal=equal, by_size=by_size)


def function_name(measure: str) -> str:
    """Return the dotted path of a measure of the user's own, whichever clients it is of."""
    return measure.partition("@")[0]


def measures_of(own: Sequence[str] = ()) -> dict[str, Measure]:
    """Return every measure, these of the user's own included."""
    return {**MEASURES, **{name: own_measure(name) for name in own}}
