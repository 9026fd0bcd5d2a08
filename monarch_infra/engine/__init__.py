"""Pulumi: find its command, keep its workspace, preview and update a stack, read its state.

The only package that uses Pulumi's automation side.  Importing it loads no Pulumi; its state can be read without.
"""

from monarch_infra.engine.state import State, members, read
from monarch_infra.engine.workspace import PICKLE, PROJECT, Workspace

__all__ = ["PICKLE", "PROJECT", "State", "Workspace", "members", "read"]
