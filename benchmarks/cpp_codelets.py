"""Cost of loading large C++ codelet files, from an empty cache and from a warm one.

Three kinds of generated source: ``instances`` is a library file of hundreds of explicit instantiations, of which a
program uses a few; ``integral`` is a straight line of thousands of local floats, as generators of electron-repulsion
integrals write them by recurrences; ``roots`` is a ladder of branches with a long polynomial in each, as in codes that
find the roots of Rys polynomials. Each is measured in processes of its own: the first finds an empty cache directory,
the second what the first has left there. ``load`` is ``load_codelets``, ``use`` all native code of one vertex (run,
count and slots), ``compile`` a graph with one such vertex, ``all`` the code of every class (instances alone).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

OPERATIONS = {
    "ADD": "a + b",
    "SUBTRACT": "a - b",
    "MULTIPLY": "a * b",
    "MAXIMUM": "a < b ? b : a",
    "MINIMUM": "b < a ? b : a",
    "LESS_THAN": "T(a < b)",
    "EQUAL": "T(a == b)",
    "SQUARE_ADD": "a + b * b",
}
TYPES = ("float", "half", "int", "unsigned", "short", "unsigned short", "char", "unsigned char")
PREAMBLE = "#include <poplar/HalfFloat.hpp>\n#include <poplar/Vertex.hpp>\nusing namespace poplar;\n"


def instances(number: int) -> str:
    """A file with ``number`` explicit instantiations of a template over operations, types and widths."""
    names = ", ".join(OPERATIONS)
    functions = "\n".join(
        f"template <class T> struct Function<Op::{name}, T> {{ static T apply(T a, T b) {{ return {body}; }} }};"
        for name, body in OPERATIONS.items()
    )
    choices = [(o, t, w) for w in range(1, 64) for o in OPERATIONS for t in TYPES][:number]
    explicit = "\n".join(f"template class BinaryRows<Op::{o}, {t}, {w}>;" for o, t, w in choices)
    return f"""{PREAMBLE}
namespace popops {{
enum class Op {{ {names} }};
template <Op op, class T> struct Function;
{functions}
template <Op op, class T, unsigned Width> class BinaryRows : public MultiVertex {{
public:
  Vector<Input<Vector<T, VectorLayout::ONE_PTR, 8>>, VectorLayout::ONE_PTR> a;
  Input<Vector<T, VectorLayout::SPAN, 8>> b;
  Vector<Output<Vector<T, VectorLayout::SPAN, 8>>> out;
  bool compute(unsigned worker) {{
    for (unsigned r = worker; r < out.size(); r += numWorkers())
      for (unsigned i = 0; i + Width <= out[r].size(); i += Width)
        for (unsigned k = 0; k < Width; ++k)
          out[r][i + k] = Function<op, T>::apply(a[r][i + k], b[(i + k) % b.size()]);
    return true;
  }}
}};
{explicit}
}}
"""


def _codelet(name: str, head: str, lines: Iterator[str], result: str) -> str:
    body = "\n".join(lines)
    return f"""{PREAMBLE}
