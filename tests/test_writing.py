"""Places that cannot be written are told of by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.errors import FileFormatError
from abele.writing import writing, writing_whole


def test_writing__what_the_system_refuses__is_told_of_with_path_reason_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError) as caught, writing(tmp_path / "a"):
        (tmp_path / "a" / "b").write_text("")
    assert str(caught.value).startswith(f"{tmp_path / 'a'}: cannot be written: No such file or directory")
    assert "a folder that exists" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


def test_writing__other_errors__pass(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="digits"), writing(tmp_path):
        raise ValueError("digits")


def test_writing_whole__that_fails_inside__leaves_what_was_there_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    with writing_whole(path) as part:
        part.write_text("first", encoding="utf-8")
    with pytest.raises(ValueError, match="half way"), writing_whole(path) as part:  # noqa: PT012
        part.write_text("sec", encoding="utf-8")
        raise ValueError("half way")
    assert path.read_text(encoding="utf-8") == "first"
    assert [found.name for found in path.parent.iterdir()] == ["file"]


def test_writing_whole__where_a_file_is_a_folder__is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FileFormatError, match="cannot be written"), writing_whole(tmp_path / "file" / "below"):
        pass
