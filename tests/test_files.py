"""Files are written whole or not at all, and never over what would be lost."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedpareto.errors import OutputError, SettingError
from fedpareto.files import ENDS, check_output, starts_as, write_again, write_new, write_whole
from fedpareto.study.write import write_section, write_study

OLD, NEW = b"old\n" * 100, b"new\n" * 200
PAGE = b"<!doctype html><title>a \xc2\xb7 fedpareto</title>"


def leftovers(folder):
    return [p.name for p in folder.iterdir() if p.name.startswith(".fedpareto-")]


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    path.chmod(0o640)
    write_whole(path, NEW)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (NEW, 0o640)
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "a").write_bytes(OLD)
    (tmp_path / "link").symlink_to("a")
    write_whole(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == NEW


def test_a_file_that_fails_its_check_replaces_nothing(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    with pytest.raises(OutputError, match="output: must begin as a page does, found b'new"):
        write_whole(path, NEW, starts_as("page"))
    assert path.read_bytes() == OLD
    assert leftovers(tmp_path) == []


def test_other_bytes_than_were_written_are_not_kept(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "fsync", lambda handle: os.ftruncate(handle, 3))  # a disk that loses what it was given
    with pytest.raises(OutputError, match="must read as it was written, found other bytes"):
        write_whole(path, NEW)
    assert path.read_bytes() == OLD
    assert leftovers(tmp_path) == []


def special(tmp_path):
    """Return places where there is something other than a file, each with the word for it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    return {tmp_path / "pipe": "a pipe", tmp_path / "folder": "a folder", Path("/dev/null"): "a device", Path("/"): "must name a file",
            tmp_path / "plain" / "below": "Not a directory", tmp_path / ("x" * 300): "File name too long",
            tmp_path / "loop": "Too many levels of symbolic links", Path("a\0b"): "embedded null"}


def test_what_is_no_file_is_refused_by_name(tmp_path):
    for path, word in special(tmp_path).items():
        with pytest.raises(SettingError, match="Name") as told:
            write_whole(path, NEW)
        assert word in str(told.value)
        with pytest.raises(SettingError, match=r"^--output: ") as told:
            check_output(path, "page", {})
        assert word in str(told.value)


def test_a_study_that_is_a_pipe_is_refused(tmp_path, fedpareto):
    os.mkfifo(tmp_path / "pipe")
    for verb in ("front", "compare", "run"):
        done = fedpareto(verb, tmp_path / "pipe")
        assert (done.status, done.err) == (2, f"error: STUDY: must be a file, found {tmp_path / 'pipe'}, which is none. Name a file.\n")


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind("s")
        with pytest.raises(SettingError, match="found a socket"):
            write_whole(Path("s"), NEW)


def test_a_database_is_never_replaced(tmp_path):
    path = tmp_path / "s.db"
    path.write_bytes(b"SQLite format 3\0" + OLD)
    with pytest.raises(OutputError, match="must not be a database: its rows would be lost"):
        write_whole(path, NEW)
    with pytest.raises(SettingError, match=r"--output: must not be a database, found .*: its rows would be lost"):
        check_output(path, "page", {}, force=True)
    assert path.read_bytes().endswith(OLD)


def test_an_input_is_refused_by_any_of_its_names(tmp_path):
    study = tmp_path / "s.toml"
    study.write_bytes(OLD)
    (tmp_path / "link").symlink_to("s.toml")
    os.link(study, tmp_path / "second")
    for name in ("s.toml", "link", "second", "./s.toml", "s.toml-wal"):
        with pytest.raises(SettingError, match=r"which is the study file: it would be lost. Name another."):
            check_output(tmp_path / name, "study", {"the study file": study}, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_a_file_of_another_kind_is_refused_though_it_be_forced(tmp_path, force):
    path = tmp_path / "a.html"
    path.write_bytes(b"<html>mine</html>")
    with pytest.raises(SettingError, match=r"must be a new file or a page to write again, found .*, which is something else"):
        check_output(path, "page", {}, force=force)
    path.write_bytes(PAGE)
    check_output(path, "page", {}, force=force)


OF_OTHERS = {  # files of the very format, by other programs
    "picture": [b"\x89PNG\r\n\x1a\n" + b"a photograph", b"<?xml version='1.0'?><svg/>"], "page": [b"<!doctype html><title>mine</title>"],
    "model": [b"\x20" + bytes(7) + b'{"__metadata__":{"format":"pt"}}'], "model card": [b"# Model card of another"], "result": [b'{"name": "mine"}']}


@pytest.mark.parametrize("kind", OF_OTHERS)
def test_a_file_of_another_program_is_not_written_again(tmp_path, kind):
    """A past finding: any picture and any model was replaced."""
    for content in OF_OTHERS[kind]:
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(SettingError, match=f"must be a new file or a {kind} to write again, found .*, which is something else and would be lost"):
            check_output(tmp_path / "a", kind, {})


def test_what_came_to_the_place_of_an_output_while_the_command_worked_stays(tmp_path, study_text, fedpareto, monkeypatch):
    """A page is written hours after its place was looked at."""
    from fedpareto import loop

    path, whole = tmp_path / "tiny.toml", loop.run
    path.write_text(study_text)

    def run(*words):
        (tmp_path / "tiny.html").write_text("<html>mine</html>")
        return whole(*words)

    monkeypatch.setattr(loop, "run", run)
    done = fedpareto("run", path)
    assert done.status == 2
    assert f"{tmp_path / 'tiny.html'}: must be a new file or a page to write again" in done.err
    assert (tmp_path / "tiny.html").read_text() == "<html>mine</html>"
    assert fedpareto("front", path).status == 0  # no row is lost
    for name, kind in (("a.png", "picture"), ("a.safetensors", "model"), ("a.md", "model card"), ("a.json", "result")):
        (tmp_path / name).write_bytes(OLD)
        with pytest.raises(SettingError, match=f"must be a new file or a {kind} to write again"):
            write_again(tmp_path / name, NEW, kind)
        assert (tmp_path / name).read_bytes() == OLD


STUDY = b'[objectives.test_error]\n'
NO_STUDIES = [b"import torch\n", b"column,mean,spread\na,0,1\n", b"x = 1\n", b"[tool.ruff]\n", b"\xff\xfe", b"objectives = 3\n", b"a = " + b"[" * 5000, b"#" * 2**20 + b"\n" + STUDY]


def test_a_study_file_alone_is_replaced_by_force(tmp_path):
    """A past finding: `pick --force --output` replaced the study's own module, and its data."""
    path = tmp_path / "a.toml"
    path.write_bytes(STUDY)
    check_output(path, "study", {}, force=True)
    with pytest.raises(SettingError, match="must be a new file or a study to write again"):
        check_output(path, "study", {})
    for content in NO_STUDIES:
        path.write_bytes(content)
        with pytest.raises(SettingError, match=r"must be a new file or a study to write again, found .*, which is something else and would be lost"):
            check_output(path, "study", {}, force=True)


@pytest.mark.parametrize("kind", ENDS)
def test_an_empty_file_is_filled_only_if_it_is_called_as_what_is_written(tmp_path, kind):
    """Some are there to be empty: a page in place of an `__init__.py` would end the import of its package."""
    for name in ("__init__.py", "py.typed", ".gitkeep", "STOP", "ledger.jsonl"):
        (tmp_path / name).touch()
        for force in (False, True):
            with pytest.raises(SettingError, match=f"must be a new file or a {kind} to write again, found .*, which is empty and not called as one"):
                check_output(tmp_path / name, kind, {}, force=force)
    for end in ENDS[kind]:
        (tmp_path / f"a{end}").touch()
        check_output(tmp_path / f"a{end}", kind, {})


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingError, match=r"--figure: must be in a folder that exists, found .*no\. Make it, or name another"):
        check_output(tmp_path / "no" / "a.png", "picture", {}, option="--figure")


