"""Commands that run studies and look at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedpareto.cli.base import (
    cli,
    console,
    db_option,
    json_option,
    limit_of,
    look_at,
    looked,
    numbers,
    opened,
    study_argument,
)
from fedpareto.errors import FedparetoError, MissingPackage, SettingError

if TYPE_CHECKING:
    from fedpareto.report import View
    from fedpareto.store import Store


@cli.command()
@study_argument
@db_option
@click.option(
    "--budget", type=int, help="How many trials in all; the study file's own if left out."
)
@click.option(
    "--seed", type=int, help="Where random numbers come from; the study file's own if left out."
)
@click.option(
    "--encrypt",
    is_flag=True,
    help="Run the encryption of the study's mechanism, and do not only charge for it.",
)
@json_option
def run(
    study_file: Path,
    db: Path | None,
    budget: int | None,
    seed: int | None,
    encrypt: bool,
    as_json: bool,
) -> None:
    """Run a study to its budget, or go on with it, and report.

    It can be stopped or killed at any time: the same command goes on where it stood.
    """
    from fedpareto.loop import run as run_study
    from fedpareto.report import write_page
    from fedpareto.report.progress import progress
    from fedpareto.study import load_study

    study = load_study(study_file, budget, seed, encrypt)
    with progress(study) as watch:
        store = run_study(study, db, watch=watch)
    with store:
        seen = looked(study, store)
        page = write_page(seen, store.path.with_suffix(".html"))
        _print_front(seen, as_json)
        if not as_json:
            _print_rest(seen, store, page)


@cli.command()
@study_argument
@db_option
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for spreadsheets.")
@click.option(
    "--at",
    metavar="W1,W2,...",
    help="Settings for a preference, a weight per objective, learned from the trials so far.",
)
def front(study_file: Path, db: Path | None, as_json: bool, as_csv: bool, at: str | None) -> None:
    """Print the Pareto front of a study's trials so far."""
    from fedpareto.report.text import front_csv

    if at is not None:
        _print_preferred(study_file, db, at, as_json)
        return
    if as_json and as_csv:
        raise SettingError(
            "front: --json and --csv exclude one another, found both. Leave one out."
        )
    seen = look_at(study_file, db)
    if as_csv:
        click.echo(front_csv(seen), nl=False)
    else:
        _print_front(seen, as_json)


