"""docs/papers.md: a row per statement of the papers, from the committed results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpareto.reproduce.names import EXPERIMENTS, NAMES
from fedpareto.reproduce.run import committed

HEAD = """# The papers, reproduced

Written by `python docs/generate.py` from `benchmarks/results/papers`, which `fedpareto reproduce`
wrote. Every number below stands there. A printed number agrees if it lies within our interval,
differs if it lies outside, and is open if the ends of the interval are more than a factor of two
apart. A ranking agrees if the mean difference over seeds is more than two standard errors on the
paper's side, differs if it is as far on the other, and is open otherwise."""


def results() -> list[dict[str, Any]]:
    """Return every committed result, in the order of the names."""
    return [found for name in NAMES if (found := committed(name))]


def papers_page(found: Sequence[dict[str, Any]]) -> str:
    """Return the page of some results."""
    rows = [
        "| name | scale | statement | paper | ours | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for r in found:
        for c in r["comparisons"]:
            paper = f"{c['paper']} ({c['source']})"
            cells = (f"`{r['name']}`", r["scale"], c["what"], paper, c["ours"], c["verdict"])
            rows.append(f"| {' | '.join(cells)} |")
    parts = [HEAD, "\n".join(rows)]
    for r in found:
        where = f"../benchmarks/results/papers/{r['figure']}"
        scaled = f" Smaller than the paper: {r['smaller']}." if r["smaller"] else ""
        said = f"{r['paragraph']} Left out: {r['left_out']}.{scaled}"
        parts.append(
            f"## {r['name']}: {r['title']}\n\n{said}\n\n"
            f"![{r['title']}]({where})"
        )
    done = {r["name"] for r in found}
    without = [f"`{n}`" for n in NAMES if n not in EXPERIMENTS]
    unrun = [f"`{n}`" for n in NAMES if n in EXPERIMENTS and n not in done]
    if unrun:
        parts.append(f"Not run yet: {', '.join(unrun)}.")
    if without:
        parts.append(f"Without studies yet: {', '.join(without)}.")
    return "\n\n".join(parts) + "\n"
