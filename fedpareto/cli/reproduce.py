"""The command that reproduces figures and tables of the papers."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fedpareto.cli.base import cli


@cli.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listed", is_flag=True, help="Show every name, its time and its result.")
@click.option(
    "--scale",
    type=click.Choice(["quick", "paper"]),
    default="quick",
    show_default=True,
    help="Minutes on two cores, or the paper's own scale on one GPU.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("papers"),
    show_default=True,
    help="Where studies, rows, figures and numbers go, in a folder for each scale.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    help="Studies that are trained at a time; one for each core, at most 16, if left out.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    help="Stop training after so long, and report what the rows say so far; 0 trains nothing.",
)
def reproduce(
    names: tuple[str, ...],
    listed: bool,
    scale: str,
    output: Path,
    jobs: int | None,
    seconds: float | None,
) -> None:
    """Run the studies of a paper's figure or table, and compare; all of them without a NAME.

    It can be stopped or killed at any time: the same command goes on where it stood.
    """
    from fedpareto.reproduce import named, report, speed_up, train, work_of, write_data

    if listed:
        _print_list()
        return
    chosen = named(names)
    folder = output / scale
    work = work_of(chosen, scale, folder)
    at_a_time = min(jobs or min(os.cpu_count() or 1, 16), len(work))
    total = sum(w.expected for w in work) / speed_up(scale, at_a_time)
    click.echo(
        f"{len(chosen)} names at {scale} scale: {len(work)} studies, {at_a_time} at a time, about "
        f"{_time(total)} if none is begun",
        err=True,
    )
    if seconds != 0:
        write_data(chosen, scale, folder)
    if not train(work, at_a_time, seconds):
        click.echo("the time is over; the same command goes on", err=True)
    for experiment in chosen:
        result = report(experiment, scale, folder)
        click.echo(f"{experiment.name}  {result['verdict']}\n{result['paragraph']}")
        click.echo(f"figure  {folder / result['figure']}\n")


def _print_list() -> None:
    """Print every name with its expected times and what is committed of it."""
    from fedpareto.reproduce import EXPERIMENTS, committed

    click.echo(f"{'name':19s} {'quick':>9s} {'paper':>9s}  committed")
    for name, experiment in EXPERIMENTS.items():
        times = [_time(experiment.expected(scale)) for scale in ("quick", "paper")]
        result = committed(name)
        found = "nothing"
        if result:
            whole = ", not to the end" if result.get("unfinished") else ""
            found = f"{result['scale']}{whole}: {result['verdict']}"
        click.echo(f"{name:19s} {times[0]:>9s} {times[1]:>9s}  {found}")
    click.echo("\nTimes are of one study at a time: quick on one core, paper on one GPU.")


def _time(seconds: float) -> str:
    """Return a stretch of time in words."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
