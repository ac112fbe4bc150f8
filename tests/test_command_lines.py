"""Command lines put together at random: each ends soon, in an answer or in words, and no file that was there is changed."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pytest
from tiny import STUDY

from fedpareto import load_study, run
from fedpareto.cli import cli, main

SECONDS = 5.0  # of computing that a command may take; the longest answers, such as four trainings and a page, take less than two
ENDLESS = 60  # seconds after which a command is stopped, and is a fault

# the answers that commands give: what each may write over, beside files that are new
NET = "import torch\n\n\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(3, 2)\n"
WRITES = {"run": ".html", "report": ".html .png .svg", "compare": ".html .png", "plan": ".png .svg", "design": ".png", "train": ".safetensors .md"}
FILLS = WRITES | {"pick": ".toml"}  # where an empty file is
PICTURES = ("figure", "a.png", "a.svg", "page.html", "tiny.html", "model.safetensors")  # ours, to write again
NUMBERS = ["0", "-1", "0.5", "1e-5", "1e400", "nan", "inf", "-inf", "1_0", "0x10", "", " 1", "ten", "9" * 30, "9" * 5000, "1e-400", "٣", "1e15", "1e-12"]
SMALL = ["0", "-1", "0.5", "nan", "inf", "", "9" * 30, "9" * 5000]  # of what is trained: a large number would rightly take long
NAMES = ["epsilon", "trial", "__proto__", "", "no", "x" * 3000, "[/x]", "$\\frac$", "\x1b[31mred", "\u202e", "\udcff", "a\nb"]
PAIRS = ["leakage=", "=1", "leakage=nan", "leakage=1e400", "leakage==1", "no=1", "\x1b[31m=1", "utility_loss=-1", "x", "leakage=-inf", "secret=0.5"]
LISTS = [",", "1,,2", "1;2", "nan,1", "-1,-1", "1,1,1", "0,0", "1e400,1", "1e-320,1e308", ",".join("1" * 3000), "10,20,9999999999999999999999"]
PATHS = ["tiny.toml", "tiny.db", "other.toml", "other.db", "fresh.toml", "broken.toml", "damaged.toml", "damaged.db", "empty.toml", "own.toml", "blank.db",
         "private.toml", "private.db", "data.npz", "mine.py", "notes.txt", "link.toml", "link.db", "nowhere", "folder", "folder/tiny.toml", "folder/deep/x", "broken.py", "ledger.jsonl",
         "missing.toml", "missing.db", "new.toml", "new.db", "new.html", "new.png", "new.svg", "new.safetensors", "new", "model.safetensors", "design.toml",
         "pipe", "/dev/null", "/dev/full", "/dev/zero", "", ".", "..", "/", "-", "--", "~", ":memory:", "file:x.db", "a" * 300 + ".toml", "a/" * 3000,
         "tiny.toml/", "./tiny.toml", "../here/tiny.db", "new\n\x1b[31m.toml", "\udcff.toml", "‮.db", "tiny.html", "study.html", "tiny.db-wal", "notes.txt/x"]
HOSTS = ["999.1.1.1", "", "a" * 300, "::zz", "[", "1.2.3.4.5"]  # none can be served at, or the page would be served for ever
STUDIES = ["tiny.toml"] * 4 + ["other.toml", "link.toml", "folder/tiny.toml", "private.toml", "own.toml"]
RIGHT = {  # values that an option takes, by its name; those of numbers go by their kind
    "study_file": STUDIES, "studies": STUDIES, "limits": ["leakage=0.9", "utility_loss=0.95"], "references": ["leakage=1", "utility_loss=2"],
    "prefer": ["utility_loss", "leakage"], "at": ["1,1", "0.2,0.8"], "cohort": ["5", "5,10"], "rounds": ["3", "3,9"], "data": ["digits"],
    "names": ["nothing"], "attacks": ["canary", "noise", "membership,inversion"], "views": ["server", "server,release"], "options": ["canaries=100", "shadows=8"],
    "folder": ["fresh", "folder/deep"], "file": ["ledger.jsonl"], "example": ["starter", "quickstart", "own_measure"], "host": HOSTS, "output": ["new.html"], "figure": ["new.png", "new.svg"], "study": ["new.toml"], "directory": ["folder", "."],
    "db": ["tiny.db", "other.db", "link.db", "own.db", "new.db"], "sigmas": ["8"], "share": ["0.2"], "sigma": ["0.5"], "sample_ratio": ["1"], "tolerance": ["0.1"]}
OUTPUTS = {"pick": "new.toml", "train": "new.safetensors", "rescue": "new.db", "reproduce": "new"}
WRONG = {"limits": PAIRS, "references": PAIRS, "prefer": NAMES, "at": LISTS, "cohort": LISTS + NUMBERS, "rounds": LISTS + NUMBERS, "directory": PATHS,
         "attacks": ["canry", ",", "os:system", "mine:Net", "broken:Attack", "\x1b[31m", ""], "views": ["sever", "server,,", ""], "options": [*PAIRS, "canaries=0", "shadows=1e400"],
         "example": ["no", "../quickstart", "", "\x1b[31m"], "data": ["mnist", "cifar10", "no", ""], "names": ["", "kang", "\x1b[31m", "../x"], "host": HOSTS, "port": ["-1", "65536", "x"]}
BRIEF = "0.01"  # seconds that every audit is given, so that it is as short as it can be
VERBS = ("audit", "init", "ledger", "data", "deploy", "export", "keys", "calibrate", "plan", "plan", "design", "report", "report", "compare", "reproduce", "rescue", "run", "front", "front", "pick", "pick", "verify", "train")
TRAINED = ("run", "design", "train", "report", "verify", "audit")


class World(NamedTuple):
    """A folder of studies, databases and other files that commands are called in."""

    folder: Path
    files: dict[str, bytes]

    def seen(self) -> dict[str, bytes]:
        """Return every file, by its name; links as what they lead to, and nothing of pipes."""
        return {str(path.relative_to(self.folder)): held(path) for path in self.folder.rglob("*") if path.is_symlink() or path.is_file()}

    def restored(self) -> None:
        """Bring every file back as it was, and take new ones away."""
        for name, content in self.seen().items():
            path = self.folder / name
            if name not in self.files:
                path.unlink()
            elif content != self.files[name]:
                path.write_bytes(self.files[name])


def held(path: Path) -> bytes:
    return f"link to {os.readlink(path)}".encode() if path.is_symlink() else path.read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, made once."""
    folder = tmp_path_factory.mktemp("made") / "here"
    folder.mkdir()
    text = STUDY.replace("budget = 2", "budget = 6").replace("limit = 0.8", "limit = 0.99")
    design = text.replace("{ low = 0.01, high = 0.5, log = true }", "0.1").replace("[0.5, 4.0]", "1.0").replace("rounds = 1", "rounds = 3")
    texts = {
        "tiny": text, "fresh": text, "broken": text.replace("budget = 6", "budget = two\nbudgets = 3"), "damaged": text, "empty": "", "design": design,
        "other": text.replace('name = "tiny"', 'name = "other"').replace("[objectives.leakage]", "[objectives.secret]"),
        "own": text.replace('name = "lr"', 'name = "mine:Net"').replace('name = "digits"', 'name = "data.npz"'),
        "private": text.replace("[objectives.utility_loss]", "[privacy]\nprivate_data = true\n\n[objectives.utility_loss]")}
    for name, content in texts.items():
        (folder / f"{name}.toml").write_text(content)
    (folder / "mine.py").write_text(NET)
    (folder / "ledger.jsonl").write_text('{"kind": "header"}\n')
    (folder / "broken.py").write_text("1 / 0\n")
    x, y = np.random.default_rng(0).random((40, 3)).astype(np.float32), np.arange(40) % 2
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    for name in ("tiny", "other", "damaged", "own", "private"):
        run(load_study(folder / f"{name}.toml")).close()
    del sys.modules["mine"]
    with contextlib.closing(sqlite3.connect(folder / "damaged.db")) as db:
        db.executescript("UPDATE trials SET measures = '{}' WHERE number = 1")
    (folder / "notes.txt").write_text("not to be lost\n")
    (folder / "study.html").write_text("<p>a page of another program</p>")
    (folder / "blank.db").touch()
    (folder / "link.toml").symlink_to("tiny.toml")
    (folder / "link.db").symlink_to("tiny.db")
    (folder / "nowhere").symlink_to("gone")
    for name in ("folder", "folder/deep"):
        (folder / name).mkdir()
    for name in ("tiny.toml", "tiny.db"):
        shutil.copy(folder / name, folder / "folder" / name)
    os.mkfifo(folder / "pipe")
    with contextlib.redirect_stdout(io.StringIO()):  # what libraries are loaded on first use counts for no command
        cli.main(["front", str(folder / "tiny.toml"), "--at", "1,1"], standalone_mode=False)
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    folder = tmp_path / "here"
    shutil.copytree(made, folder, symlinks=True, ignore=shutil.ignore_patterns("pipe"))
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    world = World(folder, {})
    world.files.update(world.seen())
    return world


