"""Write library_vertices.md, the page of PopLibs' vertices by name: python docs/make_library_vertices.py."""

from __future__ import annotations

from pathlib import Path

from abele.codelet.fields import FieldDef
from abele.poplibs.public_vertices import LibraryVertices, library
from abele.poplibs.public_vertices.family import DRAWS, STREAM, Family

PAGE = Path(__file__).parent / "library_vertices.md"
LIBRARIES = ("popops", "poplin", "popnn", "poprand")

HEAD = """# Library vertices

Programs may place the vertices that PopLibs' functions are made of themselves. After `addCodelets` of a library they
are known by PopLibs' names, with PopLibs' fields:

```python
import numpy as np

from abele import popops, poputil
from abele.poplar import FLOAT, Engine, Graph
from abele.poplar.program import Execute

graph = Graph("bow-2000:1")
popops.addCodelets(graph)
x = graph.addVariable(FLOAT, [1000], "x")
y = graph.addVariable(FLOAT, [1000], "y")
for tensor in (x, y):
    graph.setTileMapping(tensor, 3)
    graph.createHostWrite(tensor.name, tensor)

cs = graph.addComputeSet("double")
name = poputil.templateVertex("popops::BinaryOp1D", popops.BinaryOpType.ADD, FLOAT)
print(name)                                    # popops::BinaryOp1D<popops::expr::BinaryOpType::ADD,float>
vertex = graph.addVertex(cs, name, {"in1": x, "in2": x, "out": y})
graph.setTileMapping(vertex, 3)
graph.createHostRead("sum", y)

engine = Engine(graph, Execute(cs))
engine.writeTensor("x", np.arange(1000, dtype="float32"))
engine.run(0)
print(engine.readTensor("sum")[:3])            # [0. 2. 4.]
```

Names of enumerations may be cut short from the left (`BinaryOpType::ADD`, `ADD`). A name that there is not, or an
argument that does not fit, is an `UnknownVertexTypeError` with the reason and the nearest names. Nothing is made
before it is asked for.

A vertex costs what PopLibs' estimator says, where the [machine's figures](machine.md) have a formula; the others are
counted from their code. So a vertex placed by hand takes as long as the same vertex of a library function. What runs
is Abele's own code in the [vertex language](codelets.md), compiled and debugged like any other.

What to know:

- `ONE_PTR` fields have no length. As on the machine, a vector that is too short is read beyond its end;
  `checks="bounds"` names vertex and field.
- The vertices of poprand draw from a stream of each vertex's own instead of the generators of the tile, so
  `poprand.setSeed` does not change their numbers. They depend on which vertex of its kind it is in the graph and on
  how often it has run, not on tiles or threads.
- Fields of the first type that a template takes are shown. *sure* are names, types and meaning as in PopLibs;
  *likely* as far as can be told; *guessed* has the right meaning under names that may differ between versions.
"""


def page() -> str:
    """The page as text."""
    return "\n".join([HEAD, *(line for name in LIBRARIES for line in _section(library(name)))])


def _section(vertices: LibraryVertices) -> list[str]:
    lines = [f"## {vertices.namespace}", "", "| vertex | fields | meaning | known |", "|---|---|---|---|"]
    lines += [_row(vertices, family) for family in vertices.families.values()]
    withheld = vertices.withheld
    if withheld:
        lines += ["", "Not here:", ""]
        lines += [f"- `{name}`: {why}." for name, why in withheld.items()]
    return [*lines, ""]


def _row(vertices: LibraryVertices, family: Family) -> str:
    arguments = family.example or tuple(p.example for p in family.parameters)
    name = f"{vertices.namespace}::{family.name}" + (f"<{','.join(arguments)}>" if arguments else "")
    found = vertices.find(name)
    assert found is not None
    shown = f"`{family.name}" + (f"<{', '.join(p.name for p in family.parameters)}>`" if arguments else "`")
    fields = ", ".join(_field(f) for f in found.fields if f.name not in (STREAM, DRAWS))
    return f"| {shown} | {fields} | {family.meaning} | {family.certainty} |"


def _field(field: FieldDef) -> str:
    """A field as C++ would declare it."""
    way = {"in": "Input", "out": "Output", "inout": "InOut"}.get(field.direction, "")
    text = field.type.poplar_name
    if way and field.rank:
        layout = field.layout(field.rank - 1).name
        text = f"Vector<{text}{'' if layout == 'SPAN' else f', {layout}'}>"
    elif field.rank:
        text = f"Vector<{text}>"
    if way:
        text = f"{way}<{text}>" if not field.is_scattered else f"Vector<{way}<{field.type.poplar_name}>>"
    if field.is_list:
        text = f"{way}<VectorList<{field.type.poplar_name}>>"
    elif field.rank == 2:
        text = f"Vector<{text}>"
    return f"`{text} {field.name}`" + (" (may be left out)" if field.initial is not None else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
