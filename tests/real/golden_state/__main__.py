"""Records the golden state anew."""

from real import golden_state

golden_state.record()
