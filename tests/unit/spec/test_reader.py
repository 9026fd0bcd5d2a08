"""YAML as a tree with places."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from monarch_infra.problem import SpecError, UsageError
from monarch_infra.spec import reader
from monarch_infra.spec.node import Scalar, merge, plain

Write = Callable[..., Path]
PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


def tree(write: Write, text: str | bytes, parser: Any = None) -> Any:
    source, root = reader.read(write(text), parser=parser)
    assert source.problems == []
    return plain(root)


def refusal(write: Write, text: str | bytes, parser: Any = None) -> tuple[int, int, str]:
    try:
        source, _ = reader.read(write(text), parser=parser)
        problems = list(source.problems)
    except SpecError as error:
        problems = list(error.problems)
    assert len(problems) == 1, problems
    problem = problems[0]
    assert problem.where is not None
    assert problem.detail
    return problem.where.line, problem.where.column, problem.summary


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("null", None),
        ("", None),
        ("~", "~"),
        ("Null", "Null"),
        ("0", 0),
        ("-7", -7),
        ("4096", 4096),
        ("017", "017"),
        ("0x1f", "0x1f"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("+5", "+5"),
        ("22:22", "22:22"),
        ("8:8", "8:8"),
        ("3.10", 3.1),
        ("-0.5", -0.5),
        ("1.", "1."),
        (".5", ".5"),
        (".inf", ".inf"),
        ("1e3", "1e3"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        ('"4"', "4"),
        ("'true'", "true"),
        ("9" * 19, "9" * 19),
        ("1" * 400 + ".0", "1" * 400 + ".0"),
    ],
)
def test_scalars_are_our_own(write: Write, written: str, meant: object) -> None:
    """Only true, false, null, decimal integers and floats with a dot are more than text."""
    value = tree(write, f"a: {written}\n")["a"]

    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\n\tb: 2\n", (2, 1, "not readable as YAML")),
        ("a:\n  b: 1\n \tc: 2\n", (3, 2, "not readable as YAML")),
        ("a: b: c\n", (1, 5, "not readable as YAML")),
        ("a: 1\nb: [1, 2\n", (2, 4, "not readable as YAML")),
        ("a: 1\nb: {c: 2\n", (2, 4, "not readable as YAML")),
        ('a: 1\nb: "open\nc: 2\n', (2, 4, "not readable as YAML")),
        ("a: @x\n", (1, 4, "not readable as YAML")),
        ("a: 1\nthis is not a setting\n", (3, 1, "not readable as YAML")),
        ("a: 1\n  b: 2\n", (2, 4, "not readable as YAML")),
        ("- a\nb: 1\n", (2, 1, "not readable as YAML")),
        ("é: 😀\nb: *x\n", (2, 4, "alias not known")),
        ("a: &a [*a]\n", (1, 8, "alias not known")),
        ("a: !!int 1\n", (1, 4, "tag not allowed")),
        ("a: !!python/object:os.system x\n", (1, 4, "tag not allowed")),
        ("a: 1\nb: 2\na: 3\n", (3, 1, "key given twice")),
        ("a: 1\n? [b, c]\n: 2\n", (2, 3, "key not allowed")),
        ("a: 1\n---\nb: 2\n", (2, 1, "several documents")),
        ("- a\n- b\n", (1, 1, "not a map")),
        ("text\n", (1, 1, "not a map")),
        ("", (1, 1, "empty job file")),
        ("# nothing\n", (1, 1, "empty job file")),
        ("a: 1\nb: \x01\n", (2, 4, "control character")),
        (b"a: 1\nb: \xff\n", (2, 4, "not UTF-8")),
        ("a: 1\n".encode("utf-16"), (1, 1, "not UTF-8")),
        ("\ufeffa: 1\n", (1, 1, "byte order mark")),
        ("a: " + "[" * 40 + "]" * 40, (1, 35, "nested too deep")),
        ("a: " + "[" * 200_000, (1, 35, "nested too deep")),
        ("a: x\n" * 250_000, (1, 1, "job file too large")),
    ],
    ids=lambda value: value[2] if isinstance(value, tuple) else "",
)
def test_what_is_no_job_file_is_one_problem_at_its_place(
    write: Write, text: str | bytes, place: tuple[int, int, str], parser: object
) -> None:
    """Whatever cannot be read says once what is wrong, and where; both parsers of PyYAML alike."""
    assert refusal(write, text, parser) == place


def test_a_key_given_twice_names_both_places(write: Write) -> None:
    """The second is pointed at, the first is named."""
    source, _ = reader.read(write("a:\n  hosts: 1\n  b: 2\n  hosts: 3\n"))

    assert "on line 2 and on line 4" in source.problems[0].detail


def test_aliases_cannot_grow_without_limit(write: Write) -> None:
    """A few lines that stand for billions of values are refused before they are written out."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]

    assert refusal(write, "\n".join(lines))[2] == "job file too large"


