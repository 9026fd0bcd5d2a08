"""Plans, problems and states as text and JSON.

Pure: it takes records and returns text; who prints it and where is the command's business.  What renders plans is
loaded when it is first used, so that a command that only fails or helps loads no pydantic.
"""

from typing import TYPE_CHECKING, Any

from monarch_infra.render.problem import FORMAT_VERSION, error_json, error_text, problem_text
from monarch_infra.render.style import PLAIN, Style

if TYPE_CHECKING:
    from monarch_infra.render.look import (
        applied_json,
        applied_text,
        ping_json,
        ping_text,
        status_json,
        status_text,
    )
    from monarch_infra.render.plan import change_line, plan_json, plan_text, setting_line

__all__ = [
    "FORMAT_VERSION",
    "PLAIN",
    "Style",
    "applied_json",
    "applied_text",
    "change_line",
    "error_json",
    "error_text",
    "ping_json",
    "ping_text",
    "plan_json",
    "plan_text",
    "problem_text",
    "setting_line",
    "status_json",
    "status_text",
]

_OF_PLANS = frozenset({"change_line", "plan_json", "plan_text", "setting_line"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    # Not `from monarch_infra.render import plan`: that asks this very function for `plan`.
    module = importlib.import_module(f"monarch_infra.render.{'plan' if name in _OF_PLANS else 'look'}")
    return getattr(module, name)
