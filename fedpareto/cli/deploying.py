"""Commands that take a chosen point to a real federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpareto.cli.base import (
    cli,
    db_option,
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
    from fedpareto.deploy.progress import Progress

PLATFORMS = ("flower",)


@cli.command()
@study_argument
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@db_option
@click.option(
    "--to",
    "platform",
    type=click.Choice(PLATFORMS),
    required=True,
    help="What runs the federation.",
)
@click.option("--trial", type=int, help="The trial to deploy; the recommended point if left out.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Choose the best point within limits, as pick does; repeat it.",
)
@click.option("--prefer", metavar="NAME", help="The objective to make least, as for pick.")
@click.option(
    "--beyond",
    type=click.Choice(("stop", "raise")),
    default="stop",
    show_default=True,
    help="What more dropouts than planned do: stop the run, or raise ε in the ledger.",
)
@click.option(
    "--patience",
    type=float,
    default=600.0,
    show_default=True,
    help="Seconds that a round waits for sites that do not answer.",
)
def export(
    study_file: Path,
    folder: Path,
    db: Path | None,
    platform: str,
    trial: int | None,
    limits: tuple[str, ...],
    prefer: str | None,
    **options: Any,
) -> None:
    """Write a point of a study as an app that a real federation runs.

    The app trains, protects and counts as the study did, with noise from each site's own system.
    """
    from fedpareto.deploy.drawn_up import draw_up
    from fedpareto.deploy.export import write_app
    from fedpareto.deploy.machine import demo_of
    from fedpareto.federation.blocks import setup_of
    from fedpareto.noise import derive

    picked = bool(limits or prefer)
    if trial is not None and picked:
        raise SettingError(
            "export: --trial must stand without --limit and --prefer, found both. Leave one out."
        )
    study, store = opened(study_file, db, run_code=True, train=True)
    with store:
        point = point_of(looked(study, store), trial, picked, dict(map(limit_of, limits)), prefer)
    agreed = draw_up(study, point.settings, **options)
    problem: Any = study.problem
    demo = demo_of(setup_of(problem, derive(study.seed, "repeat", 0)))
    write_app(agreed, study_file.parent, demo, folder)
    say(f"trial {point.trial}: {agreed.clients} sites, {agreed.rounds} rounds")
    for line in agreed.statements:
        say(line)
    say(
        f"\napp    {folder}\nhash   {agreed.hash}\ntry it fedpareto deploy {folder} --local "
        f"{agreed.clients}"
    )


@cli.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--local",
    "sites",
    type=int,
    required=True,
    help="How many sites to start on this machine: all that the app has.",
)
@json_option
def deploy(folder: Path, sites: int, as_json: bool) -> None:
    """Run an exported app on this machine to its end, with TLS and a key for each site.

    It starts a SuperLink and a SuperNode for each site on loopback, and stops them in the end. The
    study's own data are dealt to the sites. Run again, it goes on where it stood.
    """
    from fedpareto.deploy import deployment, export, local
    from fedpareto.deploy.said import words

    agreed = deployment.read(folder / export.APP)
    if sites != agreed.clients:
        raise SettingError(
            f"--local: must be {agreed.clients}, as many sites as were priced, found {sites}. "
            f"Write --local {agreed.clients}, or export a study with clients = {sites}."
        )
    found = local.deploy(folder, None if as_json else _shown)
    if as_json:
        say(json.dumps(found))
        return
    server = local.home_of(folder) / "server"
    ledger = server / "ledger.jsonl"
    say("\n".join(words(ledger)))
    say(f"\nmodel  {found['model']}\ncard   {server / 'model.md'}\nledger {ledger}")


def _shown(progress: Progress) -> None:
    """Print a round as it ends."""
    if progress.rounds == 0:
        return
    judged = progress.measures[-1] if progress.measures else {}
    error = f", test_error {judged['test_error']:.4g}" if "test_error" in judged else ""
    of = "" if progress.judged else " (of the round before)"
    say(
        f"round {progress.rounds}/{progress.of}: {progress.answered[-1]} of {progress.asked[-1]} "
        f"sites answered{error}{of if error else ''}"
    )
