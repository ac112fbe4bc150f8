"""What others hand to export, deploy, a site or keys: damaged, foreign, endless or of odd names, it ends in words."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from replayed import BASE, World, study_of

from fedpareto import load_study
from fedpareto.crypto import write_private_key
from fedpareto.crypto.keys import PrivateKey
from fedpareto.deploy import deployment, export, kept, local, machine
from fedpareto.deploy.drawn_up import draw_up
from fedpareto.deploy.progress import Progress, there
from fedpareto.errors import BadKey, DeploymentError, OutputError, SettingError
from fedpareto.files import json_of
from fedpareto.study.write import to_toml

DATA = {"data": {"name": "digits", "clients": 5}, "seed": 1}


@pytest.fixture
def world(tmp_path):
    return World(study_of(tmp_path), tmp_path, replay=False)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("code", None, "code must be an object of SHA-256, by file, found None"),
        ("code", {"a": 1}, "code must be an object of SHA-256"),
        ("planned", "x", "planned must be an object of numbers, by view, found 'x'"),
        ("shape", None, "shape must be a list of whole numbers, found None"),
        ("sizes", [1.5], "sizes must be a list of whole numbers"),
        ("statements", [1], "statements must be a list of texts"),
        ("classes", 0, "classes must be a whole number above 0, found 0"),
        ("dtype", [], "dtype must be uint8 or float32"),
        ("patience", -1, "patience must be a finite number that is at least 0, found -1"),
        ("scale", 10**400, "scale must be a finite number"),
        ("seed", True, "seed must be a whole number"),
        ("name", None, "name must be a text"),
        ("tells", 1, "tells must be true or false"),
        ("study", [], "study must be an object"),
    ],
)
def test_a_part_of_another_kind_is_refused_by_name(name, value, why, world, tmp_path):
    (tmp_path / deployment.FILE).write_text(json.dumps(json.loads(world.agreed.text()) | {name: value}))
    with pytest.raises(DeploymentError, match=why):
        deployment.read(tmp_path)


def test_a_file_that_nests_never_ends_or_never_answers_is_no_json(world, tmp_path):
    path = tmp_path / deployment.FILE
    path.write_text("[" * 100_000)
    with pytest.raises(DeploymentError, match=r"must be JSON, found: lists within lists without end\. Export it anew"):
        deployment.read(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DeploymentError, match="must be JSON, found: a pipe, a device or a folder"):
        deployment.read(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(DeploymentError, match="found: a pipe, a device or a folder"):
        deployment.read(tmp_path)
    (tmp_path / "long").write_text(" " * 100)
    with pytest.raises(ValueError, match="more than 99 bytes"):
        json_of(tmp_path / "long", 99)


def test_code_that_is_imported_is_agreed_on_and_goes_with_the_app(tmp_path):
    (tmp_path / "widths.py").write_text("WIDTH = 10\n")
    net = "import torch\nimport widths\n\n\nclass Net(torch.nn.Sequential):\n    def __init__(self):\n"
    net += "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, widths.WIDTH))\n"
    (tmp_path / "nets_of_mine.py").write_text(net)
    agreed = draw_up(study_of(tmp_path, model={"name": "nets_of_mine:Net"}), {})
    assert set(agreed.code) == {"nets_of_mine.py", "widths.py"}
    export.write_app(agreed, tmp_path, DATA, tmp_path / "app")
    for name in agreed.code:
        assert (tmp_path / "app" / export.APP / name).read_bytes() == (tmp_path / name).read_bytes()
    for name in ("nets_of_mine", "widths"):
        del sys.modules[name]  # as in the process of a site
    assert deployment.read(tmp_path / "app" / export.APP).hash == agreed.hash
    (tmp_path / "app" / export.APP / "widths.py").write_text("WIDTH = 1 / 0\n")
    with pytest.raises(DeploymentError, match=r"widths\.py: must be the code that was agreed"):
        deployment.read(tmp_path / "app" / export.APP)
    for name in ("nets_of_mine", "widths"):
        del sys.modules[name]


LAZY = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        from pieces_of_mine import bent
        return bent(self.layer(x.flatten(1)))

    def shown(self):  # a study never comes here
        import shown_of_mine
        return shown_of_mine.table()

    def broken(self):
        import broken_of_mine, of_nobody
"""
AT_A_SITE = """
import sys
from pathlib import Path
import torch
from fedpareto.deploy import deployment
agreed = deployment.read(Path(sys.argv[1]))
net = agreed.problem.model.build(agreed.shape, agreed.classes)
assert net(torch.ones(2, *agreed.shape)).shape == (2, 10)
print(net.shown())
"""


