"""What the engine says it would do, as a Plan.

Pulumi decides; this package only reads its decision.  There is one planner, so what the user approves and what
apply does cannot drift apart.  Pure: no engine, no provider, no clock.
"""

from monarch_infra.plan.compare import moved, uncovered
from monarch_infra.plan.read import read

__all__ = ["moved", "read", "uncovered"]