def value_of(option: click.Parameter, verb: str, right: bool, luck: random.Random) -> str:
    """Return a value for an option: one that it takes, or one that it should not."""
    name = option.name or ""
    text = isinstance(option.type, click.types.StringParamType)
    if right and verb == "design" and name == "study_file":
        return "design.toml"
    if right and isinstance(option.type, click.Choice):
        return luck.choice(list(option.type.choices))
    if right and (name in RIGHT and (text or isinstance(option.type, click.Path) or name == "sigmas" or "float" in option.type.name)):
        return OUTPUTS.get(verb, luck.choice(RIGHT[name])) if name == "output" else luck.choice(RIGHT[name])
    if right:
        return luck.choice(["1", "2", "3"] if verb in TRAINED else ["1", "2", "10", "30"])
    if name in WRONG and text:
        return luck.choice(WRONG[name])
    if isinstance(option.type, click.Path):
        return luck.choice(PATHS)
    if isinstance(option.type, click.Choice):
        return luck.choice(["no", ""])
    return luck.choice(SMALL if verb in TRAINED else NUMBERS)


def command(luck: random.Random) -> list[str]:
    """Return a command line: a verb, its arguments, some of its options, and in most something that should not be."""
    verb = luck.choice([v for v in VERBS if v != "calibrate" or luck.random() < 0.3])
    group = cli.commands[verb]
    words = [luck.choice(sorted(group.commands))] if isinstance(group, click.Group) else []
    params = (group.commands[words[0]] if isinstance(group, click.Group) else group).params
    wrong = luck.choice([0, 0.1, 0.1, 0.3])  # how many of the values
    of_records = verb == "plan" and luck.random() < 0.2
    for part in params:
        if part.name == "seconds" and verb == "audit":
            continue  # it is given below
        if part.name in ("records", "batch_size", "local_steps") and luck.random() > 0.05:
            words += [part.opts[0], value_of(part, verb, luck.random() > wrong, luck)] if of_records else []
        elif isinstance(part, click.Argument):
            count = luck.choice([1, 2, 2, 3]) if part.nargs < 0 else 1
            words += [value_of(part, verb, luck.random() > wrong, luck) for _ in range(count)]
        elif part.required or luck.random() < 0.25:
            flag = luck.choice(part.opts)
            value = [] if getattr(part, "is_flag", False) else [value_of(part, verb, luck.random() > wrong, luck)]
            words += [f"{flag}={value[0]}"] if value and flag.startswith("--") and luck.random() < 0.2 else [flag, *value]
    if of_records:
        words += ["--unit", "record"]
    if verb == "audit":
        words += [] if "--attack" in words or luck.random() < 0.1 else ["--attack", luck.choice(["canary", "noise", "membership"])]
        words = [*words, "--seconds", luck.choice(["0", "-1", "nan", "", "x"]) if luck.random() < wrong else BRIEF]
    if words[:1] == ["make"] and verb == "keys":
        words += ["--scheme", "bfv"]  # a key of the other kind takes seconds
    if "--serve" in words:
        words += ["--host", luck.choice(HOSTS)]
    if verb == "reproduce" and not any(name in [*RIGHT["names"], *WRONG["names"]] for name in words):
        words.append("nothing")
    if luck.random() < wrong:
        words.insert(luck.randrange(len(words) + 1), luck.choice(["--no-such", "--", "-h", "--help", "--=", "", "-", "--json=1", *NAMES, *PATHS]))
    if luck.random() < wrong / 5 and "--serve" not in words and verb != "audit":
        luck.shuffle(words)
    return [luck.choice(["", "no", "-h", "--version", "Run"]) if luck.random() < wrong / 10 else verb, *words]


