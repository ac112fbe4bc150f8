"""Executors: what trains the trials of a study. One file each; only `ray.py` imports ray."""

from fedpareto.executors.base import Executor, More
from fedpareto.executors.here import here
from fedpareto.executors.ray import OnRay, on_ray

EXECUTORS = {"here": here, "ray": on_ray}  # by the words of `fedpareto run --on`

__all__ = ["EXECUTORS", "Executor", "More", "OnRay", "here", "on_ray"]
