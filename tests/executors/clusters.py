"""A Ray cluster of a few nodes on this machine, which no other machine can reach."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

# Ray reads these when it is imported
ON_LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
               "RAY_raylet_start_wait_time_s": "120"}
os.environ |= ON_LOOPBACK


@contextlib.contextmanager
def cluster_of(nodes: int) -> Iterator[Any]:
    """Begin a cluster with one processor a node, and end it whatever happens."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            made.add_node(num_cpus=1)
        yield made
    finally:
        made.shutdown()
