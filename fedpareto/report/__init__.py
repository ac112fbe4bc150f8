"""What a study shows: as data, text, figures and one html page."""

from fedpareto.report.choose import Point, pick
from fedpareto.report.page import write_page
from fedpareto.report.points import View, view

__all__ = ["Point", "View", "pick", "view", "write_page"]
