"""Reproduce the papers: one name for every figure and table."""

from fedpareto.reproduce.names import EXPERIMENTS, NAMES, named
from fedpareto.reproduce.page import papers_page, results
from fedpareto.reproduce.run import (
    committed,
    redraw,
    report,
    reproduce,
    study_of,
    work_of,
    write_data,
)
from fedpareto.reproduce.workers import speed_up, train

__all__ = [
    "EXPERIMENTS",
    "NAMES",
    "committed",
    "named",
    "papers_page",
    "redraw",
    "report",
    "reproduce",
    "results",
    "speed_up",
    "study_of",
    "train",
    "work_of",
    "write_data",
]
