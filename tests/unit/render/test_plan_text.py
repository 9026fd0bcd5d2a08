"""How a plan's lines are written, and that no plan is longer than a screen."""

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch_infra.model import Action, Change, Plan, Reason, Verdict
from monarch_infra.render import Style, change_line, plan_json, plan_text
from monarch_infra.render.plan import ROWS_MAX, rows

LINES_MAX = 40
BYTES_MAX = 4096


def plan(*changes: Change, **fields: Any) -> Plan:
    return Plan(job="llama", target="aws", provider="memory", spec_digest="4c1e2d9" * 9, changes=changes, **fields)


def change(action: Action = Action.CREATE, ranks: tuple[int, ...] = (0,), *reasons: Reason, mesh: str = "t") -> Change:
    return Change(mesh=mesh, action=action, ranks=ranks, reasons=reasons)


def setting(old: Any, new: Any, path: str = "env.A") -> str:
    return change_line(change(Action.UPDATE, (0,), Reason(path=path, old=old, new=new))).removeprefix("~ t[0] ")


# --- a line -----------------------------------------------------------------------------------------


def test_a_line_says_what_where_and_why() -> None:
    """The mark, the ranks as ranges, the reasons."""
    assert (
        change_line(change(Action.DELETE, (2, 3, 7), Reason(path="hosts", old=8, new=2))) == "- t[2-3,7] hosts 8 -> 2"
    )


def test_new_hosts_are_counted_where_the_job_file_is_the_reason() -> None:
    """One host, two hosts."""
    assert change_line(change(Action.CREATE, (0,))) == "+ t[0] 1 host"
    assert change_line(change(Action.CREATE, (0, 1))) == "+ t[0-1] 2 hosts"


def test_a_mesh_without_hosts_has_no_ranks() -> None:
    """It was refused, rolled back and then taken out of the file: nothing but its record goes."""
    assert change_line(change(Action.DELETE, (), Reason(text="destroyed"))) == "- t destroyed"


def test_ranks_here_and_there_are_cut_at_a_comma() -> None:
    """A list of a thousand would be the whole plan; no number is cut in two."""
    line = change_line(change(Action.CREATE, tuple(range(0, 2000, 2))))

    assert re.fullmatch(r"\+ t\[0(,\d+)+,…\] 1000 hosts", line)
    assert all(int(rank) % 2 == 0 for rank in re.findall(r"\d+", line.partition("]")[0]))
    assert len(line) < 80


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("a", "b", 'env.A "a" -> "b"'),
        (None, "b", 'env.A (none) -> "b"'),
        ("", None, 'env.A "" -> (none)'),
        (1, True, "env.A 1 -> true"),
        ("1", 1, 'env.A "1" -> 1'),
        ({"b": 1, "a": [2]}, {}, 'env.A {"a": [2], "b": 1} -> {}'),
        ("ä", "字", 'env.A "ä" -> "字"'),
        ("two\nlines", "a  b", 'env.A "two\\nlines" -> "a  b"'),
    ],
)
def test_a_value_is_written_so_that_its_kind_shows(old: Any, new: Any, text: str) -> None:
    """A text is told from a number, nothing from an empty text, and one space from two."""
    assert setting(old, new) == text


def test_a_long_value_is_cut() -> None:
    """Its beginning is enough where that differs."""
    assert setting("x" * 1000, "y") == f'env.A "{"x" * 38}… -> "y"'


def test_long_values_that_begin_alike_show_where_they_part() -> None:
    """Else a reader would approve a change of nothing into nothing."""
    old, new = (f"https://example.org/{'very/' * 20}{name}/end" for name in ("old", "new"))

    text = setting(old, new)

    assert "old" in text
    assert "new" in text
    assert len(text) < 100


@pytest.mark.parametrize("hidden", ["\x1b[2K", "\x9b2K", "\u202e", "\u2066", "\x7f", "\u200b"])
def test_nothing_in_a_plan_moves_the_cursor_or_turns_the_text(hidden: str) -> None:
    """A value, a reason or a verdict of somebody else's cannot make a line say something else than it does."""
    text = plan_text(
        plan(
            change(Action.UPDATE, (0,), Reason(path=f"env.{hidden}", old=hidden, new=f"{hidden}b")),
            change(Action.REPLACE, (0,), Reason(text=f"lost: {hidden}")),
            verdicts=(Verdict(text=hidden),),
            ignored=(hidden,),
        )
    )

    assert all(character.isprintable() or character == "\n" for character in text)


def test_a_reason_of_many_lines_is_one_line() -> None:
    """Hosts may end with a traceback."""
    assert change_line(change(Action.REPLACE, (0,), Reason(text="lost: it\n  broke\n"))) == "± t[0] lost: it broke"


def test_more_reasons_than_a_line_holds_are_counted() -> None:
    """Three are told; of more, two and the number of the rest."""
    reasons = [Reason(path=f"env.{letter}", old="1", new="2") for letter in "ABCDE"]

    assert change_line(change(Action.UPDATE, (0,), *reasons)).endswith('env.B "1" -> "2", and 3 more')
    assert change_line(change(Action.UPDATE, (0,), *reasons[:3])).endswith('env.C "1" -> "2"')