def test_a_new_file_replaces_nothing(tmp_path):
    write_new(tmp_path / "a", OLD, 0o600)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", NEW, 0o600)
    assert (tmp_path / "a").read_bytes() == OLD


@contextlib.contextmanager
def full_disk(folder):
    """Leave no room in a folder: a tiny file system if that may be mounted, else a limit on the size of files."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", folder], capture_output=True, check=False).returncode == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield mounted
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, study_text):
    folder = tmp_path / "disk"
    folder.mkdir()
    with full_disk(folder) as mounted:
        path = folder / "study.toml"
        path.write_text(study_text)
        if not mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        big = study_text + "# long\n" * 2000
        for write in (lambda: write_whole(path, big.encode()), lambda: write_study(path, big),
                      lambda: write_section(path, "cost", {"step_seconds": [1.0] * 4000})):
            with pytest.raises(OutputError, match=r"What was there before is as it was\. Make room or name another"):
                write()
            assert path.read_text() == study_text
            assert leftovers(folder) == []


CHILD = """
import os, sys
from pathlib import Path
from fedpareto.files import write_whole
content = b"new\\n" * 200
try:
    os.stat("/start-here")
except OSError:
    pass
write_whole(Path(sys.argv[1]), content, lambda found: None)
"""
CHANGES = {"openat", "write", "fsync", "chmod", "fchmodat", "rename", "renameat", "unlink"}


def traced(path, *options):
    command = ["strace", "-qq", *options, sys.executable, "-c", CHILD, str(path)]
    return subprocess.run(command, capture_output=True, check=False, env=os.environ | {"PYTHONHASHSEED": "0"}).returncode


def calls_of_writing(tmp_path):
    """Return the system calls of writing a file, each with its number among those of its name."""
    path, log = tmp_path / "probe", tmp_path / "log"
    path.write_bytes(OLD)
    if shutil.which("strace") is None or traced(path, "-o", str(log)) != 0:
        pytest.skip("no strace, or it may not trace here")
    names = [line.partition("(")[0] for line in log.read_text(errors="replace").splitlines()]
    start = next(i for i, line in enumerate(log.read_text(errors="replace").splitlines()) if "/start-here" in line)
    end = next(i for i, line in enumerate(log.read_text(errors="replace").splitlines()) if i > start and line.startswith("rename")) + 4
    return [(name, names[: i + 1].count(name)) for i, name in enumerate(names) if start < i <= end and name.isidentifier()]


def kill_at(tmp_path, calls):
    """Kill the writing at each of some calls; return what was found in the file."""
    found = []
    for name, when in calls:
        path = tmp_path / "target"
        path.write_bytes(OLD)
        status = traced(path, "-e", f"trace={name}", "-o", "/dev/null", "-e", f"inject={name}:signal=KILL:when={when}")
        assert path.read_bytes() in (OLD, NEW), (name, when)
        assert status != 0 or path.read_bytes() == NEW
        found.append((status, path.read_bytes()))
    return found


def test_a_kill_while_writing_leaves_the_old_file_or_the_new_one(tmp_path):
    found = kill_at(tmp_path, [call for call in calls_of_writing(tmp_path) if call[0] in CHANGES])
    assert sum(status != 0 for status, _ in found) >= 4  # the kills came
    assert {content for _, content in found} == {OLD, NEW}


@pytest.mark.slow
def test_a_kill_at_any_call_of_writing_leaves_the_old_file_or_the_new_one(tmp_path):
    found = kill_at(tmp_path, calls_of_writing(tmp_path))
    assert sum(status != 0 for status, _ in found) >= 10
