"""The ledger's file: it only grows, a changed row is found, half a row is cut off and said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.contract import Round
from fedpareto.deploy import ledger
from fedpareto.deploy.pricing import planned, price, terms_of
from fedpareto.errors import FedparetoError, LedgerError
from fedpareto.privacy import Privacy

TERMS = terms_of(Round(10, 3.0, noise=0.8, norm=1.0), Privacy(), 5, 1e-5)
HEADER = ledger.header("server", "ab" * 32, TERMS, planned(TERMS))


def one_round(book: ledger.Ledger, t: int, asked=(0, 1, 2)) -> None:
    attempt = book.began(t, asked, 1.0)
    book.ended(t, attempt, asked, [0.8] * len(asked), 1.0, float(len(asked)))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A ledger of three rounds."""
    path = tmp_path / "ledger.jsonl"
    with ledger.begin(path, HEADER) as book:
        for t in range(3):
            one_round(book, t)
    return path


def test_what_was_written_is_read(kept):
    history = ledger.read(kept)
    assert history.done == {0, 1, 2}
    assert [one.answered for one in history.attempts] == [(0, 1, 2)] * 3
    assert history.attempts[0].noise == (0.8, 0.8, 0.8)
    with ledger.open(kept, "ab" * 32) as book:
        assert book.history == history
        assert book.began(2, [4]) == 2
        one_round(book, 3)
    assert [len(ledger.read(kept).attempts_of(t)) for t in range(4)] == [1, 1, 2, 1]


def test_every_changed_byte_is_found_by_the_line_it_is_in(kept):
    whole = kept.read_bytes()
    for place in range(0, len(whole) - 1, 7):
        changed = bytes([whole[place] ^ 1])
        kept.write_bytes(whole[:place] + changed + whole[place + 1 :])
        line = whole[:place].count(b"\n") + 1
        with pytest.raises(LedgerError, match=rf"line {line}: must be as it was written, found that it was changed"):
            ledger.read(kept)


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_a_line_taken_out_or_moved_is_found(kept, taken):
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[:taken] + lines[taken + 1 :]))
    with pytest.raises(LedgerError, match=rf"line {taken + 1}: must follow the line before"):
        ledger.read(kept)
    kept.write_bytes(b"".join(lines[1:]))
    with pytest.raises(LedgerError, match="line 1: must follow the line before"):
        ledger.read(kept)


