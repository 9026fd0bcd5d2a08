"""The pages of the house are true: their links lead somewhere, their code runs, their tree is the tree."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from monarch_infra.provider import Provider

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").rglob("*.md"))]


def text(page: str) -> str:
    return (TOP / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_target_of_make_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", text("README.md"))) <= targets


def test_the_smallest_provider_has_every_member_of_the_seam() -> None:
    block = re.search(r"^```python\n(.*?)^```$", text("docs/adding-a-provider.md"), flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block[1], names)
    smallest = names["PROVIDER"]
    for member, promised in vars(Provider).items():
        if member.startswith("_"):
            continue
        own = inspect.signature(getattr(smallest, member))
        wanted = list(inspect.signature(promised).parameters)[1:]
        assert list(own.parameters) == wanted, member
    assert set(Provider.__annotations__) <= set(dir(smallest))


def test_the_seams_table_names_every_member() -> None:
    page = text("docs/adding-a-provider.md")
    members = [name for name in vars(Provider) if not name.startswith("_")] + list(Provider.__annotations__)
    assert [name for name in members if not re.search(rf"^\| `{name}[(`]", page, flags=re.MULTILINE)] == []


def test_the_tree_is_the_tree() -> None:
    paths = re.findall(
        r"^\| `((?:monarch_infra|stacks|providers)/[\w./]*)` \|", text("docs/architecture.md"), re.MULTILINE
    )
    assert [path for path in paths if not (TOP / path).exists()] == []


def test_the_layers_are_those_that_are_checked() -> None:
    block = re.search(r"^```\n(cli \|.*?)^```$", text("docs/architecture.md"), flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = [re.sub(r"[()]", "", layer) for layer in contracts[0]["layers"]]
    assert block[1].splitlines() == layers
