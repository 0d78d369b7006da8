"""The graph: variables, tensor views, tile mappings, vertices, compute sets and control programs."""

from abele.graph.compute_set import ComputeSet, FieldRef, VertexRef, definition_of
from abele.graph.connect import Shared, shared
from abele.graph.debug import DebugInfo, caller
from abele.graph.graph import Graph
from abele.graph.interval_map import IntervalMap
from abele.graph.intervals import Interval
from abele.graph.mapping import TileMapping
from abele.graph.program import (
    Call,
    Copy,
    Execute,
    Function,
    If,
    LibraryCall,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhile,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    WriteUndef,
    walk,
)
from abele.graph.regions import Regions, boxes, rows, whole
from abele.graph.stream import Stream
from abele.graph.tensor import Strided, Tensor, concat, stack
from abele.graph.variable import Variable
from abele.graph.vertices import Edge, StateData, VertexGroup

__all__ = [
    "Call",
    "ComputeSet",
    "Copy",
    "DebugInfo",
    "Edge",
    "Execute",
    "FieldRef",
    "Function",
    "Graph",
    "If",
    "Interval",
    "IntervalMap",
    "LibraryCall",
    "PrintTensor",
    "Program",
    "Regions",
    "Repeat",
    "RepeatWhile",
    "RepeatWhileFalse",
    "RepeatWhileTrue",
    "Sequence",
    "Shared",
    "StateData",
    "Stream",
    "Strided",
    "Tensor",
    "TileMapping",
    "Variable",
    "VertexGroup",
    "VertexRef",
    "WriteUndef",
    "boxes",
    "caller",
    "concat",
    "definition_of",
    "rows",
    "shared",
    "stack",
    "walk",
    "whole",
]
