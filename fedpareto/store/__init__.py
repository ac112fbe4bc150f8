"""The store: one SQLite file per study, whose rows are the whole state of it."""

from fedpareto.store.audits import Audit, last_of
from fedpareto.store.identity import differences
from fedpareto.store.known import settled
from fedpareto.store.schema import APPLICATION, MIGRATIONS
from fedpareto.store.store import Store

__all__ = ["APPLICATION", "MIGRATIONS", "Audit", "Store", "differences", "last_of", "settled"]
