"""Refusals of ``abele run`` before it starts anything, and its words about launchers that start nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abele.cli import main
from abele.errors import MissingPackageError
from abele.launch import launcher

from .conftest import needs_mpiexec

Write = Callable[[str], Path]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A function that runs the command in this process; gives exit status and what it said."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["abele", "run", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ranks", "0"], "ranks = 0: must be at least 1"),
        (["--replicas", "0"], "replicas = 0: must be at least 1"),
        (["--ranks", "3", "--replicas", "4"], "4 replicas cannot be shared by 3 ranks"),
        (["--ranks", "3", "--replicas", "4"], "try      --replicas 6"),
        (["--num-instances", "2", "--num-replicas", "3"], "3 replicas cannot be shared by 2 ranks"),
        (["--timeout", "-1"], "timeout = -1: must be 0 or more seconds"),
        (["--timeout", "nan"], "timeout = nan: must be 0 or more seconds"),
        (["--hosts", "a", "--hostfile", "b"], "exclude each other"),
        (["--hostfile", "nowhere"], "there is no file nowhere"),
    ],
)
def test_run__option_out_of_range__is_named(refused: Any, program: Write, options: list[str], said: str) -> None:
    status, words = refused(*options, program("pass"))
    assert status == 2
    assert said in words


def test_run__program_that_is_not_there__is_told(refused: Any, tmp_path: Path) -> None:
    status, words = refused("--ranks", "2", tmp_path / "nowhere.py")
    assert (status, "there is no program" in words) == (2, True)


@pytest.mark.parametrize("content", [b"\x7fELF\0\0", b"this is no Python\n", b"\xff\xfe\x01"])
def test_run__program_that_is_no_python__is_told_before_anything_starts(
    refused: Any, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "data.py"
    path.write_bytes(content)
    status, words = refused("--ranks", "2", path)
    assert status == 2
    assert "is no Python program" in words


def test_run__within_another_job__is_refused(refused: Any, program: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    status, words = refused("--ranks", "2", program("pass"))
    assert status == 2
    assert "abele run was started as a rank of another job" in words


def test_mpiexec__nowhere__says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(MissingPackageError, match="there is no mpiexec") as error:
        launcher.find_mpiexec()
    assert "pip install 'abele[mpi]'" in str(error.value)
    monkeypatch.setenv(launcher.LAUNCHER_VARIABLE, "mine")
    with pytest.raises(MissingPackageError, match="there is no mine"):
        launcher.find_mpiexec()


@needs_mpiexec
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 7", "no rank was started: mpiexec ended with exit status 7"),
        ("echo no such host >&2; exit 255", "because  no such host"),
        ('shift; shift; exec "$@"', "each was told that it is one of 1 ranks"),
    ],
)
def test_mpiexec__that_starts_nothing__is_told_with_its_words(
    refused: Any, program: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    script_path = tmp_path / "mpiexec"
    script_path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    script_path.chmod(0o755)
    monkeypatch.setenv(launcher.LAUNCHER_VARIABLE, str(script_path))
    status, words = refused("--ranks", "2", program("pass"))
    assert status == 1
    assert "LaunchError" in words
    assert said in words
