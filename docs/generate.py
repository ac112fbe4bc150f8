"""Write docs/reference.md from the code, and docs/papers.md from the committed results.

The reference has every key of a study file, every measure, command and table.

Run it: python docs/generate.py
"""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import click

from fedpareto.audit import ATTACKS
from fedpareto.cli import cli
from fedpareto.federation import MEASURES
from fedpareto.reproduce import papers_page, results
from fedpareto.settings import WORDS, kind_of, rule_of
from fedpareto.store import MIGRATIONS
from fedpareto.study.sections import FAMILIES, PLAIN, Head, LimitTable, ObjectiveTable
from fedpareto.study.table import plain

REFERENCE = Path(__file__).with_name("reference.md")
PAPERS = Path(__file__).with_name("papers.md")


def keys(cls: type) -> str:
    """Return the settings of a dataclass as a table."""
    hints = typing.get_type_hints(cls)
    rows = ["| key | what it is | value | left out |", "|---|---|---|---|"]
    for field in dataclasses.fields(cls):
        rule = rule_of(field)
        allowed = value(kind_of(hints[field.name]), rule)
        rows.append(f"| `{field.name}` | {rule.help} | {allowed} | {left_out(field.default)} |")
    if len(rows) == 2:
        return "No settings."
    return "\n".join(rows)


def left_out(default: object) -> str:
    """Return what holds for a key that is left out."""
    if default is dataclasses.MISSING:
        return "must be given"
    if default is None:
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{plain(default)}`"


def value(kind: type, rule) -> str:
    """Return which values a key may have."""
    words = [WORDS[kind]]
    if rule.options:
        words = [f"`{o}`" for o in rule.options]
    if rule.at_least is not None:
        words.append(f"≥ {rule.at_least:g}")
    elif rule.above is not None:
        words.append(f"> {rule.above:g}")
    if rule.at_most is not None:
        words.append(f"≤ {rule.at_most:,.12g}")
    searchable = rule.search and (kind in (float, int) or bool(rule.options))
    searched = "; **can be searched**" if searchable else ""
    return ", ".join(words) + searched


def measures() -> str:
    """Return all measures as a table."""
    rows = ["| measure | what it is | largest value | proxy |", "|---|---|---|---|"]
    for name, m in MEASURES.items():
        largest = "none; state `reference`" if m.reference is None else f"{m.reference:g}"
        rows.append(f"| `{name}` | {m.help} | {largest} | {m.proxy or ''} |")
    return "\n".join(rows)


def commands() -> str:
    """Return the help of every command."""
    out = []
    for name, command in sorted(cli.commands.items()):
        context = click.Context(
            command,
            info_name=f"fedpareto {name}",
            max_content_width=100,
            terminal_width=100,
            help_option_names=["-h", "--help"],
        )
        out.append(f"### fedpareto {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(out)


def schema() -> str:
    """Return the SQL of the database's tables."""
    lines = "\n".join(MIGRATIONS).strip("\n").splitlines()
    return "\n".join(line.removeprefix("    ").rstrip() for line in lines)


def reference() -> str:
    """Return the whole page."""
    parts = [
        "# Reference",
        "Written by `python docs/generate.py` from the code; a test keeps it current.",
        "## Study file",
        "A range is searched, a number is fixed. A range is `[low, high]`, `{ low = ..., high = "
        "..., log = true }` or "
        "`{ choices = [...] }`. A `name` may also be your own dataclass, as "
        '`"package.module:Name"`.',
        "### At the top",
        keys(Head),
    ]
    for section, cls in PLAIN.items():
        parts += [f"### [{section}]", (cls.__doc__ or "").splitlines()[0], keys(cls)]
    for family, members in FAMILIES.items():
        for name, cls in sorted(members.items()):
            parts += [
                f'### [{family}] name = "{name}"',
                (cls.__doc__ or "").splitlines()[0],
                keys(cls),
            ]
    parts += [
        "### [objectives.NAME]",
        "One table per objective, in the order in which they are shown; all are minimised.",
        keys(ObjectiveTable),
        "### [limits.NAME]",
        "One table per measure that must hold a limit and is no objective. It has no place in the "
        "hypervolume. A limit on an objective is its own `limit`.",
        keys(LimitTable),
        "## Attacks",
        "Of `fedpareto audit`; `--set NAME=VALUE` changes a setting.",
        *(
            part
            for name, cls in ATTACKS.items()
            for part in (f"### {name}", (cls.__doc__ or "").splitlines()[0], keys(cls))
        ),
        "## Measures",
        measures(),
        "## Commands",
        commands(),
        "## Database",
        "One SQLite file per study. The rows are the whole state; finished trials never change.",
        f"```sql\n{schema()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
    PAPERS.write_text(papers_page(results()), encoding="utf-8")
    print(REFERENCE, PAPERS)
