"""Plans, problems and states as text and JSON.

Pure: it takes records and returns text; who prints it and where is the command's business.
"""

from monarch_infra.render.look import applied_json, applied_text, ping_json, ping_text, status_json, status_text
from monarch_infra.render.plan import change_line, plan_json, plan_text
from monarch_infra.render.problem import FORMAT_VERSION, error_json, error_text, problem_text
from monarch_infra.render.style import PLAIN, Style

__all__ = [
    "FORMAT_VERSION",
    "PLAIN",
    "Style",
    "applied_json",
    "applied_text",
    "change_line",
    "error_json",
    "error_text",
    "plan_json",
    "ping_json",
    "ping_text",
    "plan_text",
    "problem_text",
    "status_json",
    "status_text",
]
