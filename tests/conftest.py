"""What all folders of tests share: files that a person has accepted, and the option that accepts them anew."""

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="Write accepted files anew instead of comparing; read their diff after."
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return a function that holds text to a file which a person has accepted."""
    accepts = request.config.getoption("--accept")

    def held(file: Path, text: str) -> None:
        if accepts:
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8")

    return held
