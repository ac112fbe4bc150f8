"""Draw up a deployment: the chosen point of a study, as all parties agree on it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpareto.deploy.deployment import Deployment
from fedpareto.errors import SettingError
from fedpareto.federation import Federation
from fedpareto.federation.columns import hides_records, sizes_of_clients
from fedpareto.federation.data import load
from fedpareto.mechanisms import BatchCrypt, links_of, needs_everyone
from fedpareto.noise import derive
from fedpareto.privacy import VIEWS
from fedpareto.settings.beside import loaded_from
from fedpareto.settings.imports import files_imported
from fedpareto.settings.own import is_own, root_of, source_of
from fedpareto.study import Study
from fedpareto.study.write import fixed_study


def draw_up(study: Study, settings: Mapping[str, Any], **options: Any) -> Deployment:
    """Return the deployment of one point of a study; options are fields of `Deployment`."""
    problem = study.problem
    if not isinstance(problem, Federation):
        raise SettingError(
            f"study {study.name}: must be of a federation to be deployed, found "
            f"{type(problem).__name__}."
        )
    check_deployable(problem)
    _check_patience(options.get("patience", 600.0))
    data = load(problem.data)
    table = _table(study, settings)
    found = {view: problem.guarantee(settings, view) for view in VIEWS}
    promised = found[problem.privacy.view]
    return Deployment(
        name=study.name,
        study=table,
        seed=derive(study.seed, "deployment"),
        shape=data.shape,
        classes=data.classes,
        dtype=str(data.x_train.dtype),
        scale=data.scale,
        images=len(data.y_train),
        sizes=sizes_of_clients(problem) if hides_records(problem) else (),
        planned={view: g.epsilon if g else None for view, g in found.items()},
        statements=_said(problem, promised),
        code=_code(table),
        folder=study.path.parent if study.path else Path(),
        tells=options.pop("tells", not problem.private),
        dropouts=options.pop("dropouts", problem.privacy.dropouts),
        **options,
    )


def check_deployable(problem: Federation) -> None:
    """Refuse what a real federation cannot do as it was simulated."""
    if problem.training.weighting != "uniform":
        raise SettingError(
            "training.weighting: must be uniform to be deployed, found size: how many records a "
            "site holds would have to be told, which no ε counts. Study it with uniform weights."
        )
    *before, last = links_of(problem.mechanism)
    joint = [link for link in before if needs_everyone(link)]
    if joint or (needs_everyone(last) and not isinstance(last, BatchCrypt)):
        found = type(joint[0] if joint else last).__name__
        raise SettingError(
            "mechanism: must need no other client's upload, but for batchcrypt as the last link, to"
            f" be deployed, found {found}. Put batchcrypt last."
        )
    if problem.data.standardise == "site":
        return
    if problem.data.standardise:
        raise SettingError(
            "data.standardise: must be site or left out to be deployed, found "
            f"{problem.data.standardise}. Standardise in load_site, by the same statistics."
        )


def _check_patience(seconds: float) -> None:
    """Refuse a time to wait that is none."""
    if not 0 < seconds < math.inf:
        raise SettingError(
            f"patience: must be a number of seconds above 0, found {seconds}. Write one."
        )


def _table(study: Study, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a study file that trains the point, without the study's own data."""
    table = tomllib.loads(fixed_study(study, settings))
    clients = table["data"]["clients"]
    table["data"] = {"name": "site.npz", "clients": clients}
    table["objectives"] = {"test_loss": {"reference": 1.0}}  # nothing is searched
    table.pop("limits", None)
    return table


def _said(problem: Federation, promised: Any) -> tuple[str, ...]:
    """Return what is promised, in words."""
    if promised is None:
        return ("Nothing is promised: no noise hides a site, or no bound is known.",)
    return (promised.statement(), *promised.notes)


def _code(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of the user's own that the point needs, each with its SHA-256."""
    found: dict[str, str] = {}
    for source in map(source_of, _own_in(table)):
        if source.beside:  # what is installed is installed at the sites too
            root = root_of(source)
            # what it imports from there is needed as well, and what it loads by a computed name
            found |= files_imported([source.module], root) | loaded_from(root)
    return found


def _own_in(value: Any) -> list[str]:
    """Return every dotted path in a table."""
    if is_own(value):
        return [value]
    parts: Any = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    return [name for part in parts for name in _own_in(part)]
