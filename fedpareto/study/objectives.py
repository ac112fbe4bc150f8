"""The objectives of a study file: which measures are made small, and how far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedpareto.errors import Fault
from fedpareto.federation import MEASURES, ClipsRecords, is_unseen
from fedpareto.federation.measures import own_measure
from fedpareto.mechanisms import adds_noise
from fedpareto.privacy import Privacy
from fedpareto.problem import Objective
from fedpareto.settings import named
from fedpareto.study.sections import ObjectiveTable
from fedpareto.study.table import hint, read

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


def read_objectives(
    section: Mapping[str, Any], held: Mapping[str, Any], faults: list[Fault]
) -> tuple[Objective, ...]:
    """Return the objectives without a fault, in their order; add the others' to faults.

    held is what was read of the other sections, name → settings.
    """
    if not section:
        listed = ", ".join(MEASURES)
        message = f"must name at least one, found none. Measures: {listed}."
        faults.append(Fault("objectives", message))
    tables = _with_target(section, held["privacy"], faults)
    made = [_objective(name, table, held, faults) for name, table in tables.items()]
    return tuple(objective for objective in made if objective is not None)


def objective_tables(objectives: Iterable[Objective]) -> dict[str, Any]:
    """Return objectives as a study file would hold them."""
    tables = {}
    for o in objectives:
        held = {
            "measure": o.measure,
            "limit": o.limit,
            "penalty": o.penalty,
            "reference": o.reference,
        }
        tables[o.name] = {key: value for key, value in held.items() if value is not None}
    return tables


def _with_target(
    section: Mapping[str, Any], privacy: Privacy | None, faults: list[Fault]
) -> dict[str, Any]:
    """Return the objectives with the target ε as the limit of the one that measures ε."""
    tables = dict(section)
    if privacy is None or privacy.target_epsilon is None:
        return tables
    for name, table in tables.items():
        if isinstance(table, dict) and table.get("measure", name) == "epsilon":
            tables[name] = {"limit": privacy.target_epsilon} | table
            return tables
    message = "must go with an objective that measures ε, found none. Add [objectives.epsilon]."
    faults.append(Fault("privacy.target_epsilon", message))
    return tables


def _objective(
    name: str, table: Any, held: Mapping[str, Any], faults: list[Fault]
) -> Objective | None:
    where = f"objectives.{name}"
    if not isinstance(table, dict):
        message = f"must be a table such as {{limit = 0.8}}, found {table!r}."
        faults.append(Fault(where, message))
        return None
    asked = read(ObjectiveTable, table, where, faults)
    if asked is None:
        return None
    key = f"{where}.measure" if asked.measure else where
    called = asked.measure or name
    measure = own_measure(called) if ":" in called else MEASURES.get(called)
    if measure is None:
        message = f"there is no measure {called!r}. {hint(called, MEASURES, faults)}".rstrip()
        faults.append(Fault(key, message))
        return None
    missing = _missing(measure.needs, held)
    if missing:
        needs = " and ".join(missing)
        found = type(held["local" if missing[0] == RECORDS else "mechanism"]).__name__
        faults.append(Fault(key, f"needs {needs}, found {found}."))
    reference = _first(asked.reference, measure.reference, asked.limit)
    if reference is None:
        message = (
            "must be given, since this measure has no largest value: the worst value that still "
            "counts towards the hypervolume."
        )
        faults.append(Fault(f"{where}.reference", message))
    chosen = called if asked.case == "average" else measure.of_worst(called)
    if chosen is None:
        faults.append(Fault(f"{where}.case", _no_worst(called)))
    if missing or reference is None or chosen is None:
        return None
    return Objective(name, chosen, asked.limit, asked.penalty, reference, measure.proxy)


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
    if mechanism is None or is_unseen(mechanism) or is_unseen(local):
        return []
    there = {"unprotected_error", *named(mechanism)}
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
