"""Graph networks: several graphs as one of fixed size, with a graph of padding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.errors import PackedDataError, SampleLengthError
from abele.packing.data.derived import Batch, Derived, OwnerIds, SampleNumbers, SequenceIds, SequenceLengths
from abele.packing.data.fields import Field, per_sequence
from abele.packing.data.layout import RowShape
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Recipe, Samples

NODES, EDGES = "nodes", "edges"
"""Axes of graphs: rows have a capacity of each."""
OF_NODES = ("x", "z", "pos", "node_attr")
OF_EDGES = ("edge_attr", "edge_weight")
OF_GRAPHS = ("y",)
"""Attributes of PyTorch Geometric's ``Data`` that are taken where graphs have them."""


def graph_shape(*, nodes: int, edges: int | None, graphs: int) -> RowShape:
    """Rows of graphs: one node stays empty, at which edges of padding begin and end.

    Args:
        nodes: Nodes of a row, with that one.
        edges: Edges of a row; None for models that find their edges themselves (SchNet from distances).
        graphs: Graphs of a row at most, without that of padding.
    """
    capacity = {NODES: nodes} if edges is None else {NODES: nodes, EDGES: edges}
    return RowShape(capacity, graphs, spare={NODES: 1})


def graph_recipe(
    *, nodes: Sequence[str] = ("x",), edges: Sequence[str] = (), graphs: Sequence[str] = ("y",), edge_index: bool = True
) -> Recipe:
    """Rows of graphs.

    ``edge_index`` [rows, edges, 2] has places in the row, those of padding edges are its last node; ``batch``
    [rows, nodes] the number of each node's graph, the graph of padding being number ``depth``.

    Args:
        nodes, edges, graphs: Names of the fields that nodes, edges and graphs have.
        edge_index: True if graphs have edges of their own.
    """
    fields = {name: Field(axis=NODES) for name in nodes}
    derive: dict[str, Derived] = {
        "batch": OwnerIds(NODES),
        "samples": SampleNumbers(),
        "sequence_ids": SequenceIds(NODES),
        "num_nodes": SequenceLengths(NODES),
    }
    if edge_index:
        fields["edge_index"] = Field(axis=EDGES, points_to=NODES, padding_to_last=True)
        fields |= {name: Field(axis=EDGES) for name in edges}
        derive["num_edges"] = SequenceLengths(EDGES)
    fields |= {name: per_sequence() for name in graphs}
    return Recipe(fields, derive)


def graphs_of(
    data: Iterable[Any],
    *,
    nodes: Sequence[str] | None = None,
    edges: Sequence[str] | None = None,
    graphs: Sequence[str] | None = None,
) -> Samples:
    """Samples of graphs that are objects like PyTorch Geometric's ``Data``, or mappings.

    Args:
        data: Graphs with attributes or items such as ``x``, ``edge_index`` [2, num_edges], ``edge_attr``, ``y``. What a
            graph has one of may have a first dimension of 1.
        nodes, edges, graphs: Names of the attributes that nodes, edges and graphs have; by default those of
            :data:`OF_NODES`, :data:`OF_EDGES` and :data:`OF_GRAPHS` that the first graph has.

    Raises:
        SampleLengthError: No graphs; graphs of which attributes of nodes, or of edges, differ in number.
        PackedDataError: A graph lacks an attribute; nodes have none; an ``edge_index`` of another shape.
        PlaceError: An edge that leaves its graph.
    """
    given = list(data)
    if not given:
        raise SampleLengthError("there are no graphs to pack")
    has_edges = _has(given[0], "edge_index")
    own_nodes = _present(given[0], OF_NODES) if nodes is None else tuple(nodes)
    own_edges = _present(given[0], OF_EDGES) if edges is None else tuple(edges)
    own_graphs = _present(given[0], OF_GRAPHS) if graphs is None else tuple(graphs)
    if not own_nodes:
        raise PackedDataError("graphs have no attribute of nodes", remedy="nodes= with the names of some")
    if own_edges and not has_edges:
        raise PackedDataError(f"graphs have {', '.join(own_edges)} and no edge_index")
    columns: dict[str, Any] = {name: Ragged.of(_values(given, name)) for name in own_nodes}
    if has_edges:
        columns["edge_index"] = Ragged.of(
            [_edges_first(n, ends) for n, ends in enumerate(_values(given, "edge_index"))]
        )
        columns |= {name: Ragged.of(_values(given, name)) for name in own_edges}
    columns |= {name: _of_graph(name, _values(given, name)) for name in own_graphs}
    recipe = graph_recipe(nodes=own_nodes, edges=own_edges, graphs=own_graphs, edge_index=has_edges)
    return Samples(columns, recipe)


