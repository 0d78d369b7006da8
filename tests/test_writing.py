"""Places that cannot be written are told of by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.errors import FileFormatError
from abele.writing import writing


def test_writing__what_the_system_refuses__is_told_of_with_path_reason_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError) as caught, writing(tmp_path / "a"):
        (tmp_path / "a" / "b").write_text("")
    assert str(caught.value).startswith(f"{tmp_path / 'a'}: cannot be written: No such file or directory")
    assert "a folder that exists" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


def test_writing__other_errors__pass(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="digits"), writing(tmp_path):
        raise ValueError("digits")
