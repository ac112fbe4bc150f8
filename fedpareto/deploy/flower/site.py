"""The records of this site: the one function to fill in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpareto.deploy.site import Site, site_of_file


def load_site(config: Mapping[str, Any]) -> Site:
    """Return this site's records; config is what the SuperNode was started with (--node-config).

    As it stands it reads the file that `data` names: an .npz file with x_train and y_train, or a
    .csv or .parquet table in which `label` names the column to predict. Records for testing,
    x_test and y_test, are optional. Load from anywhere else by returning
    Site(x_train, y_train, x_test, y_test) with your own arrays.
    """
    return site_of_file(str(config["data"]), str(config.get("label", "")))