def as_one_graph(batch: Mapping[str, Any], recipe: Recipe) -> Batch:
    """The rows of a batch as one graph, as message passing takes it.

    Args:
        batch: Arrays of rows of graphs, as rows of ``recipe`` have them.
        recipe: Fields and derived arrays; ``samples.recipe``.

    Returns:
        Arrays of nodes [rows · nodes, …] and edges [rows · edges, …]; ``edge_index`` int64[2, rows · edges]; ``batch``,
        numbers from 0 to ``rows · (depth + 1) - 1``, each row's last graph being padding; arrays of graphs
        [rows · (depth + 1), …] in these numbers, zeros for padding; ``graph_mask``, bool[rows · (depth + 1)], True for
        real graphs.

    Raises:
        PackedDataError: Arrays that are missing.
    """
    for name in ("batch", "num_nodes", "samples"):
        if name not in batch:
            raise PackedDataError(f"a batch of graphs has {name!r}", remedy="graph_recipe() derives it")
    owners, depth = np.asarray(batch["batch"]), np.asarray(batch["samples"]).shape[1]
    num_rows, num_nodes = owners.shape
    by_graph = {"samples", "num_nodes", "num_edges"} | {n for n, field in recipe.fields.items() if field.axis is None}
    made: Batch = {}
    for name, given in batch.items():
        array = np.asarray(given)
        if name == "batch":
            made[name] = (array + np.arange(num_rows)[:, None] * (depth + 1)).reshape(-1)
        elif name == "edge_index":
            shifted = array + np.arange(num_rows)[:, None, None] * num_nodes
            made[name] = np.ascontiguousarray(shifted.reshape(-1, 2).T)
        elif name in by_graph:
            filler = np.full((num_rows, 1, *array.shape[2:]), -1 if name == "samples" else 0, array.dtype)
            made[name] = np.concatenate([array, filler], 1).reshape(-1, *array.shape[2:])
        else:
            made[name] = array.reshape(-1, *array.shape[2:])
    made["graph_mask"] = made["samples"] >= 0
    return made


def _has(graph: Any, name: str) -> bool:
    return _attribute(graph, name) is not None


def _attribute(graph: Any, name: str) -> Any:
    return graph.get(name) if isinstance(graph, Mapping) else getattr(graph, name, None)


def _present(graph: Any, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if _has(graph, name))


def _values(graphs: Sequence[Any], name: str) -> list[Any]:
    values = [_attribute(graph, name) for graph in graphs]
    lacks = next((number for number, value in enumerate(values) if value is None), None)
    if lacks is not None:
        raise PackedDataError(
            f"graph {lacks} has no {name!r}, and others have", remedy="leave it out of the names, or fill it in"
        )
    return [value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value) for value in values]


def _edges_first(number: int, ends: Array) -> Array:
    if ends.size == 0:
        return np.empty((0, 2), np.int64)
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise PackedDataError(f"edge_index of graph {number} has the shape {list(ends.shape)}", remedy="[2, num_edges]")
    return ends.T


def _of_graph(name: str, values: list[Array]) -> Array:
    single = [value[0] if value.ndim and len(value) == 1 else value for value in values]
    shapes = {value.shape for value in single}
    if len(shapes) > 1:
        raise SampleLengthError(
            f"{name!r} differs in shape between graphs: {', '.join(map(str, sorted(shapes)))}",
            remedy="an attribute of nodes or edges is named in nodes= or edges=",
        )
    return np.stack(single)
