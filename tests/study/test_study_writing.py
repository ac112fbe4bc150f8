"""Study files that are written: as asked, and nothing else in them changed."""

from __future__ import annotations

import math
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from fedpareto.errors import OutputError, SettingError, StudyError
from fedpareto.federation import Cost
from fedpareto.study import load_study
from fedpareto.study.write import put_section, to_toml, write_section

NEW = {"step_seconds": 0.5, "upload_rate": 2.0}

WAYS = {
    "a section": (
        "a = 1  # mine\n\n# why\n[cost]  # measured\nstep_seconds = 1  # slow\n"
        "\n# next\n[data]\nb =  3\n",
        "a = 1  # mine\n\n# why\n[cost]  # measured\nstep_seconds = 0.5  # slow\n"
        "upload_rate = 2.0\n\n# next\n[data]\nb =  3\n",
    ),
    "a quoted section": (
        '["cost"]\nupload_rate = 1.0\n[data]\nb = 3',
        '["cost"]\nupload_rate = 2.0\nstep_seconds = 0.5\n[data]\nb = 3',
    ),
    "an empty section with comments": (
        "[cost]\n  # step_seconds = 7\n\n# next\n[data]\nb = 3\n",
        "[cost]\nstep_seconds = 0.5\nupload_rate = 2.0\n  # step_seconds = 7\n"
        "\n# next\n[data]\nb = 3\n",
    ),
    "an inline table": (
        "a = 1\ncost = { step_seconds = 1 } # slow\n\n[data]\nb = 3\n",
        "a = 1\ncost = { step_seconds = 0.5, upload_rate = 2.0} # slow\n\n[data]\nb = 3\n",
    ),
    "a dotted key": (
        "a = 1\ncost.step_seconds = 1  # slow\n\n# next\n[data]\nb = 3\n",
        "a = 1\ncost.step_seconds = 0.5  # slow\ncost.upload_rate = 2.0\n\n# next\n[data]\nb = 3\n",
    ),
    "dotted keys apart": (
        "cost.step_seconds = 1  # slow\na = 1\ncost.upload_rate = 3.0 # fast\n[data]\nb = 3\n",
        "cost.step_seconds = 0.5  # slow\na = 1\ncost.upload_rate = 2.0 # fast\n[data]\nb = 3\n",
    ),
    "other keys of the section": (
        "[cost]\nadd_seconds = 1e-6  # kept\nstep_seconds = 0.50\nupload_rate = 2\n",
        "[cost]\nadd_seconds = 1e-6  # kept\nstep_seconds = 0.50\nupload_rate = 2\n",
    ),
    "no section": (
        "a = 1\n[[data]]\nb = 3 # last",
        "a = 1\n[[data]]\nb = 3 # last\n\n[cost]\nstep_seconds = 0.5\nupload_rate = 2.0\n",
    ),
    "a section whose name begins so": (
        "[costly]\nstep_seconds = 1\n",
        "[costly]\nstep_seconds = 1\n\n[cost]\nstep_seconds = 0.5\nupload_rate = 2.0\n",
    ),
    "lines that end as on Windows": (
        "# ü\r\n[cost]\r\nstep_seconds = 1 # slow\r\n\r\n[data]\r\nb = 3\r\n",
        "# ü\r\n[cost]\r\nstep_seconds = 0.5 # slow\r\nupload_rate = 2.0\r\n"
        "\r\n[data]\r\nb = 3\r\n",
    ),
    "a section that only looks like one": (
        'text = """\n[cost]\nstep_seconds = 1\n"""\n',
        'text = """\n[cost]\nstep_seconds = 1\n"""\n'
        "\n[cost]\nstep_seconds = 0.5\nupload_rate = 2.0\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), WAYS.values(), ids=WAYS)
def test_values_are_put_into_a_section_and_every_other_line_stays(before: str, after: str) -> None:
    assert put_section(before, "cost", NEW) == after
    assert put_section(after, "cost", NEW) == after


def test_a_rewritten_file_that_says_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tomlkit, "dumps", lambda document: "[cost]\nstep_seconds = 2\n")
    with pytest.raises(SettingError) as refused:
        put_section("[cost]\n", "cost", {"step_seconds": 1})
    assert str(refused.value) == (
        "cost: must be a section that can be rewritten without a change to any other key, found "
        "one that cannot. Write it as [cost] with one key a line."
    )


def test_a_file_that_cannot_be_rewritten_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        raise tomlkit.exceptions.ParseError(1, 2, "too odd")

    monkeypatch.setattr(tomlkit, "parse", fail)
    with pytest.raises(SettingError) as refused:
        put_section("[cost]\n", "cost", {"step_seconds": 1})
    assert str(refused.value) == (
        "cost: must stand in a file that can be rewritten, found: too odd at line 1 col 2. "
        "Put the values into [cost] by hand."
    )


def test_a_saved_file_keeps_its_mode_and_its_link_and_leaves_nothing_beside_it(
    tmp_path: Path,
) -> None:
    path, link = tmp_path / "study.toml", tmp_path / "link.toml"
    path.write_text("a = 1\n")
    path.chmod(0o640)
    link.symlink_to(path)
    write_section(link, "cost", {"step_seconds": 2.0})
    assert path.read_bytes() == b"a = 1\n\n[cost]\nstep_seconds = 2.0\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.toml"
    path.write_text("a = 1\n")

    def full(*paths: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="found: no space left"):
        write_section(path, "cost", NEW)
    assert path.read_text() == "a = 1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_no_toml_any_more_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("a = \n")
    with pytest.raises(StudyError, match="must be TOML, found"):
        write_section(path, "cost", NEW)
    assert path.read_text() == "a = \n"


@pytest.mark.parametrize(
    "cost", ["[cost]\nupload_rate = 5e5  # measured\n", "", '["cost"]  # ours\nstep_seconds = 1\n']
)
def test_calibrate_changes_the_figures_of_a_study_and_no_other_line(
    tiny_study: Path, fedpareto: Any, cost: str
) -> None:
    text = "# why we ask\n" + tiny_study.read_text().replace(
        "rounds = 1", "rounds  =  1   # few"
    ).replace("[objectives.u", f"{cost}\n[objectives.u")
    tiny_study.write_text(text)
    before = load_study(tiny_study)
    status, out, err = fedpareto("calibrate", tiny_study, "--write")
    assert (status, err) == (0, "")
    assert out.startswith("[cost]\nstep_seconds = ")
    assert out.endswith(f"\n\nwritten to {tiny_study}\n")
    lines = tiny_study.read_text().splitlines()
    figures = set(Cost.__dataclass_fields__)
    kept = [line for line in text.splitlines() if line.split(" ")[0] not in figures]
    rest = [line for line in lines if line.split(" ")[0] not in figures]
    added = [] if cost else ["", "[cost]"]
    assert rest == kept + added
    after = load_study(tiny_study)
    assert after.problem.cost.upload_rate == before.problem.cost.upload_rate
    assert after.problem.cost != before.problem.cost
    assert after.identity | {"cost": None} == before.identity | {"cost": None}
    if "measured" in cost:
        assert "upload_rate = 5e5  # measured" in lines


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain_values = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), texts
)
ranges = st.one_of(
    st.fixed_dictionaries({"low": st.floats(0, 1), "high": st.just(2.0), "log": st.booleans()}),
    st.fixed_dictionaries({"choices": st.lists(plain_values, min_size=1, max_size=3)}),
)
values = st.one_of(plain_values, ranges, st.lists(st.one_of(plain_values, ranges), max_size=3))
sections = st.recursive(
    st.dictionaries(texts, values, max_size=3),
    lambda inner: st.dictionaries(
        texts, st.one_of(values, inner, st.lists(inner, min_size=1, max_size=2)), max_size=3
    ),
    max_leaves=6,
)


@given(sections)
def test_any_table_is_read_back_as_it_was_written(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_infinite_numbers_are_written_as_toml_has_them() -> None:
    assert (
        to_toml({"a": math.inf, "b": 1e-5, "c": 10**20})
        == "a = inf\nb = 1e-05\nc = 100000000000000000000"
    )
