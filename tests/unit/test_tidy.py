"""The rules of the tree that no other tool holds; they read files as text and import nothing of ours."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = Path(__file__).parents[2]
CODE = ("monarch_infra", "providers", "stacks")
NOT_OURS = {".git", ".venv", "build", "__pycache__", ".monarch-infra", "node_modules"}

NAMES_A_PROVIDER = {
    # The target that always exists, and the providers that the job file knows before they are built.
    "monarch_infra/spec/known.py": {"local", "aws", "gcp", "kubernetes", "slurm"},
    # Go's own word for the toolchain at hand.
    "monarch_infra/engine/build.py": {"local"},
    # The default target, not its provider; these may not import `spec` for a word, `--help` would load YAML.
    "monarch_infra/job.py": {"local"},
    "monarch_infra/cli/job.py": {"local"},
    "monarch_infra/cli/options.py": {"local"},
}
"""Where a string that is also a provider's name may stand outside the provider's own folder, and why."""

SHADOWS_ALLOWED = {"site"}
"""Every provider's folder has a `site.py`; it is always imported through its package."""

ADDRESSES_ALLOWED = {"get.pulumi.com"}
"""Where the official release of the engine lies: the only address that getting and building ever names."""


def files() -> Iterator[Path]:
    """Give every file of the checkout that is ours to write."""
    folders = [TOP]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            hidden = path.name.startswith(".") and path.name not in {".ci", ".gitignore"}
            if path.name in NOT_OURS or path.name.endswith(".egg-info") or hidden or path.is_symlink():
                continue
            if path.is_dir():
                folders.append(path)
            else:
                yield path


def modules(*folders: str) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.relative_to(TOP).parts[0] in folders]


def label(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=label(path))


def shipped_providers() -> set[str]:
    return {path.name for path in (TOP / "providers").iterdir() if (path / "__init__.py").is_file()}


def docstrings(module: ast.Module) -> set[int]:
    """Return the ids of the nodes that are text about the code, not part of it."""
    return {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_every_module_says_what_it_is() -> None:
    silent = [label(path) for path in modules(*CODE, "tests", "bench", "examples") if not ast.get_docstring(tree(path))]
    assert silent == []


def test_no_module_is_named_after_one_of_pythons_own() -> None:
    shadows = [
        label(path)
        for path in modules(*CODE)
        if path.stem in sys.stdlib_module_names and not (path.stem in SHADOWS_ALLOWED and path.parts[-3] == "providers")
    ]
    assert shadows == []


def test_only_its_own_folder_names_a_provider() -> None:
    named = []
    for path in modules(*CODE):
        name = label(path)
        for node in ast.walk(module := tree(path)):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            word = node.value
            if word not in shipped_providers() or id(node) in docstrings(module):
                continue
            own = name.startswith(f"providers/{word}/") or name == f"stacks/{word}.py"
            if not own and word not in NAMES_A_PROVIDER.get(name, ()):
                named.append(f"{name}:{node.lineno}: {word}")
    assert named == []


def test_every_provider_has_its_module_in_stacks() -> None:
    assert {path.stem for path in (TOP / "stacks").glob("[!_]*.py")} >= shipped_providers()


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    path_of_a_machine = re.compile(r"(?<![\w.~$}/-])/(?:work|root)/")
    knowing = []
    for path in files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        knowing += [f"{label(path)}:{number}" for number, line in enumerate(lines, 1) if path_of_a_machine.search(line)]
    assert knowing == []


@pytest.mark.parametrize(
    "name",
    [
        "requirements.lock",
        "pyproject.toml",
        "Makefile",
        ".ci/run",
        ".ci/test",
        ".ci/demo",
        "monarch_infra/engine/install.py",
        "monarch_infra/engine/build.py",
        "monarch_infra/engine/pulumi/go-toolchain.txt",
    ],
)
def test_packages_come_from_where_the_user_has_them_come_from(name: str) -> None:
    """An index, a mirror or a proxy is the machine's setting; a file of ours that names one overrides it."""
    text = (TOP / name).read_text(encoding="utf-8")
    assert set(re.findall(r"https?://([\w.-]+)", text)) <= ADDRESSES_ALLOWED
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|GOPROXY|GOSUMDB", text)


def test_everything_asked_for_is_locked_with_a_hash() -> None:
    lock = (TOP / "requirements.lock").read_text(encoding="utf-8")
    entries = re.findall(r"^([\w.-]+)==\S+((?:.*\n(?: .*\n)*))", lock, flags=re.MULTILINE)
    assert [name for name, rest in entries if "--hash=sha256:" not in rest] == []
    asked = [*project()["dependencies"], *project()["optional-dependencies"]["dev"]]  # type: ignore[index, misc]
    names = {re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in asked}
    assert names - {name.lower().replace("_", "-") for name, _ in entries} == set()


def test_the_engine_and_its_package_are_of_one_version() -> None:
    """Events, protocol and state are one program in two halves."""
    install = (TOP / "monarch_infra/engine/install.py").read_text(encoding="utf-8")
    version = re.search(r'^PULUMI_VERSION = "(.+)"$', install, flags=re.MULTILINE)
    assert version is not None
    assert f"pulumi=={version[1]}" in project()["dependencies"]  # type: ignore[operator]
    modules_wanted = (TOP / "monarch_infra/engine/pulumi/go.mod").read_text(encoding="utf-8")
    for half in ("pkg", "sdk"):
        assert f"github.com/pulumi/pulumi/{half}/v3 v{version[1]}" in modules_wanted


def test_unit_tests_use_records_and_pure_functions_only() -> None:
    banned = {"subprocess", "socket", "http", "requests", "mock", "unittest", "asyncio", "multiprocessing"}
    using = []
    for path in (TOP / "tests" / "unit").rglob("*.py"):
        for node in ast.walk(tree(path)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [f"{node.value.id}.{node.attr}"]
            wrong = {name for name in names if name.split(".")[0] in banned or name in {"time.sleep", "urllib.request"}}
            using += [f"{label(path)}:{node.lineno}: {name}" for name in sorted(wrong)]
    assert using == []