def test_code_imported_inside_functions_goes_with_the_app_though_it_never_ran(tmp_path):
    (tmp_path / "lazy_of_mine.py").write_text(LAZY)
    (tmp_path / "shown_of_mine.py").write_text("def table():\n    return 'a table'\n\n\ndef never():\n    from .... import too_far\n")
    (tmp_path / "broken_of_mine.py").write_text("this is no Python\n")
    (tmp_path / "unneeded.py").write_text("raise SystemExit('nobody imports this')\n")
    package = tmp_path / "pieces_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("def bent(x):\n    from .deep import bend\n    return bend(x)\n")
    (package / "deep.py").write_text("def bend(x):\n    from . import numbers\n    return x * numbers.ONE\n")
    (package / "numbers.py").write_text("ONE = 1\n")
    (package / "unneeded.py").write_text("")
    agreed = draw_up(study_of(tmp_path, model={"name": "lazy_of_mine:Net"}), {})
    pieces = {f"pieces_of_mine/{name}.py" for name in ("__init__", "deep", "numbers")}
    assert set(agreed.code) == {"lazy_of_mine.py", "shown_of_mine.py", "broken_of_mine.py"} | pieces
    export.write_app(agreed, tmp_path, DATA, tmp_path / "app")
    site = [sys.executable, "-c", AT_A_SITE, tmp_path / "app" / export.APP]
    done = subprocess.run(site, capture_output=True, text=True, cwd="/", check=False)
    assert done.stdout == "a table\n", done.stderr[-2000:]
    for name in ("lazy_of_mine", "pieces_of_mine", "pieces_of_mine.deep", "pieces_of_mine.numbers"):
        sys.modules.pop(name, None)


def test_code_called_as_a_file_of_the_app_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "task.py").write_text("from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.Flatten(), nn.Linear(64, 10))\n")
    agreed = draw_up(study_of(tmp_path, model={"name": "task:Net"}), {})
    with pytest.raises(OutputError, match=r"task\.py: must not be called as a file of the app, .*found code of your own of that name"):
        export.write_app(agreed, tmp_path, DATA, tmp_path / "app")
    assert not (tmp_path / "app").exists()
    del sys.modules["task"]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_patience_that_is_none_is_refused(seconds, tmp_path):
    with pytest.raises(SettingError, match="patience: must be a number of seconds above 0, found"):
        draw_up(study_of(tmp_path), {}, patience=seconds)


