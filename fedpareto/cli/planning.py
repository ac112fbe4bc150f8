"""Commands that need no search: data sets, calibration, plans and low-cost design."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpareto.cli.base import (
    cli,
    console,
    db_option,
    inputs_of,
    json_option,
    say,
    study_argument,
    whole_numbers,
)
from fedpareto.cli.records import checked_records
from fedpareto.errors import MissingPackage, SettingError

if TYPE_CHECKING:
    from fedpareto.privacy import Planned


@cli.command()
@click.option(
    "--directory", default="", help="Where to look; FEDPARETO_DATA or the user's cache if left out."
)
@json_option
def data(directory: str, as_json: bool) -> None:
    """List the data sets and whether their files are there."""
    from fedpareto.federation.data import SETS, inventory
    from fedpareto.federation.data import directory as data_directory

    folder = data_directory(directory)
    found = {name: inventory(name, folder) for name in SETS}
    if as_json:
        rows = [
            {"name": name, "present": files is not None, "files": files or []}
            for name, files in found.items()
        ]
        say(json.dumps({"directory": str(folder), "data": rows}))
        return
    say(f"data directory: {folder}")
    for name, files in found.items():
        if files is None:
            state = "missing; downloaded on first use"
        else:
            state = ", ".join(files) or "embedded"
        say(f"  {name:14s} {state}")


@cli.command()
@study_argument
@click.option(
    "--write", is_flag=True, help="Put the figures into the study file, in place of its own."
)
@json_option
def calibrate(study_file: Path, write: bool, as_json: bool) -> None:
    """Measure how long a client's local steps take on this machine, for a study's cost model.

    A study keeps its figures in [cost], so that it gives the same numbers on every machine.
    """
    from fedpareto.federation.calibrate import calibrate as measure
    from fedpareto.study import load_study
    from fedpareto.study.table import plain
    from fedpareto.study.write import to_toml, write_section

    figures = plain(measure(load_study(study_file).problem))  # type: ignore[arg-type]
    if write:
        write_section(study_file, "cost", figures)
    if as_json:
        say(json.dumps(figures))
        return
    say(to_toml({"cost": figures}))
    if write:
        say(f"\nwritten to {study_file}")


@cli.command()
@click.option(
    "--epsilon",
    "--target-epsilon",
    "target_epsilon",
    type=float,
    required=True,
    help="The ε to hold over all rounds.",
)
@click.option(
    "--delta",
    "--target-delta",
    "target_delta",
    type=float,
    help="δ; 1e-5, or 1/(10 clients) if that is less.",
)
@click.option("--clients", type=int, required=True, help="Clients in all, K.")
@click.option(
    "--view",
    type=click.Choice(["server", "secagg", "release"]),
    default="server",
    show_default=True,
    help="Who looks on: a server that sees each upload; sums, and who took part; the models alone.",
)
@click.option(
    "--sampling",
    type=click.Choice(["fixed", "poisson"]),
    default="fixed",
    show_default=True,
    help="A cohort of fixed size, or each client by its own chance.",
)
@click.option(
    "--unit",
    type=click.Choice(["client", "record"]),
    default="client",
    show_default=True,
    help="What one promise covers.",
)
@click.option(
    "--adjacency",
    type=click.Choice(["zero_out", "replace"]),
    default="zero_out",
    show_default=True,
    help="The neighbour: a client's update left out, or any other in its place.",
)
@click.option(
    "--noise-multiplier", type=float, help="Noise on the sum of a round, over the clipping norm."
)
@click.option("--sigma", type=float, help="Noise each client adds to every coordinate.")
@click.option(
    "--clipping-norm", type=float, help="Largest L2 norm of a client's update; 1 if left out."
)
@click.option("--cohort", help="Clients a round: a number, or several with commas.")
@click.option("--rounds", help="Rounds: a number, or several with commas.")
@click.option(
    "--dropouts",
    type=int,
    default=0,
    show_default=True,
    help="Clients of a round that may fail to send.",
)
@click.option(
    "--colluders",
    type=int,
    default=0,
    show_default=True,
    help="Clients of a round that may tell their noise.",
)
@click.option(
    "--records",
    help="Records of each silo, for --unit record: a number, or one a client with commas.",
)
@click.option("--batch-size", type=int, help="Records of a mini-batch, for --unit record.")
@click.option("--local-steps", type=int, help="Mini-batch steps a round, for --unit record.")
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    help="Draw the noise on the mean against rounds into this PNG or SVG file.",
)
@click.option(
    "--study",
    type=click.Path(path_type=Path),
    help="Write a study that trains as a row says into this new file, for fedpareto run.",
)
@click.option(
    "--row",
    type=click.IntRange(min=1),
    help="The row that is put into words, and that --study writes; the starred one if left out.",
)
@click.option(
    "--data",
    help="Data set of --study; digits, or mnist where there are more clients than digits.",
)
@json_option
def plan(
    figure: Path | None,
    study: Path | None,
    row: int | None,
    data: str | None,
    as_json: bool,
    cohort: str | None,
    rounds: str | None,
    **asked: Any,
) -> None:
    """Solve for the noise, cohort or rounds that hold a target ε; nothing is trained.

    What is left out is solved for: the noise, else the rounds, else the cohort. With all given,
    each combination is priced.
    """
    from fedpareto.privacy import plan as solve
    from fedpareto.problem import part
    from fedpareto.report.plan import (
        best_row,
        plan_data,
        plan_figure,
        plan_statements,
        plan_table,
    )
    from fedpareto.report.progress import saying_how_long

    if study:
        _check_new(study)
    elif data:
        raise SettingError(f"--data: must go with --study FILE, found {data} alone.")
    if figure:
        _check_figure(figure, {"the study that is written": study} if study else {})
    asked["records"] = checked_records(asked, study)
    cohorts = whole_numbers("--cohort", cohort)
    lengths = whole_numbers("--rounds", rounds)
    with saying_how_long("plan"), part(0, 0.5):  # its statement takes about as long again
        choices = solve(cohort=cohorts, rounds=lengths, **asked)
    best = best_row(choices, asked["target_epsilon"])
    chosen = row or best or 1
    if chosen > len(choices):
        raise SettingError(f"--row: must be at most the {len(choices)} rows found, found {chosen}.")
    if study:
        _write_study(study, choices[chosen - 1], asked, data)
    if figure:
        plan_figure(choices, figure, asked["batch_size"])
    if as_json:
        say(json.dumps(plan_data(choices)))
        return
    console().print(plan_table(choices, asked["batch_size"], best))
    if best is not None and len(choices) > 1:
        of = "a step" if asked["batch_size"] else "a round"
        say(f"★ row {best} has the least noise on the mean of {of}; --row takes another.")
    for line in plan_statements(choices, asked, chosen):
        say(line.replace("fedpareto plan.", "--unit record."))
    if figure:
        say(f"figure  {figure}")
    if study:
        say(f"study   {study} (fedpareto run {study})")


def _refuse_unused(*options: str) -> None:
    """Refuse options of the searches by training where none is asked for."""
    context = click.get_current_context()
    for name in options:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise SettingError(
                f"--{name}: must go with --compare, found no --compare: it is a term of the "
                "searches by training. Add --compare, or leave it out."
            )


def _check_figure(path: Path, inputs: Mapping[str, Path]) -> None:
    """Refuse a figure that is no picture, or that would overwrite another file."""
    from fedpareto.files import check_output
    from fedpareto.report.figures import picture_kind

    check_output(path, "picture", inputs, option="--figure")
    picture_kind(path)


def _check_new(path: Path) -> None:
    """Refuse to write over a file."""
    if os.path.lexists(path):
        raise SettingError(
            f"--study: must name a new file, found {path}. Remove it, or name another."
        )


def _write_study(path: Path, choice: Planned, asked: dict[str, Any], data: str | None) -> None:
    """Write a row of a plan as a study file."""
    from fedpareto.study.planned import planned_study
    from fedpareto.study.write import write_study

    write_study(path, planned_study(choice, asked, path, data))


@cli.command()
@study_argument
@db_option
@click.option(
    "--share",
    default=0.1,
    show_default=True,
    help="Share of the data that the pre-experiment trains on.",
)
@click.option("--clients", default=10, show_default=True, help="Clients of the pre-experiment, K₀.")
@click.option(
    "--sample-ratio",
    default=1.0,
    show_default=True,
    help="Share of them that takes part in a round, q₀.",
)
@click.option(
    "--sigmas", default=15, show_default=True, help="Values of sigma tried, over the study's range."
)
@click.option("--seeds", default=4, show_default=True, help="Trainings of each.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="Rounds to design for; the study's most if left out.",
)
@click.option(
    "--sigma",
    type=float,
    help="Noise to design for: with --rounds, the share of clients to ask is solved for.",
)
@click.option(
    "--seconds",
    type=float,
    help="Limit on the time of the real training, by the study's cost model.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Also search the real federation by training, and say what that costs.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    help="ε₀ of training with budget, on the scale √(qT)/σ; the median of the grid's front if left "
    "out.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Training has converged when its loss no longer falls by this share,",
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="for so many rounds.",
)
@json_option
def design(
    study_file: Path,
    db: Path | None,
    as_json: bool,
    share: float,
    clients: int,
    sample_ratio: float,
    sigmas: int,
    seeds: int,
    **asked: Any,
) -> None:
    """Find the noise for a study's clients and rounds by a small experiment (law of Gu 2024).

    The study fixes learning rate and clipping norm, and gives a range of sigma. With several
    choices of sample_ratio, a noise is found for each, and --compare seeks the whole front. The
    pre-experiment is stored beside the study.
    """
    from fedpareto.design import Asked, Pre, design_study
    from fedpareto.report.cost import announced
    from fedpareto.report.design import design_figure, design_lines
    from fedpareto.study import load_study

    if not asked["compare"]:
        _refuse_unused("budget", "tolerance", "patience")
    study = load_study(study_file)
    path = db or study_file.with_name(f"{study_file.stem}-design.db")
    if not path.name:
        raise SettingError(f"STUDY: must name a study file, found {str(study_file)!r}.")
    _check_figure(path.with_suffix(".png"), inputs_of(study, path))
    pre = Pre(share, clients, sample_ratio, sigmas, seeds)
    found = design_study(study, pre, path, Asked(**asked), announced)
    if as_json:
        say(json.dumps(found.as_plain()))
        return
    for line in design_lines(found):
        say(line)
    try:
        say(f"figure  {design_figure(found, path.with_suffix('.png'))}")
    except MissingPackage as missing:
        say(f"no figure: {missing}", err=True)
