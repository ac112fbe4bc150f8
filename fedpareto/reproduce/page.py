"""docs/papers.md: a row per statement of the papers, from the committed results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedpareto.reproduce.names import NAMES
from fedpareto.reproduce.run import committed

HEAD = """# The papers, reproduced

Written by `python docs/generate.py` from `benchmarks/results/papers`, which `fedpareto reproduce`
wrote. Every number below stands there. A printed number agrees if it lies within our interval,
differs if it lies outside, and is open if the ends of the interval are more than a factor of two
apart. A ranking agrees if the mean difference over seeds is more than two standard errors on the
paper's side, differs if it is as far on the other, and is open otherwise, or with fewer than three
seeds. A number is open at quick scale, which cannot judge it. Where a paper says nothing, the
verdict is above, below or level, or – for an experiment of our own. `quick` is minutes on two
cores; `paper` is the paper's scale on one GPU, and what of it was not run or not to the end stands
under each name.

The studies, with our choices where a paper is silent: [examples/papers](../examples/papers). The
rows of searches, of LeNet and of `gu24-why` lie in `benchmarks/results/papers/rows.tar.xz`:
unpacked into `papers/paper`, `fedpareto reproduce --scale paper` goes on from them. The searches of
Xiao began with a generation that fills the ranges evenly, not with the paper's around means; their
study files name the two lines that do that.
"""
QUESTIONS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (  # question, (name, statement)
    (
        "What is k of Gu?",
        (
            ("gu24-fig2a", "k of "),
            ("gu24-fig2b", "k of "),
            ("gu24-fig6", "k of LR"),
            ("gu24-fig6", "k of LeNet"),
            ("gu24-why", "k of "),
        ),
    ),
    (
        "Is CMOFL above MOFL?",
        (("kang23-fig3", "CMOFL-NSGA-II above MOFL"), ("kang23-fig3", "CMOFL-PSL above MOFL")),
    ),
    (
        "Is PSL above NSGA-II?",
        (("kang23-fig6", "PSL above CMOFL-NSGA-II"), ("kang23-fig3", "PSL above CMOFL-NSGA-II")),
    ),
    ("Does FedMOEAC beat NSGA-II?", (("xiao25-fig3", "FedMOEAC above"),)),
    (
        "Which proxies rank settings as the true ε does?",
        (
            ("gu24-fig2a", "Eq. 2 ranks"),
            ("gu24-fig2b", "Eq. 2 ranks"),
            ("kang23-mechanisms", "Eq. 13 ranks"),
            ("xiao25-table1", "Eq. 7 ranks"),
        ),
    ),
    (
        "Are the budgets of Table 1 of Xiao reachable?",
        (("xiao25-table1", "budgets are reached"), ("xiao25-table1", "noise about 6 leaves")),
    ),
    ("What does leakage 0 cost in true ε?", (("kang23-mechanisms", "leakage 0"),)),
    (
        "Is ours above the papers' algorithms?",
        (("kang23-fig6", "ours above"), ("kang23-fig3", "ours above")),
    ),
)
# What differs, and the experiment behind it: (name, words of the statement) → the same of another
WHY: tuple[tuple[tuple[str, str], tuple[str, str]], ...] = (
    (("gu24-fig2a", "k of LR if"), ("gu24-why", "k of LR by")),
    (("gu24-fig2a", "k of LR"), ("gu24-why", "k of LR, read")),
    (("gu24-fig6", "k of LR"), ("gu24-why", "k of LR, read")),
    (("gu24-fig2b", "k of LeNet"), ("gu24-why", "k of LeNet, read")),
    (("gu24-fig2a", "Eq. 2 ranks"), ("gu24-why", "Eq. 2 with q")),
    (("gu24-fig2b", "Eq. 2 ranks"), ("gu24-why", "Eq. 2 with q")),
    (("gu24-fig3", "c: it is case"), ("gu24-why", "the case of Fig. 3(c)")),
    (("gu24-table2", "LR: the design"), ("gu24-why", "LR: the design")),
    (("gu24-table2", "LeNet: the design"), ("gu24-why", "LeNet stays")),
    (("gu24-table3", "LeNet: the design"), ("gu24-why", "LeNet stays")),
    (("kang23-mechanisms", "leakage 0"), ("kang23-mechanisms", "leakage 0")),
    (("xiao25-table1", "error of"), ("xiao25-table1", "noise about 6 leaves")),
    (("xiao25-table1", "size of"), ("xiao25-table1", "next to nothing is learned")),
    (("xiao25-table1", "noise about 6 leaves"), ("xiao25-table1", "noise about 6 leaves")),
    (("xiao25-table1", "budgets are"), ("xiao25-table1", "budgets are")),
)


def results() -> list[dict[str, Any]]:
    """Return every committed result, in the order of the names."""
    return [found for name in NAMES if (found := committed(name))]


def papers_page(found: Sequence[dict[str, Any]]) -> str:
    """Return the page of some results."""
    by_name = {r["name"]: r for r in found}
    parts = [HEAD.strip(), "## Questions", *_answers(by_name)]
    parts += ["## What differs at paper scale, and the experiment behind it", *_reasons(by_name)]
    parts += ["## All statements", _table(found)]
    parts += [_section(r) for r in found]
    unrun = [f"`{n}`" for n in NAMES if n not in by_name]
    if unrun:
        parts.append(f"Not run yet: {', '.join(unrun)}.")
    return "\n\n".join(parts) + "\n"


def _answers(by_name: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Yield each known question, with the statements that answer it."""
    for question, places in QUESTIONS:
        lines = [
            f"- `{name}`, {c['scale']}: {c['what']}: {c['ours']}, **{c['verdict']}**"
            for name, words in places
            if (r := by_name.get(name))
            for c in r["comparisons"]
            if words in c["what"]
        ]
        yield "\n".join([f"**{question}**", "", *(lines or ["- Not run yet."])])


