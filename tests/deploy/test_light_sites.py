"""A message to a site starts a process: what that imports costs time in every round."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from replayed import World, study_of

from fedpareto.deploy.messages import packed, request

HEAVY = ("scipy.stats", "scipy.special", "scipy.linalg", "scipy.spatial", "scipy.optimize", "botorch", "gpytorch", "dp_accounting",
         "tenseal", "matplotlib", "torch._dynamo")
SITE = """
import pickle, sys
from pathlib import Path
from fedpareto.deploy.client import answer
from fedpareto.deploy.party import client_of
from fedpareto.deploy.site import site_of_file
message, config, app, heavy = pickle.load(sys.stdin.buffer)
said = answer(client_of(config, app, lambda: site_of_file(config["data"])), message)
assert "refused" not in said, said
print(*[name for name in heavy if name in sys.modules])
"""
RECORDS = {"mechanism": {"name": "none"}, "local": {"name": "dp_sgd", "record_noise_multiplier": 0.8}, "privacy": {"unit": "record"}}


@pytest.mark.parametrize("changed", [{}, RECORDS], ids=["clients", "records"])
def test_a_site_that_trains_imports_nothing_that_it_does_not_need(changed, tmp_path):
    world = World(study_of(tmp_path, training={"sample_ratio": 1.0}, **changed), tmp_path, replay=False)
    site = world.site(0)
    np.savez(tmp_path / "site.npz", x_train=site.x_train, y_train=site.y_train)
    model = packed(torch.zeros(world.client(0).block.stack.size))
    message = request(world.agreed, "train", round=0, came=5, model=model)
    folder, data = str(tmp_path / "state"), str(tmp_path / "site.npz")
    config = {"client": 0, "deployment": world.agreed.hash, "folder": folder, "data": data}
    told = pickle.dumps((message, config, world.study.path.parent, HEAVY))
    done = subprocess.run([sys.executable, "-c", SITE], input=told, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert done.stdout.decode().split() == []