# --- the whole --------------------------------------------------------------------------------------


def test_lines_stand_in_columns() -> None:
    """The widest ranks set the width."""
    lines = rows(plan(change(Action.DELETE, (0, 1), Reason(text="a")), change(Action.CREATE, (0,))))

    assert lines == ["  -  t[0-1]  a", "  +  t[0]    1 host"]


def test_colour_changes_no_text() -> None:
    """Without its codes a coloured plan is the plain one."""
    made = plan(*(change(action, (0, 1), Reason(text="why")) for action in Action))

    assert re.sub(r"\x1b\[[\d;]*m", "", plan_text(made, Style(is_coloured=True))) == plan_text(made)


def test_hosts_are_totalled_by_kind() -> None:
    """The totals count all lines, also those that are not shown."""
    changes = [change(Action.CREATE, (0, 1), mesh=f"m{number}") for number in range(100)]

    text = plan_text(plan(change(Action.DELETE, (5,), Reason(text="destroyed")), *changes))

    assert "  + 200   ~ 0   ± 0   - 1 hosts\n" in text
    assert f"     and {101 - ROWS_MAX} more lines: --json has all\n" in text


def test_nothing_to_do_says_what_matches() -> None:
    """An empty plan gives its reason."""
    assert plan_text(plan(unchanged={"a": 1})).endswith("nothing to do: 1 mesh matches, 1 host\n")
    assert plan_text(plan(unchanged={"a": 1, "b": 4})).endswith("nothing to do: 2 meshes match, 5 hosts\n")
    assert plan_text(plan(destroys=True)).endswith("nothing to do: nothing stands\n")


def test_refusals_come_before_other_notes() -> None:
    """However much a provider has to say, that it refuses is not pushed away."""
    verdicts = [Verdict(text=f"note {number}") for number in range(20)]

    text = plan_text(plan(change(), verdicts=(*verdicts, Verdict(text="quota 0", is_refusal=True))))

    assert "  refused: quota 0\n  note 0\n" in text
    assert text.endswith("  and 17 more notes: --json has all\n")


def test_the_document_has_ranks_as_ranges_and_counts_hosts() -> None:
    """`--json` of 1,024 hosts is as short as that of four."""
    made = plan(change(Action.CREATE, tuple(range(1024))), deployment="d")

    document = plan_json(made)

    assert document["changes"][0]["ranks"] == "0-1023"
    assert document["changes"][0]["hosts"] == 1024
    assert (document["digest"], document["is_empty"]) == (made.digest, False)


@pytest.mark.parametrize("letter", ["x", "字", "𝄞", "e\u0301"])
def test_the_longest_plan_fits_a_screen(letter: str) -> None:
    """A thousand meshes of the longest names, with the longest paths, values, reasons and notes, in any script."""
    long = letter * 500
    reasons = [Reason(path=long, old=long, new=long + "new"), Reason(text=long), Reason(path=long, new={long: long})]
    changes = [change(Action.REPLACE, tuple(range(0, 4096, 2)), *reasons, mesh="m" * 63)] * 1000
    notes = [Verdict(text=long, is_refusal=True)] * 1000

    text = plan_text(plan(*changes, verdicts=tuple(notes), ignored=(long,) * 1000, state_digest="5" * 64))

    assert len(text.splitlines()) <= LINES_MAX
    assert len(text.encode()) <= BYTES_MAX
    assert "m" * 63 in text


FUZZ = settings(max_examples=40, deadline=None)  # a deadline would fail on a busy machine

TEXTS = st.text(max_size=300)
VALUES = st.none() | st.integers() | st.booleans() | TEXTS | st.dictionaries(TEXTS, TEXTS, max_size=3)
REASONS = st.builds(Reason, path=TEXTS, old=VALUES, new=VALUES, text=TEXTS)
CHANGES = st.builds(
    Change,
    mesh=st.from_regex(r"[a-z][a-z0-9]{0,62}", fullmatch=True),
    action=st.sampled_from(Action),
    ranks=st.integers(1, 9).map(lambda step: tuple(range(0, 1024, step))),
    reasons=st.lists(REASONS, max_size=5).map(tuple),
    effect=st.sampled_from(["", "new hosts, held before the old ones go", "1024 workers restart"]),
)


@FUZZ
@given(
    st.lists(CHANGES, max_size=5),
    st.integers(1, 300),
    st.lists(st.builds(Verdict, text=TEXTS, is_refusal=st.booleans()), max_size=9),
    st.lists(TEXTS, max_size=9),
)
def test_no_plan_is_longer_than_a_screen(
    changes: list[Change], times: int, verdicts: list[Verdict], ignored: list[str]
) -> None:
    """Whatever the names, values, reasons and verdicts are: at most 40 lines and 4 kB, and one line is shown."""
    made = plan(*(changes * times), verdicts=tuple(verdicts), ignored=tuple(ignored))

    text = plan_text(made)

    assert len(text.splitlines()) <= LINES_MAX
    assert len(text.encode()) <= BYTES_MAX
    assert all(unicodedata.category(character) != "Cc" or character == "\n" for character in text)
    assert not changes or change_line(changes[0]).split("]")[0][2:] in text
