"""The model card of a deployed model: what was agreed, what really happened, and what it cost."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

from fedpareto import __version__
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.ledger import read
from fedpareto.deploy.model import FILE
from fedpareto.deploy.progress import Progress
from fedpareto.deploy.said import words
from fedpareto.files import starts_as, write_whole
from fedpareto.report.card import TITLE, bullets, section, table
from fedpareto.report.text import package_versions
from fedpareto.words import short

NAME = "model.md"
LEFT_OUT = ("data", "objectives", "optimizer", "budget", "privacy", "name")  # said elsewhere


def write_card(agreed: Deployment, folder: Path, progress: Progress) -> Path:
    """Write the card into the server's folder, beside its ledger and the model if it has one."""
    path = folder / NAME
    write_whole(path, card(agreed, folder, progress).encode(), starts_as("model card"))
    return path


def card(agreed: Deployment, folder: Path, progress: Progress) -> str:
    """Return the card as Markdown."""
    there = (folder / FILE).is_file()
    where = "" if there else " The model is at the sites: the server added what it cannot read."
    parts = [
        f"{TITLE} {agreed.name}, deployed",
        f"A model trained by {agreed.clients} sites in a real federation.{where}",
        section("Settings", table(("setting", "value"), _settings(agreed))),
        section("Measures", table(("measure", "value"), _measures(progress))),
        section("What was planned", bullets(agreed.statements)),
        section("What really happened", bullets(words(folder / "ledger.jsonl"))),
        section("Versions and hashes", table(("what", "which"), _hashes(agreed, folder))),
    ]
    return "\n\n".join(parts) + "\n"


def _settings(agreed: Deployment) -> list[tuple[str, str]]:
    """Return what was agreed, one setting a row."""
    rows = [("sites", str(agreed.clients)), ("rounds", str(agreed.rounds))]
    for part, held in agreed.study.items():
        if isinstance(held, Mapping) and part not in LEFT_OUT:
            rows += [(f"{part}.{name}", str(value)) for name, value in held.items()]
    return rows


def _measures(progress: Progress) -> list[tuple[str, str]]:
    """Return how good sites say that the last model is; each counts its own test records."""
    last = progress.measures[-1] if progress.measures else {}
    return [(name, short(value)) for name, value in last.items()]


def _hashes(agreed: Deployment, folder: Path) -> list[tuple[str, str]]:
    rows = [("fedpareto", __version__), ("Python", platform.python_version())]
    rows += [(name, found or "not installed") for name, found in package_versions().items()]
    rows += [("SHA-256 of the deployment", agreed.hash)]
    rows += [("last row of the ledger", read(folder / "ledger.jsonl").last)]
    model = folder / FILE
    if model.is_file():
        rows.append(("SHA-256 of the weights", hashlib.sha256(model.read_bytes()).hexdigest()))
    return rows
