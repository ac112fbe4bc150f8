"""The line of every key of a study file, however it is written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpareto.errors import StudyError
from fedpareto.study import load_study
from fedpareto.study.lines import line_of, lines_of
from fedpareto.study.table import HINTS

TEXT = '''\
name = "a # b = c"  # mechanism = 3

[training]  # rounds = 1
rounds = 2
text = """
rounds = 3
[mechanism]
"""
literal = \'\'\'
it's "quoted"
\'\'\'
"learning rate" = 0.1

[[mechanism.links]]
name = "pruning"

[mechanism.links.more]
deep = 1

[[mechanism.links]]
name = "quantization"
bits = { low = 1,
    high = 8 }  # over two lines

[model]
hidden = [
    # a comment, with a ]
    8,
    [1, 16],
]
inner.most = 1979-05-27T07:32:00Z
links = [{ name = "x" }, { name = "y", sizes = [1, 2] }]
'''

LINES = {
    "name": 1,
    "training": 3,
    "training.rounds": 4,
    "training.text": 5,
    "training.literal": 9,
    "training.learning rate": 12,
    "mechanism": 14,
    "mechanism.links": 14,
    "mechanism.links.1": 14,
    "mechanism.links.1.name": 15,
    "mechanism.links.1.more": 17,
    "mechanism.links.1.more.deep": 18,
    "mechanism.links.2": 20,
    "mechanism.links.2.name": 21,
    "mechanism.links.2.bits": 22,
    "mechanism.links.2.bits.low": 22,
    "mechanism.links.2.bits.high": 23,
    "model": 25,
    "model.hidden": 26,
    "model.hidden.1": 28,
    "model.hidden.2": 29,
    "model.hidden.2.1": 29,
    "model.hidden.2.2": 29,
    "model.inner": 31,
    "model.inner.most": 31,
    "model.links": 32,
    "model.links.1": 32,
    "model.links.1.name": 32,
    "model.links.2": 32,
    "model.links.2.name": 32,
    "model.links.2.sizes": 32,
    "model.links.2.sizes.1": 32,
    "model.links.2.sizes.2": 32,
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_key_and_every_element_has_its_line(newline: str) -> None:
    assert lines_of(TEXT.replace("\n", newline)) == LINES


def test_a_key_that_is_not_there_has_the_line_of_the_nearest_table_around_it() -> None:
    assert line_of(LINES, "mechanism.links.2.range") == 20
    assert line_of(LINES, "model.name") == 25
    assert line_of(LINES, "cost.step_seconds") is None


def test_a_table_that_follows_its_own_parts_stands_at_its_header() -> None:
    assert lines_of("[a.b]\nc = 1\n[a]\nd = 2\n") == {"a": 3, "a.b": 1, "a.b.c": 2, "a.d": 4}


quoted = st.sampled_from(
    ["'''\n[a]\n'''", '"""\nx = 1\\"""\n"""', '"a\\"b # c"', "[[1,\n2], [3]]", "{x = [\n]}"]
)


@given(st.lists(quoted, max_size=6))
def test_what_stands_within_a_value_does_not_shift_the_lines_after_it(values: list[str]) -> None:
    text = "".join(f"key_{i} = {value}\n" for i, value in enumerate(values)) + "last = 1"
    assert lines_of(text)["last"] == text.count("\n") + 1
    assert [key for key in lines_of(text) if key.count(".") == 0] == [
        *(f"key_{i}" for i in range(len(values))),
        "last",
    ]


def refused(study: Path, mechanism: str) -> list[tuple[str, int | None]]:
    """Return the keys and lines of the faults of a study with this mechanism."""
    text = study.read_text()
    start, end = text.index("[mechanism]"), text.index("[objectives.utility_loss]")
    study.write_text(text[:start] + mechanism + text[end:])
    with pytest.raises(StudyError) as error:
        load_study(study)
    return [
        (fault.key, fault.line) for fault in error.value.faults if fault.key.startswith("mechanism")
    ]


def test_a_fault_of_the_second_link_is_reported_at_its_own_line(tiny_study: Path) -> None:
    tables = (
        '[mechanism]\nname = "chain"\n[[mechanism.links]]\nname = "quantization"\nbits = 8\n'
        '[[mechanism.links]]\nname = "quantization"\nbist = 8\n\n'
    )
    assert refused(tiny_study, tables) == [("mechanism.links.2.bist", 25)]


def test_a_fault_of_a_link_in_an_inline_list_is_reported_at_its_own_line(tiny_study: Path) -> None:
    inline = (
        '[mechanism]\nname = "chain"\nlinks = [\n  { name = "quantization", bits = 8 },\n'
        '  { name = "quantization", bits = 0 },\n]\n\n'
    )
    assert refused(tiny_study, inline) == [("mechanism.links.2.bits", 22)]


def test_a_fault_found_once_all_is_read_is_reported_at_the_line_of_its_link(
    tiny_study: Path,
) -> None:
    """Points know the second link's sigma as sigma_2."""
    text = (
        tiny_study.read_text()
        .replace("kang23_eq13", "epsilon")
        .replace("limit = 0.8", "reference = 9")
    )
    tiny_study.write_text(text)
    links = (
        '[mechanism]\nname = "chain"\n[[mechanism.links]]\nname = "quantization"\n'
        '[[mechanism.links]]\nname = "randomization"\nsigma = 0.0\n'
    )
    assert refused(tiny_study, links) == [("mechanism.links.2.sigma", 24)]


def test_thousands_of_unknown_keys_are_refused_in_a_moment(tiny_study: Path) -> None:
    text = tiny_study.read_text().replace(
        "[training]", "[training]\n" + "".join(f"learning_rat{i} = 1\n" for i in range(2000))
    )
    tiny_study.write_text(text + "".join(f"[objectives.test_eror{i}]\n" for i in range(500)))
    began = time.process_time()
    with pytest.raises(StudyError) as error:
        load_study(tiny_study)
    assert time.process_time() - began < 1
    assert len(error.value.faults) == 2500
    assert (
        sum("Did you mean 'learning_rate'?" in fault.message for fault in error.value.faults)
        == HINTS
    )
    assert error.value.faults[-1].message == "there is no measure 'test_eror499'."
    assert error.value.faults[1999].message == "there is no such key."