@cli.command()
@study_argument
@db_option
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="What an objective must not exceed; repeat it.",
)
@click.option("--prefer", metavar="NAME", help="The objective to make least; the knee if left out.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the ready study file here.")
@json_option
def pick(
    study_file: Path,
    db: Path | None,
    limits: tuple[str, ...],
    prefer: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose the best point within limits, as settings and as a ready study file."""
    from fedpareto.report import pick as pick_point
    from fedpareto.report.privacy import promises
    from fedpareto.report.text import as_plain, proxies, shown
    from fedpareto.report.toml import fixed_study

    seen = look_at(study_file, db)
    point, why = pick_point(seen, dict(map(limit_of, limits)), prefer)
    text = fixed_study(seen.study.description, point.settings, f"{seen.study.name}-pick", repeats=5)
    if output:
        output.write_text(text, encoding="utf-8")
    if as_json:
        click.echo(
            json.dumps({"study": seen.study.name, **as_plain(point), "why": why, "file": text})
        )
        return
    click.echo(
        f"trial {point.trial}: "
        + ", ".join(f"{o.name} {shown(o, point.objectives[o.name])}" for o in seen.objectives)
    )
    click.echo(why)
    for line in [*proxies(seen.objectives), *promises(seen, point)]:
        click.echo(line)
    click.echo("\nsettings\n" + "\n".join(f"  {k} = {v}" for k, v in point.settings.items()))
    ready = (
        f"study file: {output}\n"
        if output
        else f"# a study file that trains this point five times\n{text}"
    )
    click.echo(f"\n{ready}", nl=False)


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
    help="Show the page in a browser while the study runs, new rows within seconds; Ctrl-C ends it.",
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
    """Write one self-contained html page, and PNG figures beside it; or show it live; or write the evidence for the file."""
    from fedpareto.loop import database

    if serve and (evidence or output):
        raise SettingError(
            "report: --serve must stand without --evidence and --output, found them together. It writes no file."
        )
    if (limits or prefer) and not evidence:
        raise SettingError(
            "report: --limit and --prefer must go with --evidence, found them without. The page has its own, to drag."
        )
    if serve:
        _serve(study_file, db, host, port)
    elif evidence:
        click.echo(_write_evidence(study_file, db, output, dict(map(limit_of, limits)), prefer))
    else:
        seen = look_at(study_file, db)
        for path in _write_report(
            seen, output or database(seen.study, db).with_suffix(".html"), svg
        ):
            click.echo(path)


@cli.command()
@study_argument
@db_option
def verify(study_file: Path, db: Path | None) -> None:
    """Propose every stored trial again from the rows before it, and compare."""
    from fedpareto.loop import verify as differing

    study, store = opened(study_file, db)
    with store:
        wrong, count = list(differing(study, store)), len(store)
    if wrong:
        shown = "".join(f"\n  {line}" for line in wrong[:10])
        raise FedparetoError(
            f"{store.path}: every trial must be what the optimizer proposes, found {len(wrong)} of "
            f"{count} that are not:{shown}"
        )
    click.echo(f"{store.path}: all {count} proposals follow from the rows before them")


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

    Each is a study file with its database beside it, or a database. Those that differ in the seed alone are one study.
    """
    from fedpareto.report.compare import compare as look
    from fedpareto.report.compare import comparison_data, comparison_figures, comparison_table
    from fedpareto.report.compare_page import beware, write_comparison

    found = look(studies, dict(limit_of(text, "--reference") for text in references))
    drawn = comparison_figures(found, figure.with_suffix("")) if figure else []
    page = write_comparison(found, output) if output else None
    if as_json:
        click.echo(json.dumps(comparison_data(found)))
        return
    console().print(comparison_table(found))
    click.echo(
        "reference " + ", ".join(f"{name} {value:g}" for name, value in found.reference.items())
    )
    for line in beware(found):
        click.echo(line)
    for path in drawn:
        click.echo(f"figure  {path}")
    if page:
        click.echo(f"page    {page}")


def _write_report(seen: View, path: Path, svg: bool) -> list[Path]:
    """Write the page and its figures; without matplotlib, the page alone."""
    from fedpareto.report import write_page
    from fedpareto.report.figures import PLOTS, write_figures

    written = [write_page(seen, path)]
    try:
        return written + write_figures(
            seen, path.with_suffix(""), ("png", "svg") if svg else ("png",), PLOTS
        )
    except MissingPackage as missing:
        click.echo(f"no PNG figures: {missing}", err=True)
        return written


def _serve(study_file: Path, db: Path | None, host: str, port: int) -> None:
    """Show the page until Ctrl-C."""
    import contextlib

    from fedpareto.loop import database
    from fedpareto.report.serve import Live, Server
    from fedpareto.study import load_study

    with (
        Server(Live(study_file, database(load_study(study_file), db)), host, port) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        if server.warning:
            click.echo(server.warning, err=True)
        click.echo(f"page {server.url} (Ctrl-C ends it)")
        server.serve_forever()


def _write_evidence(
    study_file: Path,
    db: Path | None,
    output: Path | None,
    limits: dict[str, float],
    prefer: str | None,
) -> Path:
    from fedpareto.report.evidence import write_evidence

    study, store = opened(study_file, db)
    with store:
        path = output or store.path.with_name(f"{store.path.stem}-evidence.html")
        return write_evidence(looked(study, store), store.trials(), path, limits, prefer)


def _print_front(seen: View, as_json: bool) -> None:

    from fedpareto.report.privacy import statements
    from fedpareto.report.text import front_data, proxies, summary, table

    if as_json:
        click.echo(json.dumps(front_data(seen)))
        return
    out = console()
    if seen.front:
        out.print(table(seen))
    out.print(summary(seen), markup=False)
    for line in [*proxies(seen.objectives), *statements(seen)]:
        out.print(line, markup=False)


def _print_preferred(study_file: Path, db: Path | None, at: str, as_json: bool) -> None:
    """Print the settings that Pareto set learning holds best for a preference."""
    from fedpareto.loop import preferred
    from fedpareto.report.text import short

    study, store = opened(study_file, db)
    with store:
        settings = preferred(study, store, numbers("--at", at))
    if as_json:
        click.echo(
            json.dumps({"study": study.name, "at": numbers("--at", at), "settings": settings})
        )
        return
    click.echo(", ".join(f"{name} = {short(value)}" for name, value in settings.items()))
    click.echo(
        "Learned from the trials so far, and not trained itself: put it into a study file with budget = 1 to see what it gives."
    )


def _print_rest(seen: View, store: Store, page: Path) -> None:
    from fedpareto.report.text import short

    if seen.recommended:
        chosen = ", ".join(f"{k} = {short(v)}" for k, v in seen.recommended.settings.items())
        click.echo(f"\nrecommended ★ trial {seen.recommended.trial}: {chosen}")
    click.echo(seen.why)
    if seen.failed:
        click.echo(
            f"failed: trial {seen.failed[0].number}: {seen.failed[0].error}"
            + (f" (and {len(seen.failed) - 1} more)" if len(seen.failed) > 1 else "")
        )
    saved = seen.study.repeats * seen.evaluations - seen.trainings
    if saved:
        click.echo(
            f"{seen.trainings} trainings, {saved} fewer than {seen.study.repeats} of each trial"
        )
    click.echo(f"\nstudy  {seen.study.path}\nrows   {store.path}\npage   {page}")