def reason(by_name: Mapping[str, dict[str, Any]], name: str, what: str) -> tuple[str, str] | None:
    """Return the experiment behind a statement that differs, and what it says; None without one."""
    for (its, words), (other, others) in WHY:
        if its != name or words not in what or other not in by_name:
            continue
        for c in by_name[other]["comparisons"]:
            if others in c["what"] and c["verdict"] != "open":
                return other, c["why"]
    return None


def _reasons(by_name: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what differs at the paper's scale, all statements of one experiment together."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for name, r in by_name.items():
        for c in r["comparisons"]:
            if c["verdict"] == "differs" and c["scale"] == "paper":
                key = reason(by_name, name, c["what"]) or ("", "No experiment yet.")
                said = f"- `{name}`: {c['what']}: paper {c['paper']}, ours {c['ours']}"
                grouped.setdefault(key, []).append(said)
    for (name, why), lines in grouped.items():
        yield "\n".join([*dict.fromkeys(lines), "", f"{why} (`{name}`)" if name else why])


def _table(found: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| name | scale | statement | paper | ours | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for r in found:
        for c in r["comparisons"]:
            paper = f"{c['paper']} ({c['source']})"
            cells = (f"`{r['name']}`", c["scale"], c["what"], paper, c["ours"], c["verdict"])
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _section(r: dict[str, Any]) -> str:
    """Return the paragraph and the figure of one result."""
    said = [r["paragraph"], f"Left out: {r['left_out']}."]
    filled = [c["why"] for c in r["comparisons"] if c["scale"] != r["scale"]]
    if filled:
        said.append(f"At quick scale ({r['quick_smaller']}): {' '.join(filled)}")
    if r["smaller"]:
        said.append(f"Smaller than the paper: {r['smaller']}.")
    if r.get("unfinished"):
        said.append(f"Not run to the end: {r['unfinished']}.")
    where = f"../benchmarks/results/papers/{r['figure']}"
    shown = f"![{r['title']}]({where})"
    if filled:
        other = f"../benchmarks/results/papers/{r['quick_figure']}"
        shown += f"\n\n![{r['title']}, quick scale]({other})"
    return f"## {r['name']}: {r['title']}\n\n{' '.join(said)}\n\n{shown}"
