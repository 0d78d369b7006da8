"""Global names that our headers declare: none that Poplar's do not have, so that programs may have their own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.toolchain import FLAGS, HEADERS, find_compiler
from codelet.cpp.conftest import f32, run

VECTORS = r"(?:half|float|s?char|u?char|u?short|u?int|longlong)[248]"
ALLOWED = {
    "poplar/Vertex.hpp": "",
    "ipudef.h": VECTORS,
    "ipu_builtins.h": rf"{VECTORS}|__builtin_ipu_\w+|(?:CTXT|TMEM|CSR)_\w+|ipu",
    "ipu_vector_math": rf"{VECTORS}|ipu",
    "poplar/Loops.hpp": "",
    "poplar/AvailableVTypes.h": r"(?:POPLAR_ENABLE|VECTOR_AVAIL|VECTORLIST_AVAIL)_\w+",
    "poplar/StackSizeDefs.hpp": r"DEF_\w+|RECURSIVE_\w+",
    "poplibs_support/ExternalCodelet.hpp": r"\w*EXTERNAL_CODELET|ASM_CODELETS_ENABLED|SupervisorVertexIf",
}
"""Names that each header has beside those of all: the element types, namespaces, and ours, which begin with abele."""
OF_ALL = r"half|quarter|poplar|std|u?int64_t|abele\w*|ABELE_\w+"
_NAMES = (
    r"\btypedef\b.*?(\w+)(?: __attribute__.*)?$",
    r"\busing (\w+) =",
    r"\busing (?:\w+::)*(\w+)$",
    r"\b(?:struct|class|enum|union|namespace) (\w+)",
    r"(\w+) ?\(",
)


def own_lines(header: str) -> str:
    """Lines of our headers when one is included, with the preprocessor's macro definitions."""
    flags = [f for f in FLAGS if f.startswith(("-std", "-D"))]
    command = [*find_compiler().command, "-x", "c++", "-E", "-dD", *flags, f"-I{HEADERS}", "-include", header, "-"]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    ours, lines = False, []
    for line in done.stdout.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = marker[1].startswith(str(HEADERS))
        elif ours:
            lines.append(line)
    return "\n".join(lines)


def global_names(text: str) -> set[str]:
    macros = set(re.findall(r"^#define (\w+)", text, re.M)) - set(re.findall(r"^#undef (\w+)", text, re.M))
    code = re.sub(r'^#.*$|"[^"]*"', "", text, flags=re.M)
    code = re.sub(r"template\s*<[^<>]*>|__attribute__\(\(\w+\)\)|__asm__\([^)]*\)", "", code)
    statements, depth, current = [], 0, ""
    for character in code:
        if character == "{" and not re.fullmatch(r"\s*extern\s*", current):
            statements += [current] if depth == 0 else []
            depth, current = depth + 1, ""
        elif character == "}":
            depth, current = max(0, depth - 1), ""
        elif character in ";{":
            statements += [current] if depth == 0 else []
            current = ""
        else:
            current += character
    flat = [" ".join(s.split()) for s in statements]
    found = {next((m[1] for p in _NAMES if (m := re.search(p, s))), s) for s in flat if s and s != "extern"}
    return macros | found


@pytest.mark.parametrize("header", ALLOWED)
def test_header__declares_globally__what_poplars_has_alone(header: str) -> None:
    allowed = re.compile("|".join(filter(None, [OF_ALL, ALLOWED[header]])))
    found = global_names(own_lines(header))
    assert {n for n in found if not allowed.fullmatch(n)} == set()


def test_names_of_the_tiles_headers__are_the_programs_own__where_it_has_them() -> None:
    source = """
    #include <poplar/Vertex.hpp>
    using namespace poplar;
    using rptsize_t = unsigned short;
    constexpr unsigned CTXT_WORKERS = 3;
    enum { TMEM_ELEMSIZE = 4, NUM_WORKERS = 6 };
    struct float2 { float x, y; };
    typedef long long int64_t;
    static inline float ipu(float x) { return x; }
    struct Own : public Vertex { InOut<Vector<float>> x; bool compute() {
      float2 a{1, 2};
      for (rptsize_t i = 0; i < CTXT_WORKERS; ++i) x[i] += a.y + TMEM_ELEMSIZE + ipu(__builtin_ipu_max(x[i], 2.0f));
      return true; } };
    """
    np.testing.assert_array_equal(run(load_codelets(source)["Own"], x=f32(1, 3, 5, 7))["x"], [9, 12, 16, 7])


def test_names_of_the_tiles_headers__come__where_a_program_uses_them_without_their_header() -> None:
    source = """
    #include <poplar/Vertex.hpp>
    using namespace poplar;
    WORKER_ALIGN static const unsigned table[2] = {1, 2};
    static ALWAYS_INLINE float twice(float x) { return x * table[1]; }
    struct Lent : public Vertex { InOut<Vector<float>> x; bool compute() {
      float2 pair = {1, 2};
      assert(x[0] > 0);
      for (rptsize_t i = 0; i < CTXT_WORKERS; ++i) x[i] = twice(__builtin_ipu_max(x[i], 2.0f)) + ipu::exp(pair)[0] * 0;
      memset(&x[6], 0, sizeof(float));
      x[7] = std::min(fabsf(x[7]), 1.0f);
      return true; } };
    """
    done = run(load_codelets(source)["Lent"], x=f32(1, 2, 3, 4, 5, 6, 7, -8))["x"]
    np.testing.assert_array_equal(done, [4, 4, 6, 8, 10, 12, 0, 1])


def test_headers__that_include_each_other_by_paths_with_dots__are_found_once(tmp_path: Path) -> None:
    for folder, other in (("a", "b"), ("b", "a")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.hpp").write_text(f'#pragma once\n#include "../{other}/x.hpp"\nstruct In{folder};\n')
    (tmp_path / "a" / "main.cpp").write_text(
        '#include <poplar/Vertex.hpp>\n#include "../a/../b/x.hpp"\n'
        "struct V : poplar::Vertex { poplar::Output<int> x; bool compute() { *x = 1; return true; } };\n"
    )
    found = load_codelets(tmp_path / "a" / "main.cpp")
    assert set(found) == {"V"}
    assert len(found.unit.texts()) == 3
