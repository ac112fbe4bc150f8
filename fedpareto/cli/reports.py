"""Commands that report on studies: pages, figures, evidence and comparisons."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedpareto.cli.base import (
    checked_study,
    cli,
    console,
    database_of,
    db_option,
    inputs_of,
    json_option,
    limit_of,
    look_at,
    looked,
    opened,
    say,
    study_argument,
)
from fedpareto.errors import MissingPackage, SettingError

if TYPE_CHECKING:
    from fedpareto.report import View


@cli.command()
@study_argument
@db_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The page; the database's name with .html if left out.",
)
@click.option(
    "--evidence",
    is_flag=True,
    help="Write what a file needs in its place: question, threat model, choice, guarantee, hashes.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --evidence: the choice must hold it; repeat it.",
)
@click.option(
    "--prefer",
    metavar="NAME",
    help="With --evidence: the objective that the choice makes least; the knee if left out.",
)
@click.option(
    "--serve",
    is_flag=True,
    help=(
        "Show the page in a browser while the study runs, new rows within seconds; Ctrl-C ends it."
    ),
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="With --serve: who may look; 0.0.0.0 is whoever reaches this machine.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="With --serve: where; 0 for any free one.",
)
@click.option("--svg", is_flag=True, help="Write every figure as SVG too.")
def report(
    study_file: Path,
    db: Path | None,
    output: Path | None,
    evidence: bool,
    limits: tuple[str, ...],
    prefer: str | None,
    serve: bool,
    host: str,
    port: int,
    svg: bool,
) -> None:
    """Write a self-contained html page and PNG figures, show the page live, or write evidence.

    The evidence is one page for the file: what was asked, chosen and promised.
    """
    from fedpareto.loop import database

    if serve and (evidence or output):
        raise SettingError(
            "report: --serve must stand without --evidence and --output, found them together. It "
            "writes no file."
        )
    if (limits or prefer) and not evidence:
        raise SettingError(
            "report: --limit and --prefer must go with --evidence, found them without. The page "
            "has its own, to drag."
        )
    if serve:
        _serve(study_file, db, host, port)
    elif evidence:
        say(_write_evidence(study_file, db, output, dict(map(limit_of, limits)), prefer))
    else:
        seen = look_at(study_file, db)
        rows = database(seen.study, db)
        page = output or rows.with_suffix(".html")
        _check_report(page, svg, inputs_of(seen.study, rows))
        for path in _write_report(seen, page, svg):
            say(path)


@cli.command()
@click.argument(
    "studies", metavar="STUDY...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=VALUE",
    help="Component of the reference point; repeat it.",
)
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    help="Draw into FIGURE-hypervolume.png and FIGURE-fronts.png.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write one html page: fronts, the best under each limit, what differs.",
)
@json_option
def compare(
    studies: tuple[Path, ...],
    references: tuple[str, ...],
    figure: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Compare studies with the same objectives: optimizers, or mechanisms, against each other.

    Each is a study file with its database beside it, or a database. Those that differ in the seed
    alone are one study.
    """
    from fedpareto.report.compare import compare as look
    from fedpareto.report.compare_output import (
        comparison_data,
        comparison_figures,
        comparison_table,
    )
    from fedpareto.report.compare_page import beware, write_comparison

    _check_comparison(studies, figure, output)
    found = look(studies, dict(limit_of(text, "--reference") for text in references))
    drawn = []
    if figure:
        drawn = comparison_figures(found, figure.with_suffix(""))
    if output:
        write_comparison(found, output)
    if as_json:
        say(json.dumps(comparison_data(found)))
        return
    console().print(comparison_table(found))
    corner = ", ".join(f"{name} {value:g}" for name, value in found.reference.items())
    say(f"reference {corner}")
    for line in beware(found):
        say(line)
    for path in drawn:
        say(f"figure  {path}")
    if output:
        say(f"page    {output}")


def _check_report(page: Path, svg: bool, inputs: dict[str, Path]) -> None:
    """Refuse a page, or figures beside it, that would overwrite other files."""
    from fedpareto.files import check_output
    from fedpareto.report.figures import PLOTS

    check_output(page, "page", inputs)
    for plot in PLOTS:
        for kind in ("png", "svg") if svg else ("png",):
            path = page.with_suffix("")
            check_output(path.with_name(f"{path.name}-{plot}.{kind}"), "picture", inputs)


def _compare_inputs(studies: tuple[Path, ...]) -> dict[str, Path]:
    """Return what a comparison reads: every study file and every database."""
    found = {f"{path}, a study that is compared": path for path in studies}
    return found | {f"the database of {path}": path.with_suffix(".db") for path in studies}


def _check_comparison(studies: tuple[Path, ...], figure: Path | None, output: Path | None) -> None:
    """Refuse studies that name no file, and outputs that would overwrite other files."""
    from fedpareto.files import check_output

    for path in map(checked_study, studies):
        if not path.name:
            raise SettingError(f"STUDY: must name a study file or a database, found {str(path)!r}.")
    inputs = _compare_inputs(studies)
    if output:
        check_output(output, "page", inputs)
    if figure is None:
        return
    if not figure.name:
        raise SettingError(f"--figure: must name a file, found {str(figure)!r}. Name one.")
    stem = figure.with_suffix("")
    for name in ("hypervolume", "fronts"):
        path = stem.with_name(f"{stem.name}-{name}.png")
        page = {"the page that is written": output} if output else {}
        check_output(path, "picture", inputs | page, option="--figure")


def _write_report(seen: View, path: Path, svg: bool) -> list[Path]:
    """Write the page and its figures, or the page alone without matplotlib; return the paths."""
    from fedpareto.report import write_page
    from fedpareto.report.figures import PLOTS, write_figures

    written = [write_page(seen, path)]
    kinds = ("png", "svg") if svg else ("png",)
    try:
        return written + write_figures(seen, path.with_suffix(""), kinds, PLOTS)
    except MissingPackage as missing:
        say(f"no PNG figures: {missing}", err=True)
        return written


def _serve(study_file: Path, db: Path | None, host: str, port: int) -> None:
    """Serve the page until Ctrl-C."""
    from fedpareto.report.serve import Live, Server

    live = Live(study_file, database_of(study_file, db))
    with Server(live, host, port) as server, contextlib.suppress(KeyboardInterrupt):
        if server.warning:
            say(server.warning, err=True)
        say(f"page {server.url} (Ctrl-C ends it)")
        server.serve_forever()


def _write_evidence(
    study_file: Path,
    db: Path | None,
    output: Path | None,
    limits: dict[str, float],
    prefer: str | None,
) -> Path:
    """Write the evidence of a study's choice and return its path."""
    from fedpareto.files import check_output
    from fedpareto.report.evidence import write_evidence

    study, store = opened(study_file, db)
    with store:
        path = output or store.path.with_name(f"{store.path.stem}-evidence.html")
        check_output(path, "page", inputs_of(study, store.path))
        return write_evidence(looked(study, store), store.trials(), path, limits, prefer)
