"""Write library_vertices.md, the page of PopLibs' vertices by name: python docs/make_library_vertices.py."""

from __future__ import annotations

from pathlib import Path

from abele.codelet.fields import FieldDef
from abele.poplibs.public_vertices import LibraryVertices, library
from abele.poplibs.public_vertices.family import DRAWS, STREAM, Family

PAGE = Path(__file__).parent / "library_vertices.md"
LIBRARIES = ("popops", "poplin", "popnn", "poprand")

HEAD = """# Library vertices

Programs may place the vertices of PopLibs' functions themselves. After a library's `addCodelets` they have PopLibs'
names and fields:

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

Names of enumerations may be cut short from the left (`BinaryOpType::ADD`, `ADD`). A wrong name or argument is an
`UnknownVertexTypeError` with the reason and the nearest names. A vertex costs what PopLibs' estimator says, where the
[machine's figures](machine.md) have a formula; others are counted from their code. So it takes as long as the same
vertex of a library function. Its code is Abele's own, in the [vertex language](codelets.md).

- `ONE_PTR` fields have no length: a vector that is too short is read beyond its end, as on the machine;
  `checks="bounds"` names vertex and field.
- Vertices of poprand draw from streams of their own, so `poprand.setSeed` does not change their numbers. These depend
  on the vertex's place among its kind in the graph and on how often it has run, not on tiles or threads.
- Fields are those of the first type that a template takes, in the order of declaration but for fields of one type,
  which stand together; those in brackets may be left out. Names, types and meaning are as in PopLibs, but *likely* ones
  only as far as can be told, and *guessed* ones under names that may differ between versions.
"""


def page() -> str:
    """The page as text."""
    return "\n".join([HEAD, *(line for name in LIBRARIES for line in _section(library(name)))])


def _section(vertices: LibraryVertices) -> list[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for family in vertices.families.values():
        shown, parameters, fields = _shown(vertices, family)
        meaning = family.meaning if family.certainty == "sure" else f"{family.meaning} (*{family.certainty}*)"
        alike.setdefault((f"`{parameters}`" if parameters else "", f"{fields} | {_escaped(meaning)}"), []).append(
            f"`{shown}`"
        )
    lines = [f"## {vertices.namespace}", "", "| vertices, template | fields | meaning |", "|---|---|---|"]
    lines += [f"| {' '.join([*names, parameters])} | {rest} |" for (parameters, rest), names in alike.items()]
    withheld = vertices.withheld
    if withheld:
        by_reason: dict[str, list[str]] = {}
        for name, why in withheld.items():
            by_reason.setdefault(why, []).append(f"`{name}`")
        lines += ["", "Not here:", ""]
        lines += [f"- {', '.join(names)}: {why}." for why, names in by_reason.items()]
    return [*lines, ""]


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def _shown(vertices: LibraryVertices, family: Family) -> tuple[str, str, str]:
    """Name, template parameters and fields of a family."""
    arguments = family.example or tuple(p.example for p in family.parameters)
    found = vertices.find(f"{vertices.namespace}::{family.name}" + (f"<{','.join(arguments)}>" if arguments else ""))
    assert found is not None
    by_type: dict[str, list[str]] = {}
    for field in found.fields:
        if field.name not in (STREAM, DRAWS):
            name = field.name if field.initial is None else f"[{field.name}]"
            by_type.setdefault(_type(field), []).append(name)
    fields = "; ".join(f"{kind} {','.join(names)}" for kind, names in by_type.items())
    parameters = f"<{','.join(p.name for p in family.parameters)}>" if arguments else ""
    return family.name, parameters, f"`{fields}`" if fields else ""


def _type(field: FieldDef) -> str:
    """Type of a field as C++ would declare it."""
    way = {"in": "Input", "out": "Output", "inout": "InOut"}.get(field.direction, "")
    text = field.type.poplar_name
    if way and field.rank:
        layout = field.layout(field.rank - 1).name
        text = f"Vector<{text}{'' if layout == 'SPAN' else f',{layout}'}>"
    elif field.rank:
        text = f"Vector<{text}>"
    if way:
        text = f"{way}<{text}>" if not field.is_scattered else f"Vector<{way}<{field.type.poplar_name}>>"
    if field.is_list:
        text = f"{way}<VectorList<{field.type.poplar_name}>>"
    elif field.rank == 2:
        text = f"Vector<{text}>"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