@pytest.mark.parametrize("name", ['"]\nevil = 1 #', "\x1b[31m\\", "../../x", "x" * 3000, "研究", "${HOME}`id`"])
def test_a_name_of_any_letters_makes_an_app_that_reads(name, tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text(to_toml({**BASE, "name": name}))
    study = load_study(path)
    export.write_app(draw_up(study, {}), tmp_path, DATA, tmp_path / "app")
    read = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    slug = read["project"]["name"]
    assert re.fullmatch("[a-z0-9-]{1,60}", slug)
    assert set(read) == {"build-system", "project", "tool"}
    assert "\x1b" not in (tmp_path / "app" / "README.md").read_text()
    assert deployment.read(tmp_path / "app" / export.APP).name == name


def test_an_app_is_written_over_nothing(world, tmp_path):
    for place in (tmp_path, tmp_path / "small.toml"):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(OutputError, match="must be a new folder or an empty one, found something there"):
            export.write_app(world.agreed, tmp_path, DATA, place)
        assert sorted(tmp_path.rglob("*")) == before


def change_words(path: Path) -> None:
    data = path.read_bytes()
    assert b'\\"round\\"' in data
    path.write_bytes(data.replace(b'\\"round\\": 0', b'\\"round\\": 9'))


def change_a_number(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def fill(content: bytes):
    return lambda path: path.write_bytes(content)


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone")


SPOILS = [change_words, change_a_number, fill(b""), fill(b"\0" * 99), fill(b"[" * 99_999), make_a_folder, make_a_link_to_nothing]


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_damaged_state_is_found_whatever_was_changed(spoil, world):
    client = world.client(0)
    path = client.path
    kept.write(path, kept.Kept({"values": client.block.initial[0, 0]}, {"round": 0, "asked": "x"}))
    assert kept.read(path, ("round", "asked")) is not None
    spoil(path)
    with pytest.raises(DeploymentError, match=r"must hold the state that was written, found damage: .*Take a copy"):
        kept.read(path, ("round", "asked"))


def test_the_state_of_another_party_is_refused(tmp_path):
    kept.write(tmp_path / "state", kept.Kept({}, {"round": 0}))
    with pytest.raises(DeploymentError, match="found damage: 'progress'"):
        kept.read(tmp_path / "state", ("progress",))
    assert kept.read(tmp_path / "none", ()) is None


@pytest.mark.parametrize("text", ["", "[]", "null", '{"of": 1, "no": 2}', "[" * 100_000, "\udcff"])
def test_a_damaged_progress_is_said(text, tmp_path):
    (tmp_path / "progress.json").write_text(text, errors="surrogateescape")
    with pytest.raises(DeploymentError, match=r"must say how far the deployment is, found damage: .*Remove it"):
        there(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"data": {"name": "digits", "no": 1}, "seed": 1}', '{"data": {"name": "digits"}, "seed": null}', "[" * 100_000])
def test_a_list_of_data_that_is_none_is_refused(text, tmp_path):
    (tmp_path / "demo.json").write_text(text)
    with pytest.raises(DeploymentError, match="must name the study's data and how they are dealt, found"):
        machine.write_sites(tmp_path / "demo.json", tmp_path)


def test_deploy_takes_no_folder_of_something_else_and_no_path_that_flower_cannot_read(world, tmp_path):
    pytest.importorskip("flwr")
    export.write_app(world.agreed, tmp_path, DATA, tmp_path / "app")
    home = tmp_path / "app-local"
    home.mkdir()
    (home / "site0.npz").write_text("not to be lost")
    with pytest.raises(DeploymentError, match="must be a new folder or one of this deployment, found something else"):
        local.prepared(tmp_path / "app")
    assert [path.name for path in home.iterdir()] == ["site0.npz"]
    (home / local.AGREED).write_text("0" * 64)
    with pytest.raises(DeploymentError, match=r"must be a new folder or one of this deployment, found that of another\. Move it away"):
        local.prepared(tmp_path / "app")
    odd = tmp_path / 'a"b'
    shutil.copytree(tmp_path / "app", odd)
    with pytest.raises(DeploymentError, match=r"must be a path without quotes, .*found '\"': Flower could not read it"):
        local.prepared(odd)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_stops_what_deploy_started(number, world, tmp_path, monkeypatch):
    """As Ctrl-C does; without it a SuperLink and its nodes would stay behind."""
    there = local.Local(tmp_path, world.agreed, tmp_path)
    (tmp_path / "logs").mkdir()
    there.started["node0"] = node = subprocess.Popen(["sleep", "600"], start_new_session=True)

    def asked_to_end():
        with local.ended_by_signals(), local.running(there):
            raise AssertionError("it goes on")

    monkeypatch.setattr(local, "start_link", lambda there: os.kill(os.getpid(), number))
    before = signal.getsignal(number)  # ignored where tests were started with nohup
    with pytest.raises(SystemExit, match=str(128 + number)):
        asked_to_end()
    assert node.returncode == -signal.SIGTERM
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("news", [False, True])
def test_a_run_that_ends_while_flower_is_asked_has_its_result(news, world, tmp_path, monkeypatch):
    there = local.Local(tmp_path, world.agreed, tmp_path)
    there.server.mkdir()
    Progress(of=1).write(there.server)

    def asked(self, *command):  # it takes seconds, in which the last round may end
        if news:
            Progress(of=1, rounds=1, done=True).write(there.server)
        return json.dumps({"runs": [{"status": "finished:completed"}]})

    monkeypatch.setattr(local.Local, "call", asked)
    monkeypatch.setattr(local, "LOOKING", 0.0)
    monkeypatch.setattr(local, "last_words", lambda there, name: "its log")
    if news:
        assert local.watched(there) is None
    else:
        with pytest.raises(DeploymentError, match="run: must end with a result, found that Flower says finished:completed: its log"):
            local.watched(there)


def test_a_deployment_that_is_done_is_told_and_not_run_again(world, tmp_path, monkeypatch):
    home = tmp_path / "app-local"
    there = local.Local(tmp_path / "app", world.agreed, home)
    world.serve()
    home.mkdir()
    (world.folder / "server").rename(there.server)
    monkeypatch.setattr(local, "prepared", lambda app: there)
    found = local.deploy(tmp_path / "app")  # nothing is started: Flower need not be there
    assert found["rounds"] == world.agreed.rounds
    assert all(of["epsilon"] == of["planned"] for of in found["ledger"].values())


def test_what_deploy_makes_beside_an_app_appears_whole_and_is_its_owners_alone(world, tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    export.write_app(world.agreed, tmp_path, DATA, tmp_path / "app")
    home, dealt = tmp_path / "app-local", machine.write_sites

    def killed(demo, folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "write_sites", killed)
    with pytest.raises(KeyboardInterrupt):
        local.prepared(tmp_path / "app")
    assert not home.exists()
    assert not list(tmp_path.glob(".fedpareto*"))
    monkeypatch.setattr(machine, "write_sites", dealt)
    assert local.prepared(tmp_path / "app").home == home
    assert home.stat().st_mode & 0o077 == 0
    keys = {path.name: path.read_bytes() for path in home.glob("*key*")}
    local.prepared(tmp_path / "app")
    assert {path.name: path.read_bytes() for path in home.glob("*key*")} == keys


@pytest.mark.parametrize("name", ["", "/", ".."])
def test_a_key_needs_a_name(name, fedpareto):
    said = fedpareto("keys", "make", name)
    assert said.status == 2
    assert "FILE: must name a file, found" in said.err


@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_pipe_is_no_key(verb, tmp_path, fedpareto):
    os.mkfifo(tmp_path / "pipe")
    said = fedpareto("keys", verb, tmp_path / "pipe")
    assert said.status == 2
    assert "pipe: must be a key file that can be read, found: a pipe." in said.err


def test_a_key_is_its_owners_alone_whatever_the_umask(tmp_path):
    key = PrivateKey.generate(2048)
    before = os.umask(0)
    try:
        write_private_key(key, tmp_path / "key")
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadKey, match="must be a new file, found one"):
        write_private_key(key, tmp_path / "key")
