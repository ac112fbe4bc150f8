"""A site goes by its own configuration: the app comes from whoever runs the server."""

from __future__ import annotations

import pytest
from replayed import World, study_of

from fedpareto.deploy import deployment
from fedpareto.deploy.drawn_up import draw_up
from fedpareto.deploy.export import APP, write_app
from fedpareto.deploy.party import client_of
from fedpareto.errors import DeploymentError


def test_a_site_takes_part_in_what_it_agreed_to_alone(tmp_path):
    world = World(study_of(tmp_path), tmp_path, replay=False)
    config = {"client": 2, "folder": str(tmp_path / "state"), "deployment": world.agreed.hash, "key": "~/sums.key"}
    client = client_of(config, tmp_path, lambda: world.site(2))
    assert (client.number, client.agreed, client.folder) == (2, world.agreed, tmp_path / "state")
    assert client.key.is_absolute()
    assert client_of({**config, "key": None}, tmp_path, lambda: world.site(2)).key is None


def test_an_app_that_was_changed_is_refused_before_its_code_is_run(tmp_path):
    """The server changes a setting and makes all hashes in the app anew; the site's own configuration has the old one."""
    (tmp_path / "nets.py").write_text("raise SystemExit('code of the server was run')\n")
    world = World(study_of(tmp_path), tmp_path, replay=False)
    config = {"client": 0, "folder": str(tmp_path / "state"), "deployment": world.agreed.hash}
    path = tmp_path / deployment.FILE
    path.write_text(path.read_text().replace('"noise_multiplier": 0.5', '"noise_multiplier": 0.1'))
    assert deployment.read(tmp_path).hash != world.agreed.hash  # whole in itself
    with pytest.raises(DeploymentError, match=r"deployment.json: must be the deployment that this site agreed to, .*: the server runs another app"):
        client_of(config, tmp_path, lambda: world.site(0))
    path.unlink()
    with pytest.raises(DeploymentError, match="must be the deployment that this site agreed to"):
        client_of(config, tmp_path, lambda: world.site(0))


@pytest.mark.parametrize(("change", "message"), [
    ("client", "node-config: must name client, folder and deployment, found no client"),
    ("deployment", "found no deployment"),
    ({"client": 5}, "client: must be a number from 0 to 4, found 5"),
    ({"client": "0"}, "client: must be a number from 0 to 4, found '0'"),
    ({"client": True}, "client: must be a number from 0 to 4, found True"),
])
def test_a_node_that_is_told_too_little_is_refused_by_name(tmp_path, change, message):
    world = World(study_of(tmp_path), tmp_path, replay=False)
    config = {"client": 0, "folder": str(tmp_path), "deployment": world.agreed.hash}
    config = {k: v for k, v in config.items() if k != change} if isinstance(change, str) else {**config, **change}
    with pytest.raises(DeploymentError, match=message):
        client_of(config, tmp_path, lambda: world.site(0))


def test_the_readme_tells_each_site_what_it_agreed_to(tmp_path):
    agreed = draw_up(study_of(tmp_path), {})
    write_app(agreed, tmp_path, {}, tmp_path / "app")
    assert f'deployment="{agreed.hash}"' in (tmp_path / "app" / "README.md").read_text()
    assert deployment.read_agreed(tmp_path / "app" / APP, agreed.hash).hash == agreed.hash
