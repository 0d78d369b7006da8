"""Files, flags, headers, and what is kept on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from abele.codelet.cpp import load_codelets, unit
from abele.llvm import cache
from codelet.cpp.conftest import run, zeros

SOURCE = """
#include <poplar/Vertex.hpp>
#include "amount.hpp"
class Add : public poplar::Vertex {
public:
  poplar::InOut<poplar::Vector<int>> x;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      x[i] += AMOUNT;
    return true;
  }
};
"""


def added(path: Path, *args: str, **options: object) -> int:
    return int(run(load_codelets(path, *args, **options)["Add"], x=zeros(1, "i4"))["x"][0])


def test_header_beside_the_file__is_found__and_a_change_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(SOURCE)
    (tmp_path / "amount.hpp").write_text("#define AMOUNT 5\n")
    assert added(tmp_path / "a.cpp") == 5
    (tmp_path / "amount.hpp").write_text("#define AMOUNT 6\n")
    assert added(tmp_path / "a.cpp") == 6


def test_header_elsewhere__is_found_by_include_or_flag(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(SOURCE)
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "amount.hpp").write_text("#define AMOUNT 7\n")
    assert added(tmp_path / "a.cpp", include=[tmp_path / "inc"]) == 7
    assert added(tmp_path / "a.cpp", f"-I{tmp_path / 'inc'} -O3 -target ipu1,ipu2") == 7


def test_definitions_in_flags__are_seen() -> None:
    source = SOURCE.replace('#include "amount.hpp"', "")
    definition = load_codelets(source, "-DAMOUNT=9")["Add"]
    assert run(definition, x=zeros(2, "i4"))["x"].tolist() == [9, 9]
    assert (definition.line, definition.language) == (4, "cpp")


def test_known_file__needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "a.cpp").write_text(SOURCE)
    (tmp_path / "amount.hpp").write_text("#define AMOUNT 3\n")
    first = load_codelets(tmp_path / "a.cpp")
    monkeypatch.setattr(unit, "compile_to_bitcode", lambda *_: pytest.fail("compiled again"))
    again = load_codelets(tmp_path / "a.cpp")
    assert [d.fields for d in again.values()] == [d.fields for d in first.values()]
    np.testing.assert_array_equal(run(again["Add"], x=zeros(3, "i4"))["x"], [3, 3, 3])


def test_size_t__as_size__where_unsigned_does_not_fit() -> None:
    source = """
    #include <poplar/Vertex.hpp>
    #include <algorithm>
    class Few : public poplar::Vertex {
    public:
      poplar::InOut<poplar::Vector<int>> x;
      bool compute() {
        const std::size_t most = 2;
        for (unsigned i = 0; i < std::min(x.size(), most); ++i)
          x[i] = 1;
        return true;
      }
    };
    """
    assert run(load_codelets(source)["Few"], x=zeros(4, "i4"))["x"].tolist() == [1, 1, 0, 0]


def test_file__with_a_byte_order_mark__loads(tmp_path: Path) -> None:
    text = "#include <poplar/Vertex.hpp>\r\nstruct V : poplar::Vertex {\r\n  bool compute() { return true; }\r\n};\r\n"
    (tmp_path / "marked.cpp").write_text("\ufeff" + text, encoding="utf-8", newline="")
    assert list(load_codelets(tmp_path / "marked.cpp")) == list(load_codelets("\ufeff" + text)) == ["V"]
