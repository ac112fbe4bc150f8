"""The sections of a study file, and which settings each of them holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedpareto.federation import CASES, LOCAL_STEPS, MODELS, SERVERS, Cost, Data, Training
from fedpareto.mechanisms import MECHANISMS
from fedpareto.optimizers import OPTIMIZERS
from fedpareto.privacy import Privacy
from fedpareto.settings import setting
from fedpareto.trials import MOST_REPEATS, MOST_TRIALS

UNLIKE = 5  # federations in a block where some train longer than others, which have to wait


@dataclass(frozen=True)
class Head:
    """The keys at the top of a study file."""

    name: str = setting(
        "", help="what the study is called; the file's name if left out", search=False
    )
    seed: int = setting(
        0,
        help="where every random number comes from",
        at_least=0,
        at_most=2**63 - 1,
        search=False,
    )
    budget: int = setting(
        200,
        help="how many trials in all; raise it to continue",
        at_least=1,
        at_most=MOST_TRIALS,
        search=False,
    )
    repeats: int = setting(
        1,
        help="how often each trial is trained, each time with its own seed",
        at_least=1,
        at_most=MOST_REPEATS,
        search=False,
    )
    block: int = setting(
        0,
        help="how many federations train in one pass; 0 for the optimizer's batch, or at most 5 "
        "where batch size, epochs or steps are searched",
        at_least=0,
        at_most=100_000,
        search=False,
    )
    in_flight: int = setting(
        0,
        help="L: a batch follows from the rows of all but the last L batches before it, so that "
        "L + 1 batches can be trained at the same time",
        at_least=0,
        at_most=1000,
        search=False,
    )


@dataclass(frozen=True)
class ObjectiveTable:
    """The keys of one objective."""

    measure: str = setting(
        "", help="which measure; the objective's own name if left out", search=False
    )
    case: str = setting(
        "average",
        help="the average that the measure is; or over clients with weights of your choice (Kang "
        "2023, Def. 5): equal, or by_size of what they hold; or for the worst client (Def. 6). "
        "Refused where a measure is not one of clients",
        options=("average", *CASES),
        search=False,
    )
    limit: float | None = setting(None, help="what the objective must not exceed", search=False)
    penalty: float = setting(
        20.0,
        help="weight α of exceeding the limit (Kang 2023, Eq. 8)",
        at_least=0,
        at_most=1e12,
        search=False,
    )
    reference: float | None = setting(
        None,
        help="component of the hypervolume reference point; the measure's largest value if left "
        "out, else the limit",
        search=False,
    )


@dataclass(frozen=True)
class LimitTable:
    """The keys of one limit that is no objective."""

    limit: float = setting(help="what the measure must not exceed", search=False)
    measure: str = setting("", help="which measure; the limit's own name if left out", search=False)
    case: str = setting(
        "average",
        help="over which clients, as of an objective",
        options=("average", *CASES),
        search=False,
    )
    penalty: float = setting(
        20.0,
        help="weight α of exceeding the limit: every objective grows by α times the share by which "
        "it is exceeded, in units of its reference",
        at_least=0,
        at_most=1e12,
        search=False,
    )


# Sections with the same keys in every study.
PLAIN: dict[str, type] = {"data": Data, "training": Training, "privacy": Privacy, "cost": Cost}

# Sections whose `name` says which settings they hold: one of a family, or the user's own.
FAMILIES: dict[str, Mapping[str, type]] = {
    "model": MODELS,
    "mechanism": MECHANISMS,
    "local": LOCAL_STEPS,
    "server": SERVERS,
    "optimizer": OPTIMIZERS,
}
METHODS = {  # what a member of each family has
    "model": ("build",),
    "mechanism": ("protect",),
    "local": ("descend",),
    "server": ("start", "step"),
    "optimizer": ("propose",),
}
UNNAMED = {"local": "sgd", "server": "average", "optimizer": "bayesian"}  # if nothing is named

# What came after version 0.1, with the value that studies had before: it does not count towards a
# study's identity, so that studies begun then go on.
LATER: tuple[tuple[tuple[str, ...], object], ...] = (
    (("local",), {"name": "sgd"}),
    (("server",), {"name": "average"}),
    (("training", "loss"), "cross_entropy"),
    (("privacy", "records_per_person"), 1),
    (("data", "label"), ""),
    (("data", "site"), ""),
    (("data", "test_share"), 0.2),
    (("data", "standardise"), ""),
    (("looked_at",), False),
    (("in_flight",), 0),
    (("kept",), None),
    (("mechanism", "leakage_rounds"), 1),
    (("mechanism", "links", "leakage_rounds"), 1),
    (("limits",), []),
    (("mechanism", "noise_on"), "sum"),
    (("mechanism", "links", "noise_on"), "sum"),
    (("mechanism", "leakage_c"), 1.0),
    (("mechanism", "leakage_c1"), 1.0),
    (("mechanism", "links", "leakage_c"), 1.0),
    (("mechanism", "links", "leakage_c1"), 1.0),
)

SECTIONS = (  # in the order of a file
    "data",
    "model",
    "training",
    "local",
    "mechanism",
    "server",
    "privacy",
    "cost",
    "objectives",
    "limits",
    "optimizer",
)
