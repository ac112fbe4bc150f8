"""fedpareto init writes a study that runs as it is; the wheel holds what that needs."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_packaging import ROOT, copy_of

from fedpareto import load_study
from fedpareto.cli import cli
from fedpareto.cli.starting import FILES, asked_by, files_of, names, write_example
from fedpareto.errors import SettingError
from fedpareto.files import folder_of_examples


def test_the_starter_is_written_whole_and_loads(tmp_path):
    written = write_example("starter", tmp_path / "new" / "study")
    assert [path.name for path in written] == list(FILES)
    study = load_study(tmp_path / "new" / "study" / "study.toml")
    study.problem.check()
    assert [o.name for o in study.problem.objectives] == ["test_error", "epsilon"]


@pytest.mark.parametrize("name", names())
def test_every_example_has_a_question_and_all_the_modules_it_names(name, tmp_path):
    assert asked_by(name)[-1] in "?."  # whole sentences, also where the file breaks the line
    assert len(asked_by(name)) > 20
    written = write_example(name, tmp_path)
    assert {path.name for path in written} >= {path.name for path in files_of(name)}


def test_no_file_is_replaced(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(SettingError, match=r"init: .* must not hold .*, found README.md\. Name another folder"):
        write_example("starter", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_command_that_was_killed_goes_on_and_a_file_that_was_changed_stays(tmp_path):
    (tmp_path / "study.toml").write_bytes((folder_of_examples() / "starter" / "study.toml").read_bytes())
    assert len(write_example("starter", tmp_path)) == len(list(tmp_path.iterdir())) == 4
    with pytest.raises(SettingError, match=r"init: .* must not hold .*, found all of them\. Name another folder"):
        write_example("starter", tmp_path)
    (tmp_path / "my_model.py").write_text("mine")
    (tmp_path / "my_data.py").unlink()
    (tmp_path / "my_data.py").symlink_to("gone")
    with pytest.raises(SettingError, match=r"found my_model\.py and my_data\.py"):
        write_example("starter", tmp_path)
    assert (tmp_path / "my_model.py").read_text() == "mine"


def test_a_file_is_no_folder_and_a_name_must_be_known(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="FOLDER must be a folder, found the file"):
        write_example("starter", tmp_path / "file")
    with pytest.raises(SettingError, match=r"--example: must be one of .*found 'quikstart'.*quickstart"):
        write_example("quikstart", tmp_path)


def test_the_list_names_every_example():
    shown = CliRunner().invoke(cli, ["init", "--list"]).output
    assert [line.partition(":")[0] for line in shown.splitlines()] == names()
    assert len(names()) >= len(list(folder_of_examples().glob("*.toml")))


def test_the_wheel_installed_alone_writes_a_study_and_runs_it(tmp_path):
    """The dependencies are those of this environment; fedpareto itself comes from the wheel alone."""
    tree = copy_of(ROOT, tmp_path / "tree")
    code = f"from setuptools import build_meta as b; b.build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True)
    wheel = next(tmp_path.glob("*.whl"))
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)],
        check=True, capture_output=True,
    )
    place = next((tmp_path / "clean" / "lib").glob("*/site-packages"))
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    alone = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = str(tmp_path / "clean" / "bin" / "fedpareto")

    def done(*words):
        return subprocess.run([command, *words], cwd=tmp_path, env=alone, check=True, capture_output=True, text=True).stdout

    where = subprocess.run([python, "-c", "import fedpareto; print(fedpareto.__file__)"], cwd=tmp_path, env=alone,
                           check=True, capture_output=True, text=True).stdout
    assert Path(where.strip()).is_relative_to(place)
    assert done("init", "mine").splitlines()[-1] == "Next: fedpareto run mine/study.toml"
    assert "recommended ★" in done("run", "mine/study.toml", "--budget", "3")
    assert (tmp_path / "mine" / "study.html").is_file()
    assert "kang23-fig3" in done("reproduce", "--list")
    assert "quickstart:" in done("init", "--list")