class Endless(BaseException):
    """A command was stopped that did not end."""


@contextlib.contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def called(words: list[str]) -> tuple[int, str, str]:
    """Call the command line with streams as a shell gives them; return its status and what it printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    before = sys.argv
    sys.argv = ["fedpareto", *words]
    sys.modules.pop("mine", None)  # in a process of its own it would not be there yet
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), stopped_after(ENDLESS):
            main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    finally:
        sys.argv = before
    for stream in (out, err):
        stream.flush()
    return status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


def faults(world: World, words: list[str]) -> list[str]:
    """Call a command and return what is wrong with how it ended; bring every file back."""
    began = time.process_time()
    try:
        status, out, err = called(words)
    except BaseException:
        world.restored()
        return [traceback.format_exc()[-1500:]]
    took = time.process_time() - began
    found = []
    if took > SECONDS:
        found.append(f"took {took:.1f} s")
    if status not in (0, 2) and (words[0], status) != ("audit", 1):  # an alarm
        found.append(f"ended with status {status}")
    if status == 2 and (not err.lstrip().startswith("error: ") and "\nerror: " not in err):
        found.append(f"gave no error: {err[-300:]!r}")
    if "Traceback" in out + err or "must keep the contract" in err:  # own code here does; so the fault is ours
        found.append(err[-1500:])
    if any(letter in out + err for letter in "\0\x07\x1b\x7f\u202e"):
        found.append(f"printed a control character: {(out + err)[:300]!r}")
    if status and len(err) > 20_000:
        found.append(f"told {len(err)} letters: {err[:200]!r}")
    found += changes(world, words, status)
    world.restored()
    return found


def changes(world: World, words: list[str], status: int) -> list[str]:
    """Return which files a command should not have changed."""
    after, verb, found = world.seen(), words[0], []
    for name in sorted(world.files):
        before, now = world.files[name], after.get(name)
        if now == before or name.endswith(("-lock", "-shm")):
            continue
        if now is None:
            found.append(f"removed {name}")
        elif not may_change(world, name, words, before):
            found.append(f"changed {name} in {verb}")
        elif status:
            found.append(f"changed {name}, and failed")
    allowed = (".html", ".png", ".svg", ".toml", ".db", ".db-lock", ".db-wal", ".db-shm", ".safetensors", ".md")
    left = [name for name in set(after) - set(world.files) if verb in ("front", "verify", "data") or (".part" in name and ".fedpareto" in name)]
    wrong = [name for name in left if not name.endswith(allowed[5:8])]
    return found + [f"left {name} after {verb}" for name in wrong]


def may_change(world: World, name: str, words: list[str], before: bytes) -> bool:
    """Say whether a command may change a file: an empty one called as what it writes, what it writes again, and a database that only grows."""
    verb, path = words[0], world.folder / name
    if verb in WRITES and name.endswith(tuple(WRITES[verb].split())) and b"fedpareto" in before:
        return True
    if verb == "calibrate" and "--write" in words:
        return path.suffix == ".toml" and any(word.endswith((name, "link.toml")) for word in words)
    if verb == "pick" and "--force" in words:
        return b"[objectives" in before and any(word.endswith(name) for word in words)
    if not before:  # an empty one: a database of that name, or a file called as what is written
        return (verb in ("run", "design") and path.suffix == ".db") or name.endswith(tuple(FILLS.get(verb, "/").split()))
    return before.startswith(b"SQLite") and grown(before, path)


def grown(before: bytes, path: Path) -> bool:
    """Say whether a database holds every trial that it held before."""
    old = path.with_name("before.db")
    old.write_bytes(before)
    try:
        held = []
        for file in (old, path):
            with contextlib.closing(sqlite3.connect(file)) as db:
                held.append(set(db.execute("SELECT number, settings, measures FROM trials WHERE state = 'done'")))
        return held[0] <= held[1]
    finally:
        old.unlink()


# no null byte is among the words: no system hands one to a program
CORPUS: list[list[str]] = [  # past findings, and one of each kind
    ["report", "tiny.toml", "--output", "tiny.db"],
    ["report", "tiny.toml", "--output", "mine.py"],
    ["pick", "tiny.toml", "--output", "tiny.toml", "--force"],
    ["pick", "tiny.toml", "--output", "link.toml", "--force"],
    ["pick", "tiny.toml", "--output", "tiny.db", "--force"],
    ["run", "study.html"],
    ["run", "tiny.toml", "--db", ":memory:"],
    ["run", "tiny.toml", "--db", "tiny.toml"],
    ["run", "pipe"],
    ["run", "fresh.toml", "--db", "tiny.db-wal"],
    ["report", "tiny.toml", "--serve", "--host", "a" * 300],
    ["compare", "."],
    ["compare", "tiny.toml", "pipe"],
    ["plan", "--epsilon", "1", "--clients", "9" * 30],
    ["plan", "--epsilon", "1e-400", "--clients", "10"],
    ["plan", "--epsilon", "4", "--clients", "10", "--rounds", "10,20,9999999999999999999999"],
    ["plan", "--epsilon", "4", "--clients", "10", "--figure", "out.txt"],
    ["plan", "--epsilon", "4", "--clients", "10", "--figure", "notes.txt"],
    ["plan", "--epsilon", "4", "--clients", "10", "--study", "tiny.toml"],
    ["front", "a/" * 3000],
    ["front", "\udcff.toml"],
    ["rescue", "damaged.toml", "--output", "tiny.db"],
    ["train", "tiny.toml", "--output", "tiny.safetensors", "--trial", "9" * 5000],
    ["data", "--directory", "\udcff"],
    ["data", "--directory", "pipe"],
    ["reproduce", "\x1b[31m"],
    ["calibrate", "pipe", "--write"],
    ["design", "tiny.toml", "--db", "tiny.db"],
    ["audit", "tiny.toml", "--trial", "0", "--attack", "noise", "--seconds", BRIEF],
    ["audit", "tiny.toml", "--attack", "os:system"],
    ["audit", "tiny.toml", "--attack", "broken:Attack"],
    ["audit", "damaged.toml", "--seconds", BRIEF],
    ["audit", "private.toml", "--attack", "membership", "--seconds", BRIEF],
    ["pick", "tiny.toml", "--output", "mine.py", "--force"],
    ["pick", "tiny.toml", "--output", "notes.txt", "--force"],
    ["init", "notes.txt"],
    ["keys", "make", ""],
    ["keys", "make", "tiny.toml"],
    ["keys", "show", "pipe"],
    ["keys", "check", "/dev/zero"],
    ["export", "tiny.toml", ".", "--to", "flower"],
    ["export", "tiny.toml", "tiny.db", "--to", "flower"],
    ["export", "own.toml", "new", "--to", "flower", "--patience", "nan"],
    ["export", "tiny.toml", "\udcff\x1b[31m", "--to", "flower"],
    ["deploy", ".", "--local", "4"],
    ["deploy", "pipe", "--local", "4"],
    ["ledger", "/dev/zero"],
    ["ledger", "pipe"],
    ["ledger", "ledger.jsonl"],
    ["init", "folder", "--example", "../quickstart"],
    ["init", "fresh\n\x1b[31m"],
    ["reproduce", "nothing", "--output", "notes.txt"],
    ["design", "design.toml", "--sigmas", "9" * 30],
    ["design", "design.toml", "--seeds", "9" * 30, "--compare"],
    ["design", "design.toml", "--sample-ratio", "9" * 5000],
    ["rescue", "other.toml", "--output", "/"],
    ["compare", "link.toml", "own.toml", "--reference", "leakage=1e400", "--json"],
    ["compare", "tiny.toml", "--reference", "leakage=1e200", "--reference", "utility_loss=1e200"],
]


def test_every_command_is_called() -> None:
    assert set(VERBS) == set(cli.commands)


@pytest.mark.parametrize("words", CORPUS, ids=lambda words: repr(" ".join(words))[:60])
def test_a_past_finding_ends_in_an_answer_or_in_words(world: World, words: list[str]) -> None:
    assert faults(world, words) == []


@pytest.mark.parametrize(("count", "seed"), [(150, 15), *(pytest.param(1000, seed, marks=pytest.mark.slow) for seed in range(10))])
def test_a_command_line_put_together_at_random_ends_in_an_answer_or_in_words(world: World, count: int, seed: int) -> None:
    luck, wrong, verbs = random.Random(seed), [], Counter[str]()
    for number in range(count):
        words = command(luck)
        verbs[words[0]] += 1
        wrong += [f"{number}: fedpareto {words}: {fault}" for fault in faults(world, words)]
    print(verbs)
    assert not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong)