def test_aliases_cannot_nest_deeper_than_what_is_written(write: Write) -> None:
    """An alias counts with the depth of what it names."""
    deep = "[" * 20 + "]" * 20

    assert refusal(write, f"a: &a {deep}\nb: {'[' * 15}*a{']' * 15}\n")[2] == "nested too deep"


def test_aliases_and_merge_keys_say_a_thing_once(write: Write) -> None:
    """`<<` lays a map under another; what stands in the map itself wins, and of several the first."""
    text = "x-a: &a {b: 1, c: 2}\nx-d: &d {c: 3, e: 4}\nf: *a\ng: {<<: *a, b: 5}\nh: {<<: [*a, *d], e: 6}\n"

    values = tree(write, text)

    assert values["f"] == {"b": 1, "c": 2}
    assert values["g"] == {"b": 5, "c": 2}
    assert values["h"] == {"b": 1, "c": 2, "e": 6}


def test_an_alias_stands_where_it_is_used(write: Write) -> None:
    """A value that an alias brings is reported at the alias, where it does not fit."""
    _, root = reader.read(write("x-a: &a many\nhosts: *a\n"))

    node = root.entries["hosts"].node
    assert isinstance(node, Scalar)
    assert node.place == (2, 8)


def test_names_of_settings_are_text(write: Write) -> None:
    """A key is what is written, whatever it would be as a value."""
    assert tree(write, "1: a\ntrue: b\nnull: c\n") == {"1": "a", "true": "b", "null": "c"}


def test_a_file_that_is_not_there_says_how_to_begin(tmp_path: Path) -> None:
    """The commonest first mistake names the command that helps."""
    with pytest.raises(UsageError) as caught:
        reader.read(tmp_path / "job.yaml")

    assert caught.value.problems[0].hint == "monarch-infra init"


def test_a_directory_is_no_job_file(tmp_path: Path) -> None:
    """A directory is told from a file that is missing."""
    with pytest.raises(UsageError) as caught:
        reader.read(tmp_path)

    assert caught.value.problems[0].summary == "not a job file"


RFC_7396 = [
    ("{a: b}", "{a: c}", {"a": "c"}),
    ("{a: b}", "{b: c}", {"a": "b", "b": "c"}),
    ("{a: b}", "{a: null}", {}),
    ("{a: b, b: c}", "{a: null}", {"b": "c"}),
    ("{a: [b]}", "{a: c}", {"a": "c"}),
    ("{a: c}", "{a: [b]}", {"a": ["b"]}),
    ("{a: {b: c}}", "{a: {b: d, c: null}}", {"a": {"b": "d"}}),
    ("{a: [{b: c}]}", "{a: [1]}", {"a": [1]}),
    ("[a, b]", "[c, d]", ["c", "d"]),
    ("{a: b}", "[c]", ["c"]),
    ("{a: foo}", "null", None),
    ("{a: foo}", "bar", "bar"),
    ("{e: null}", "{a: 1}", {"e": None, "a": 1}),
    ("[1, 2]", "{a: b, c: null}", {"a": "b"}),
    ("{}", "{a: {bb: {ccc: null}}}", {"a": {"bb": {}}}),
]
"""Appendix A of the RFC."""


@pytest.mark.parametrize(("base", "patch", "meant"), RFC_7396)
def test_merging_is_a_json_merge_patch(write: Write, base: str, patch: str, meant: Mapping[str, object]) -> None:
    """Every example of RFC 7396 gives what the RFC says."""
    _, root = reader.read(write(f"base: {base}\npatch: {patch}\n"))

    assert plain(merge(root.entries["base"].node, root.entries["patch"].node)) == meant