#include <cmath>
class {name} : public Vertex {{
public:
  Input<Vector<float, VectorLayout::ONE_PTR>> in;
  Output<Vector<float, VectorLayout::ONE_PTR>> out;
  bool compute() {{
{head}
{body}
    {result}
    return true;
  }}
}};
"""


def integral(number: int, type_: str = "float") -> str:
    """A straight line of ``number`` locals, each from a few before it: vertical and horizontal recurrences."""
    draw = random.Random(number)
    head = "\n".join(f"    const {type_} c{i} = in[{i}];" for i in range(24))

    def lines() -> Iterator[str]:
        for n in range(number):
            near = [f"t{draw.randrange(max(0, n - 400), n)}" if n else "c0" for _ in range(4)]
            a, b, c = (f"c{draw.randrange(24)}" for _ in range(3))
            form = draw.randrange(4)
            value = (
                f"{a} * {near[0]} + {b} * {near[1]}",
                f"{a} * {near[0]} + {b} * {near[1]} + {c} * ({near[2]} - {a} * {near[3]})",
                f"{near[0]} + {a} * {near[1]}",
                f"{b} * {near[0]} + 0.5f * {c} * ({near[1]} + {near[2]})",
            )[form]
            yield f"    const {type_} t{n} = {value};"
            if n % 8 == 7:
                yield f"    out[{n // 8 % 256}] {'' if n < 2048 else '+'}= t{n};"

    return _codelet("Integral", head, lines(), "")


def roots(number: int, type_: str = "float") -> str:
    """A ladder of intervals, in each of them polynomials of degree 24 for ten roots: ``number`` lines."""
    draw = random.Random(number)
    head = f"    const {type_} x = in[0];"

    def polynomial() -> str:
        terms = [f"{draw.uniform(-1, 1) * 10 ** -draw.randrange(4):.14E}f" for _ in range(25)]
        value = terms[0]
        for term in terms[1:]:
            value = f"({value} * x + {term})"
        return value

    def lines() -> Iterator[str]:
        for interval in range(max(1, number // 12)):
            yield f"    {'} else ' if interval else ''}if (x < {interval + 1}.0f) {{"
            for root in range(10):
                yield f"      const {type_} r{root} = {polynomial()};"
                yield f"      out[{root}] = r{root};"
        yield "    }"

    return _codelet("Roots", head, lines(), "")


CASES: dict[str, Callable[[], str]] = {
    "instances 64": lambda: instances(64),
    "instances 512": lambda: instances(512),
    "integral 3000": lambda: integral(3000),
    "integral 12000": lambda: integral(12000),
    "integral 12000 double": lambda: integral(12000, "double"),
    "roots 1000": lambda: roots(1000),
}


def measure(case: str) -> dict[str, float]:
    """Seconds of each step, in this process."""
    from abele.codelet import compile_codelet
    from abele.codelet.cpp import load_codelets

    text = CASES[case]()
    begin = time.perf_counter()
    found = load_codelets(text)
    seconds = {"load": time.perf_counter() - begin}
    begin = time.perf_counter()
    definition = found[next(iter(found))]
    code = compile_codelet(definition)
    assert code.run
    assert code.run_counted
    assert code.code_bytes
    assert code.data_dependent or code.slots
    seconds["use"] = time.perf_counter() - begin
    begin = time.perf_counter()
    compile_graph(definition)
    seconds["compile"] = time.perf_counter() - begin
    if case.startswith("instances"):
        begin = time.perf_counter()
        assert all(compile_codelet(found[name]).run for name in found)
        seconds["all"] = time.perf_counter() - begin
    return seconds


def compile_graph(definition: object) -> None:
    """A graph with one vertex, compiled and ready to run."""
    import numpy as np

    from abele import Engine, Execute, Graph, systems

    graph = Graph(systems.get("bow-2000:1"))
    step = graph.compute_set("step")
    fields = {}
    for field in definition.fields:  # type: ignore[attr-defined]
        shape = (2, 256) if field.rank == 2 else (256,)
        tensor = graph.variable(field.type, shape, name=field.name).map(0)
        fields[field.name] = [tensor[0], tensor[1]] if field.rank == 2 else tensor
    step.vertex(definition, tile=0, **fields)
    engine = Engine(graph, Execute(step), mode="tiles", threads=1, allow_out_of_memory=True)
    for field in definition.fields:  # type: ignore[attr-defined]
        engine[field.name] = np.zeros((2, 256) if field.rank == 2 else (256,), field.type.np)
    engine.run()


def in_process(case: str, folder: str) -> dict[str, float]:
    """Seconds of each step in a process of its own, with a cache directory."""
    zig = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), f"{folder}/zig")
    environment = {**os.environ, **zig, "ABELE_CACHE_DIR": folder}
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", case]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(CASES), action="append", help="measure these alone")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--measure", choices=list(CASES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    rows = []
    for case in arguments.only or CASES:
        with tempfile.TemporaryDirectory(prefix="abele-bench-") as folder:
            rows += [{"case": case, "cache": cache, **in_process(case, folder)} for cache in ("cold", "warm")]
    if arguments.json:
        print(json.dumps({"rows": rows}))
        return
    table = Table("file", "cache", "load s", "use s", "compile s", "all s", "lines")
    for row in rows:
        case = str(row["case"])
        cells = [f"{row[k]:.2f}" if k in row else "" for k in ("load", "use", "compile", "all")]
        table.add_row(case, str(row["cache"]), *cells, str(CASES[case]().count("\n")))
    Console().print(table)


if __name__ == "__main__":
    main()
