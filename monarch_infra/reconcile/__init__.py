"""One reconciliation for all providers: look, make what is missing, wait a moment, remove what is over.

It carries out what the engine decided with `group.decide` and decides nothing else; it knows neither the engine
nor its protocol.
"""

from monarch_infra.reconcile.group import Decision, decide, encode, parse, unwanted
from monarch_infra.reconcile.reconciler import SETTLE_S, Failure, GroupFailedError, Progress, Reconciler

__all__ = [
    "SETTLE_S",
    "Decision",
    "Failure",
    "GroupFailedError",
    "Progress",
    "Reconciler",
    "decide",
    "encode",
    "parse",
    "unwanted",
]
