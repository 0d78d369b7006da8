"""Write operations.md, the page of element-wise operations: python docs/make_operations.py."""

from __future__ import annotations

from pathlib import Path

from abele.errors import UnsupportedOpError
from abele.expr import TABLE, InVertex, LoopCost, Operation
from abele.expr.derivative import arg
from abele.expr.operation import Slope
from abele.numerics import f32

PAGE = Path(__file__).parent / "operations.md"

HEAD = """# Operations

Element-wise arithmetic of libraries, networks and vertices is written over one table of operations,
`abele.expr.TABLE`. An entry has an operation's arguments, meaning in NumPy, derivative, code, spellings and cost.
[popops](libraries.md) maps expressions over tensors, host kernels and [vertices](codelets.md) evaluate them, and
networks differentiate them, all from the entry.

## An operation of your own

One entry is enough. A *composite* operation is made of others:

```python
import numpy as np

from abele import Engine, Graph, Sequence, compile_program, systems
from abele.expr import Operation, Spelling, apply, define, loop_cost
from abele.expr.operation import FLOAT
from abele.poplibs import popops
from abele.poplibs.popops.expr import Op, _1

define(
    Operation(
        "softsign",
        1,
        FLOAT,
        lambda x: x / (1 + np.abs(x)),                                  # what it means
        expansion=lambda types, x: x / (1.0 + apply("abs", x)),         # what it is made of
        cost=loop_cost((8, 2), (8, 4)),                                 # cycles per 2 f32 and per 4 f16 elements
        spelling=Spelling("softsign"),                                  # what popops calls it
    )
)

graph, prog = Graph(systems.get("bow")), Sequence()
x = graph.variable("f32", (4,), name="x", map=0)
y = popops.map(graph, Op("softsign", _1), [x], prog)
with Engine(compile_program(graph, prog), keep=[x, y]) as engine:
    engine[x] = np.float32([-3, -1, 0, 1])
    engine.run()
    print(engine[y])                                                    # [-0.75 -0.5   0.    0.5 ]
```

`slopes=` gives derivatives other than those of the parts. A *primitive* operation has LLVM code, `code=Code(emit)` of a
builder and values, instead of an expansion. `in_vertex=InVertex("function", name)` and `slots=` add it to the vertex
language.

## The table

- **popops, Poplar**: names of the function and of the expression.
- **Types** of the arguments, which all have one (of `select` the last two): f is float, i int, u uint, b bool.
- **In vertices**: the construct of the vertex language. Blank, here and elsewhere, is what a composite's parts have.
- **Slots**: issue slots of one f32 element in compiled scalar code, where no construct has them.
- **Cycles / elements**: of a worker's loop in library vertices, loads and stores included: f32, f16, integers.

Sources of the figures stand beside them in `src/abele/expr/operations`.

"""


def page() -> str:
    """The page's text."""
    rows = [
        "| operation | popops, Poplar | types | in vertices | derivative | slots | cycles / elements |",
        "|---|---|---|---|---|---|---|",
        *(_row(op) for op in TABLE.values()),
    ]
    return HEAD + "\n".join(rows) + "\n"


def _row(op: Operation) -> str:
    spelling, cost = op.spelling, op.cost
    named = spelling.builder or spelling.enumerator if spelling else ""
    kinds = "" if op.kinds is None else "".join(kind[0] for kind in sorted(op.kinds))
    floats = op.kinds is None or "float" in op.kinds
    whole = op.kinds is None or "int" in op.kinds
    taken = (floats, floats, whole)
    loops = (cost.f32, cost.f16, cost.integer) if cost else ()
    costs = [_loop(c) if t else "–" for c, t in zip(loops, taken, strict=True)] if loops else []
    arguments = ", ".join("xyz"[: op.arity])
    cells = [
        f"`{op.name}({arguments})`" if op.symbol is None else f"`x {op.symbol} y`".replace("|", "\\|"),
        ", ".join(f"`{name}`" for name in (spelling and spelling.function, named) if name),
        kinds,
        _in_vertex(op),
        _derivative(op),
        "" if op.slots is None else str(op.slots.main + op.slots.aux),
        ", ".join(costs),
    ]
    return f"| {' | '.join(cells)} |"


def _loop(cost: LoopCost) -> str:
    return f"{cost.cycles:g}/{cost.elements}"


def _in_vertex(op: Operation) -> str:
    form = op.in_vertex
    if isinstance(form, InVertex):
        return f"{form.kind} `{form.name}`".replace("|", "\\|")
    if form is not None:
        return f"`{_text(form(f32, *map(arg, range(op.arity))))}`"
    return ""


def _derivative(op: Operation) -> str:
    if op.name == "select":
        return "chosen"
    if op.slopes is None:
        return "none" if op.is_primitive or op.gives_bool else ""
    return "; ".join(_slope(slope, op.arity) for slope in op.slopes)


def _slope(slope: Slope, arity: int) -> str:
    """A derivative, or that there is none."""
    try:
        return f"`{_text(slope(*map(arg, range(arity))))}`"
    except UnsupportedOpError:
        return "none"


def _text(expression: object) -> str:
    text = str(expression)
    for number, name in enumerate("xyz"):
        text = text.replace(f"%{number}[]", name)
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
