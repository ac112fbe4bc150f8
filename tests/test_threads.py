"""Threads that wait must not spin, and proposals are computed on one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from fedpareto.threads import one_thread


def said(code, **env):
    bare = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=bare | env)
    return done.stdout.strip(), done.stderr


THREADS = ("import os\n{first}\nimport fedpareto, torch\ntorch.set_num_threads(2)\nfrom fedpareto.threads import training_threads\n"
           "print(os.environ.get('OMP_WAIT_POLICY'), training_threads(), training_threads())")


def test_importing_fedpareto_tells_waiting_threads_to_sleep():
    out, err = said(THREADS.format(first=""))
    assert out == "PASSIVE 2 2"
    assert err == ""


def test_where_torch_came_first_training_takes_one_thread_and_says_why_once():
    out, err = said(THREADS.format(first="import torch"))
    assert out == "None 1 1"
    assert err.count("training uses one thread: torch was imported before fedpareto") == 1


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_what_the_user_says_about_waiting_is_left_alone(name):
    out, err = said(THREADS.format(first="import torch"), **{name: "0" if name == "GOMP_SPINCOUNT" else "ACTIVE"})
    assert out.endswith("2 2")
    assert err == ""


def test_one_thread_is_one_thread_and_then_as_before():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with one_thread():
        assert torch.get_num_threads() == 1
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="x"), one_thread():
        raise ValueError("x")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
