"""The objectives and limits of a study file: what is made small, and what must hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from fedpareto.errors import Fault
from fedpareto.federation import MEASURES, ClipsRecords, is_unseen
from fedpareto.federation.measures import LOST, Measure, own_measure
from fedpareto.mechanisms import adds_noise
from fedpareto.privacy import Privacy
from fedpareto.problem import Judge, Limit, Objective
from fedpareto.settings import named
from fedpareto.study.sections import LimitTable, ObjectiveTable
from fedpareto.study.table import hint, read

Table = ObjectiveTable | LimitTable
T = TypeVar("T", ObjectiveTable, LimitTable)

# What measures can be computed from wherever Gaussian noise is added.
DERIVED = {
    "sigma",
    "clipping_norm",
    "noise_multiplier",
    "epsilon",
    "epsilon_server",
    "epsilon_secagg",
    "epsilon_release",
}
EPSILONS = {name for name in DERIVED if name.startswith("epsilon")}
NOISE = "a mechanism with Gaussian noise"
RECORDS = 'local steps that hide records ([local] name = "dp_sgd")'


def read_judges(
    sections: Mapping[str, Mapping[str, Any]], held: Mapping[str, Any], faults: list[Fault]
) -> tuple[tuple[Objective, ...], tuple[Limit, ...]]:
    """Return the objectives and the limits without a fault, in their order.

    What is wrong with the others is added to faults. held is what was read of the other sections,
    name → settings.
    """
    if not sections["objectives"]:
        listed = ", ".join(MEASURES)
        message = f"must name at least one, found none. Measures: {listed}."
        faults.append(Fault("objectives", message))
    sections = _with_target(sections, held["privacy"], faults)
    goals = [_objective(n, t, held, faults) for n, t in sections["objectives"].items()]
    beside = [_limit(n, t, held, faults) for n, t in sections["limits"].items()]
    objectives = tuple(o for o in goals if o is not None)
    limits = tuple(limit for limit in beside if limit is not None)
    _check_apart(objectives, limits, faults)
    return objectives, limits


def judge_tables(judges: Iterable[Judge]) -> dict[str, dict[str, Any]]:
    """Return objectives and limits as a study file would hold them, section → name → table."""
    sections: dict[str, dict[str, Any]] = {"objectives": {}, "limits": {}}
    for judge in judges:
        keys = ["measure", "limit", "penalty"]
        if isinstance(judge, Objective):
            keys.append("reference")
        held = {key: getattr(judge, key) for key in keys}
        table = {key: value for key, value in held.items() if value is not None}
        sections[judge.section][judge.name] = table
    return sections


def _with_target(
    sections: Mapping[str, Mapping[str, Any]], privacy: Privacy | None, faults: list[Fault]
) -> dict[str, dict[str, Any]]:
    """Return both sections with the target ε as the limit of whatever measures ε."""
    out = {name: dict(section) for name, section in sections.items()}
    if privacy is None or privacy.target_epsilon is None:
        return out
    for section in out.values():
        for name, table in section.items():
            if isinstance(table, dict) and table.get("measure", name) == "epsilon":
                section[name] = {"limit": privacy.target_epsilon} | table
                return out
    message = (
        "must go with an objective or a limit that measures ε, found none. Add "
        "[objectives.epsilon] or [limits.epsilon]."
    )
    faults.append(Fault("privacy.target_epsilon", message))
    return out


def _check_apart(
    objectives: Iterable[Objective], limits: Iterable[Limit], faults: list[Fault]
) -> None:
    """Refuse limits that are called as an objective, or limit what an objective measures."""
    names = {o.name for o in objectives}
    measured = {o.measure: o.name for o in objectives}
    for limit in limits:
        message = ""
        if limit.measure in measured:
            its = measured[limit.measure]
            message = (
                f"must be of a measure that is no objective, found {limit.measure}. Write limit = "
                f"{limit.limit:g} in [objectives.{its}]."
            )
        elif limit.name in names:
            message = "must have a name of its own, found that of an objective. Rename it."
        if message:
            faults.append(Fault(f"limits.{limit.name}", message))


def _objective(
    name: str, table: Any, held: Mapping[str, Any], faults: list[Fault]
) -> Objective | None:
    where = f"objectives.{name}"
    asked = _table(ObjectiveTable, table, where, faults)
    if asked is None:
        return None
    measure = _measure(name, asked, where, faults)
    if measure is None:
        return None
    chosen = _case(name, asked, measure, where, held, faults)
    reference = _first(asked.reference, measure.reference, asked.limit)
    if reference is None:
        message = (
            "must be given, since this measure has no largest value: the worst value that still "
            "counts towards the hypervolume."
        )
        faults.append(Fault(f"{where}.reference", message))
    if chosen is None or reference is None:
        return None
    return Objective(name, chosen, asked.limit, asked.penalty, reference, measure.proxy)


def _limit(name: str, table: Any, held: Mapping[str, Any], faults: list[Fault]) -> Limit | None:
    where = f"limits.{name}"
    asked = _table(LimitTable, table, where, faults)
    if asked is None:
        return None
    measure = _measure(name, asked, where, faults)
    if measure is None:
        return None
    chosen = _case(name, asked, measure, where, held, faults)
    if chosen is None:
        return None
    return Limit(name, asked.limit, chosen, asked.penalty, measure.proxy)


def _table(cls: type[T], table: Any, where: str, faults: list[Fault]) -> T | None:
    """Return one table of objectives or limits; None on a fault."""
    if isinstance(table, dict):
        return read(cls, table, where, faults)
    message = f"must be a table such as {{limit = 0.8}}, found {table!r}."
    faults.append(Fault(where, message))
    return None


def _measure(name: str, asked: Table, where: str, faults: list[Fault]) -> Measure | None:
    """Return the measure that a table asks for; None where there is none."""
    called = asked.measure or name
    measure = own_measure(called) if ":" in called else MEASURES.get(called)
    if measure is None:
        key = f"{where}.measure" if asked.measure else where
        message = f"there is no measure {called!r}. {hint(called, MEASURES, faults)}".rstrip()
        faults.append(Fault(key, message))
    return measure


def _case(
    name: str,
    asked: Table,
    measure: Measure,
    where: str,
    held: Mapping[str, Any],
    faults: list[Fault],
) -> str | None:
    """Return the name of a measure for the case asked for; None on a fault."""
    called = asked.measure or name
    missing = _missing(measure.needs, held)
    if missing:
        key = f"{where}.measure" if asked.measure else where
        needs = " and ".join(missing)
        found = type(held["local" if missing[0] == RECORDS else "mechanism"]).__name__
        faults.append(Fault(key, f"needs {needs}, found {found}."))
    chosen = called if asked.case == "average" else measure.of_worst(called)
    if chosen is None:
        faults.append(Fault(f"{where}.case", _no_worst(called)))
    return None if missing else chosen


def _no_worst(measure: str) -> str:
    """Return why a measure cannot be taken of the worst client."""
    there = ", ".join(name for name, m in MEASURES.items() if m.worst)
    return (
        f"must be average for {measure}, found worst: it is not measured client by client. Of the "
        f"worst client there are {there} and measures of your own."
    )


def _first(*values: float | None) -> float | None:
    """Return the first value that is given."""
    return next((value for value in values if value is not None), None)


def _missing(needs: Iterable[str], held: Mapping[str, Any]) -> list[str]:
    """Return what a measure is computed from and neither mechanism nor local step has, in words."""
    mechanism, local, privacy = held["mechanism"], held["local"], held["privacy"]
    unread = mechanism is None or local is None
    if unread or is_unseen(mechanism) or is_unseen(local):
        return []
    there = {*LOST.values(), *named(mechanism)}
    if adds_noise(mechanism):
        there |= DERIVED
    if isinstance(local, ClipsRecords):
        there |= {"epsilon_record"}
        if privacy is not None and privacy.unit == "record":
            there |= EPSILONS | ({"epsilon_client"} if adds_noise(mechanism) else set())
    missing = [need for need in needs if need not in there]
    return [_words(need) for need in missing]


def _words(need: str) -> str:
    """Return in words what must be there for something to be known."""
    if need in ("epsilon_record", "epsilon_client"):
        return RECORDS
    return NOISE if need.startswith("epsilon") else f"a mechanism with {need}"
