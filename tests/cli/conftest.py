"""Running the ``abele`` command inside the test process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from abele.cli import main


@dataclass(frozen=True)
class Finished:
    """Result of a command: exit status and both outputs."""

    status: int
    out: str
    err: str


@pytest.fixture
def abele(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """A function that runs the command with the given arguments."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> Finished:
        monkeypatch.setattr("sys.argv", ["abele", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return Finished(int(left.value.code or 0), captured.out, captured.err)

    return run