@settings(max_examples=60)
@given(st.integers(min_value=0))
def test_a_kill_in_the_middle_of_a_write_loses_no_whole_row(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("torn") / "ledger.jsonl"
    with ledger.begin(path, HEADER) as book:
        first = path.stat().st_size
        for t in range(3):
            one_round(book, t)
    whole = path.read_bytes()
    cut = first + cut % (len(whole) - first)
    path.write_bytes(whole[:cut])
    rows = whole[:cut].count(b"\n") - 1
    torn = int(not whole[:cut].endswith(b"\n"))
    seen = ledger.read(path)
    assert path.stat().st_size == cut  # looking changes nothing
    assert seen.torn == torn
    with ledger.open(path) as book:
        assert (len(book.history.attempts), len(book.history.done)) == ((rows + 1) // 2, rows // 2)
        one_round(book, 9)
    again = ledger.read(path)
    assert again.torn == torn
    assert 9 in again.done


def test_a_killed_writer_leaves_a_ledger_that_goes_on(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger.begin(path, HEADER).close()
    code = (
        "import sys\nfrom fedpareto.deploy import ledger\n"
        "book = ledger.open(sys.argv[1])\nprint('open', flush=True)\n"
        "for t in range(10**6):\n    a = book.began(t, [1], 1.0)\n    book.ended(t, a, [1], [0.8], 1.0, 1.0)\n"
        "    print(t, flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == "open\n"
        with pytest.raises(LedgerError, match="must have one writer, found that another process has it open"):
            ledger.open(path)
        for _ in range(20):
            told = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    with ledger.open(path) as book:
        assert set(range(told + 1)) <= book.history.done  # what was said to be done is on record


def test_a_ledger_of_another_deployment_is_not_gone_on_with(kept):
    with pytest.raises(LedgerError, match="must be the ledger of the deployment cdcdcdcd, found one of abababab"):
        ledger.open(kept, "cd" * 32)


def test_a_ledger_is_never_begun_twice(kept):
    with pytest.raises(LedgerError, match="must be a new file, found one"):
        ledger.begin(kept, HEADER)


def test_what_is_not_there_or_no_ledger_is_named(tmp_path):
    with pytest.raises(LedgerError, match="must be a ledger that can be read, found: No such file"):
        ledger.read(tmp_path / "none")
    with pytest.raises(LedgerError, match="found: Is a directory"):
        ledger.read(tmp_path)
    with pytest.raises(LedgerError, match="must be a file that can be written, found: No such file"):
        ledger.begin(tmp_path / "no" / "folder", HEADER)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(LedgerError, match="must begin with a header, found 0 bytes"):
        ledger.read(tmp_path / "empty")


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "pipe"])
def test_what_is_no_file_is_refused_before_it_is_read(tmp_path, monkeypatch, place):
    """A past finding: a device without end was read until the memory was full."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(LedgerError, match="ledger: must be a file, found a pipe or a device"):
        ledger.read(place)


def test_rounds_of_very_many_clients_are_read_soon(tmp_path):
    """A past finding: twenty thousand clients were looked for one by one, twice a round."""
    many = 100_000
    terms = terms_of(Round(many, 3.0, noise=0.8, norm=1.0), Privacy(), 5, 1e-5)
    with ledger.begin(tmp_path / "ledger.jsonl", ledger.header("server", "ab" * 32, terms, planned(terms))) as book:
        one_round(book, 0, tuple(range(many)))
    began = time.process_time()
    assert len(ledger.read(tmp_path / "ledger.jsonl").attempts[0].answered) == many
    assert time.process_time() - began < 5


def test_a_closed_ledger_takes_no_row(kept):
    book = ledger.open(kept)
    book.close()
    with pytest.raises(LedgerError, match="must be open to be written, found it closed"):
        book.began(3, [1])


@pytest.mark.parametrize(
    ("answered", "again", "noise", "message"),
    [
        ([0, 7], [], [0.8, 0.8], "answered: must be among those asked, found 7"),
        ([0, 1], [2], [0.8, 0.8], "again: must be among those answered, found 2"),
        ([0, 1], [], [0.8], "noise: must be one number for each of 2 who answered, found 1"),
        ([0, 0], [], [0.8, 0.8], "answered: must be a list of clients, by names or whole numbers, each once"),
        ([0, 1], [], [0.8, -1], "noise: must be finite numbers that are at least 0, or null"),
        ([0, 1], [], [0.8, float("nan")], "noise: must be finite"),
    ],
)
def test_a_row_that_cannot_be_is_not_written(kept, answered, again, noise, message):
    with ledger.open(kept) as book:
        attempt = book.began(3, [0, 1, 2])
        size = kept.stat().st_size
        with pytest.raises(LedgerError, match=message):
            book.ended(3, attempt, answered, noise, 1.0, 2.0, again)
        assert kept.stat().st_size == size
        book.ended(3, attempt, [0], [0.8], 1.0, 1.0)
        with pytest.raises(LedgerError, match="round 3: only the attempt begun last may end, and once; found the end of attempt 1"):
            book.ended(3, attempt, [0], [0.8], 1.0, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "must be of version 1, found 2"),
        ({"side": "node"}, "side: must be server or client, found 'node'"),
        ({"deployment": "x"}, "deployment: must be 64 hexadecimal digits"),
        ({"planned": {"server": "low"}}, "planned: must be an object of numbers, by view"),
        ({"more": 1}, "'more': must be a field of a header, found one that is not"),
        ({"terms": {**TERMS, "delta": 0}}, "delta: must be a finite number above 0, found 0"),
        ({"terms": {k: v for k, v in TERMS.items() if k != "unit"}}, "unit: must be given in the terms, found nothing"),
        ({"terms": {**TERMS, "records": {}}}, "noise: must be given in the terms of records"),
    ],
)
def test_a_header_that_cannot_be_is_refused(tmp_path, change, message):
    with pytest.raises(LedgerError, match=message):
        ledger.begin(tmp_path / "ledger.jsonl", {**HEADER, **change})
    assert not (tmp_path / "ledger.jsonl").exists()


def rewritten(path: Path, number: int, change: dict[str, object]) -> None:
    """Change a line as a forger would, who makes all hashes anew."""
    before = ""
    lines = []
    for at, line in enumerate(path.read_bytes().splitlines()):
        row = json.loads(line)
        del row["before"], row["hash"]
        text, before = ledger._line({**row, **(change if at == number else {})}, before)
        lines.append(text)
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (1, {"kind": "header"}, "line 2: must be a header in the first line and nowhere else"),
        (1, {"state": "half"}, "line 2: must be the begin or the end of a round"),
        (1, {"attempt": 2}, "line 2: attempt: must be 1, found 2"),
        (1, {"asked": [True]}, "line 2: asked: must be a list of clients"),
        (2, {"divisor": "3"}, "line 3: divisor: must be a finite number"),
        (2, {"kind": "torn"}, "line 3: .* must be a field of a note of a torn row"),
        (0, {"terms": {**TERMS, "adjacency": "near"}}, "terms: must be those that an export wrote"),
        (0, {"terms": {**TERMS, "cohort": 11}}, "terms: must be those that an export wrote"),
    ],
)
def test_a_forged_row_that_makes_no_sense_is_refused(kept, number, change, message):
    rewritten(kept, number, {})
    ledger.read(kept)
    rewritten(kept, number, change)
    with pytest.raises(LedgerError, match=message):
        price(kept)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(
    st.integers(0, 4),
    st.dictionaries(st.sampled_from(["kind", "state", "round", "attempt", "asked", "answered", "again", "noise", "norm",
                                     "record_noise", "divisor", "server_noise", "terms", "planned", "side"]), ODD, max_size=3),
    st.dictionaries(st.sampled_from(sorted(TERMS)), ODD, max_size=2),
)
def test_whatever_a_forger_writes_only_our_own_errors_come(tmp_path_factory, number, change, terms):
    path = tmp_path_factory.mktemp("forged") / "ledger.jsonl"
    with ledger.begin(path, HEADER) as book:
        one_round(book, 0)
        one_round(book, 1)
    held = {**TERMS, **terms}
    try:
        rewritten(path, number, {**({"terms": held} if number == 0 else {}), **change})
    except ValueError:  # no JSON has it
        return
    try:
        price(path)
    except FedparetoError as error:
        assert str(path) in str(error) or "terms" in str(error)  # noqa: PT017


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_whatever_bytes_come_only_our_own_errors_come(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bytes") / "ledger.jsonl"
    path.write_bytes(data)
    with pytest.raises(LedgerError):
        price(path)
    book = ledger._line({**HEADER, "before": ""}, "")[0]
    path.write_bytes(book + data)
    try:
        ledger.open(path).close()
    except LedgerError as error:
        assert "line" in str(error)  # noqa: PT017


def test_a_full_disk_is_said_and_what_was_written_stays(kept, monkeypatch):
    book = ledger.open(kept)
    write = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) > 40:
            return write(handle, data[:40])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger.os, "write", half)
    with pytest.raises(LedgerError, match="must be a file that can be written, found: No space left on device"):
        book.began(3, [1])
    monkeypatch.undo()
    with ledger.open(kept) as again:
        assert again.history.torn == 1
        assert again.history.done == {0, 1, 2}
