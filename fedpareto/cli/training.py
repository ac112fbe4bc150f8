"""The command that trains one point and keeps its model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpareto.cli.base import (
    cli,
    db_option,
    inputs_of,
    json_option,
    limit_of,
    looked,
    opened,
    point_of,
    say,
    study_argument,
)
from fedpareto.errors import SettingError

if TYPE_CHECKING:
    from fedpareto.keep import Trained
    from fedpareto.privacy import Guarantee
    from fedpareto.report import Point
    from fedpareto.store import Store
    from fedpareto.study import Study
    from fedpareto.trials import Trial


@cli.command()
@study_argument
@db_option
@click.option("--trial", type=int, help="The trial to train; the recommended point if left out.")
@click.option("--pick", "picked", is_flag=True, help="Choose the point by --limit and --prefer.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --pick: what an objective must not exceed; repeat it.",
)
@click.option("--prefer", metavar="NAME", help="With --pick: the objective to make least.")
@click.option(
    "--repeat",
    type=int,
    default=0,
    show_default=True,
    help="Which repeat to train: the model is the one that its row was measured on.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The model, a .safetensors file; STUDY-trialN.safetensors if left out.",
)
@json_option
def train(
    study_file: Path,
    db: Path | None,
    trial: int | None,
    picked: bool,
    limits: tuple[str, ...],
    prefer: str | None,
    repeat: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Train one point of a study and keep the model, with a model card beside it."""
    from fedpareto.keep import train as train_point
    from fedpareto.report.card import write_model
    from fedpareto.report.cost import training_time
    from fedpareto.report.privacy import as_in_row, private_search_cost
    from fedpareto.report.text import shown

    if trial is not None and (picked or limits or prefer):
        raise SettingError("train: --trial must stand without --pick, found both. Leave one out.")
    if (limits or prefer) and not picked:
        raise SettingError("train: --limit and --prefer must go with --pick, found them without.")
    study, store = opened(study_file, db, run_code=True, train=True)
    with store:
        seen = looked(study, store)
        point = point_of(seen, trial, picked, dict(map(limit_of, limits)), prefer)
        row = next((t for t in store.trials() if t.number == point.trial), None)
        path = output or store.path.with_name(f"{store.path.stem}-{_name(point, row, repeat)}")
        _check_output(path, inputs_of(study, store.path))
        _check_counted(study, store, point, repeat)
        if not as_json:
            rounds = f", {point.settings['rounds']} rounds" if "rounds" in point.settings else ""
            about = training_time(study, store)
            say(f"training trial {point.trial}, repeat {repeat}{rounds}{about}", err=True)
        trained = train_point(study, point.settings, repeat, store)
        model, card = write_model(seen, point, trained, row, path)
        same = _compared(store, row, trained)
    promised = trained.guarantee and as_in_row(trained.guarantee, trained.measures)
    if as_json:
        searched = private_search_cost(seen)
        say(json.dumps(_plain(point, trained, promised, model, card) | {"search": searched}))
        return
    for o in seen.judges:
        say(f"{o.name:16s} {shown(o, trained.measures[o.measure])}")
    say(same)
    say(promised.statement() if promised else "No true ε is promised.")
    for line in private_search_cost(seen):
        say(line)
    say(f"\nmodel  {model}\ncard   {card}")


def _check_counted(study: Study, store: Store, point: Point, repeat: int) -> None:
    """Refuse a training on private data that the price of the search does not count."""
    from fedpareto.problem import is_private

    if is_private(study.problem) and repeat >= len(store.repeat_measures(point.trial)):
        raise SettingError(
            f"--repeat: must be one that the study trained of trial {point.trial}, found {repeat}: "
            "on private data a further training costs privacy that is counted nowhere. Raise the "
            "study's repeats, and it is."
        )


def _name(point: Point, row: Trial | None, repeat: int) -> str:
    """Return the name of a model's file, after what was trained."""
    name = f"trial{point.trial}"
    if row is not None and row.settings != point.settings:  # on the way of the trial's run
        name += f"-rounds{point.settings.get('rounds')}"
    if repeat:
        name += f"-repeat{repeat}"
    return f"{name}.safetensors"


def _check_output(path: Path, inputs: dict[str, Path]) -> None:
    """Refuse a path that would overwrite something else, or that names another kind of file."""
    from fedpareto.files import check_output

    if path.suffix != ".safetensors":
        raise SettingError(f"--output: must end in .safetensors, found {path.name!r}.")
    check_output(path, "model", inputs)
    check_output(path.with_suffix(".md"), "model card", inputs, option="--output (the model card)")


def _compared(store: Store, row: Trial | None, trained: Trained) -> str:
    """Say whether the model is the one that its row was measured on."""
    if row is None or row.settings != trained.settings:
        return "The point lies on the way of its trial's run, which has no row of its own."
    stored = store.repeat_measures(row.number)
    if trained.repeat >= len(stored):
        return f"The study has {len(stored)} repeats of this trial; this one is new."
    kept = stored[trained.repeat]
    differ = [
        name
        for name, value in kept.items()
        if name in trained.measures and not _equal(value, trained.measures[name])
    ]
    if not differ:
        return f"Every measure equals that of repeat {trained.repeat} in the row, bit for bit."
    name = differ[0]
    return (
        f"{name} is {trained.measures[name]:.8g} here and {kept[name]:.8g} in the row: another "
        "machine, or other versions, trained it."
    )


def _equal(a: float, b: float) -> bool:
    return a == b or not (math.isfinite(a) or math.isfinite(b))


def _plain(
    point: Point, trained: Trained, promised: Guarantee | None, model: Path, card: Path
) -> dict[str, Any]:
    guarantee = None
    if promised is not None:
        guarantee = {
            "statement": promised.statement(),
            "epsilon": promised.epsilon,
            "delta": promised.delta,
            "view": promised.view,
            "unit": promised.unit,
            "notes": list(promised.notes),
        }
    finite = {n: v if math.isfinite(v) else None for n, v in trained.measures.items()}
    return {
        "trial": point.trial,
        "seed": trained.seed,
        "repeat": trained.repeat,
        "settings": point.settings,
        "measures": finite,
        "model": str(model),
        "card": str(card),
        "guarantee": guarantee,
    }
