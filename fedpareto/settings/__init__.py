"""Settings: frozen dataclasses whose fields hold a number, or a range that is searched.

`declare` says what a field may hold, `check` refuses what it may not, `naming` says by which name a
point knows it, `own` finds what users name by a dotted path. How settings are read from a study
file is `fedpareto.study`.
"""

from fedpareto.settings.beside import folders, import_from, may_be_found
from fedpareto.settings.blame import blamed, placed
from fedpareto.settings.check import check_fields, checked
from fedpareto.settings.declare import WORDS, Real, Rule, Whole, kind_of, rule_of, setting
from fedpareto.settings.naming import (
    fixed,
    largest,
    least,
    link_names,
    named,
    numbered,
    searched,
)
from fedpareto.settings.own import (
    check_source,
    function_of,
    imported,
    is_own,
    own_hashes,
    own_loaded,
)

__all__ = [
    "WORDS",
    "Real",
    "Rule",
    "Whole",
    "blamed",
    "check_fields",
    "check_source",
    "checked",
    "fixed",
    "folders",
    "function_of",
    "import_from",
    "imported",
    "is_own",
    "kind_of",
    "largest",
    "least",
    "link_names",
    "may_be_found",
    "named",
    "numbered",
    "own_hashes",
    "own_loaded",
    "placed",
    "rule_of",
    "searched",
    "setting",
]
