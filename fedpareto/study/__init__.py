"""A study: one question, as a TOML file or as objects.

`read` makes a Study of a file, `write` a file of a Study, `planned` a file of a plan. All know one
table by `table`, what the tables are by `sections`, and where a key stands by `lines`. Points know
settings by the names that `fedpareto.settings.naming` gives them.
"""

from fedpareto.study.read import load_study, load_to_look
from fedpareto.study.study import Study, encrypted

__all__ = ["Study", "encrypted", "load_study", "load_to_look"]
