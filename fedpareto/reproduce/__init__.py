"""Reproduce the papers: one name for every figure and table."""

from fedpareto.reproduce.names import EXPERIMENTS, NAMES, named
from fedpareto.reproduce.page import papers_page, results
from fedpareto.reproduce.run import committed, reproduce, study_of

__all__ = [
    "EXPERIMENTS",
    "NAMES",
    "committed",
    "named",
    "papers_page",
    "reproduce",
    "results",
    "study_of",
]
