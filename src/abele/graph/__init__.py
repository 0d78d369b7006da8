"""The graph: variables, tensor views, tile mappings, vertices, compute sets and control programs."""

from abele.graph.clone import TensorCloneMethod
from abele.graph.compute_set import ComputeSet, FieldRef, VertexRef, definition_of
from abele.graph.connect import Shared, shared
from abele.graph.control import (
    Abort,
    AbortOnCondition,
    AssumeEqualAcrossReplicas,
    Block,
    CycleCount,
    CycleStamp,
    ErrorProgram,
    FloatingPointBehaviour,
    GetHwSeeds,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Switch,
    Sync,
)
from abele.graph.debug import DebugRecord, caller
from abele.graph.gather import gathered, reorder_to_simplify, sorted_contiguous_regions
from abele.graph.graph import Graph
from abele.graph.host_interface import Argument, HostCall, HostFunction, HostHandle
from abele.graph.interval_map import IntervalMap
from abele.graph.intervals import Interval
from abele.graph.mapping import TileMapping
from abele.graph.program import (
    Call,
    Copy,
    End,
    Execute,
    Function,
    HostLoop,
    HostOrder,
    If,
    LibraryCall,
    PrintTensor,
    PrintTensorFmt,
    Program,
    Repeat,
    RepeatWhile,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    StashCopy,
    Steps,
    WriteUndef,
    walk,
)
from abele.graph.regions import Regions, boxes, rows, whole
from abele.graph.remote import RemoteBuffer
from abele.graph.replica_copies import CrossReplicaCopy, CrossReplicaExchange
from abele.graph.sparse_operand import BucketWords, SparseNote
from abele.graph.stream import Stream
from abele.graph.sync_group import SyncGroup
from abele.graph.tensor import Strided, Tensor, concat, stack
from abele.graph.variable import Variable
from abele.graph.vertices import Edge, StateData, VertexGroup
from abele.graph.virtual import VirtualGraph

__all__ = [
    "Abort",
    "AbortOnCondition",
    "Argument",
    "AssumeEqualAcrossReplicas",
    "Block",
    "BucketWords",
    "Call",
    "ComputeSet",
    "Copy",
    "CrossReplicaCopy",
    "CrossReplicaExchange",
    "CycleCount",
    "CycleStamp",
    "DebugRecord",
    "Edge",
    "End",
    "ErrorProgram",
    "Execute",
    "FieldRef",
    "FloatingPointBehaviour",
    "Function",
    "GetHwSeeds",
    "Graph",
    "HostCall",
    "HostFunction",
    "HostHandle",
    "HostLoop",
    "HostOrder",
    "If",
    "Interval",
    "IntervalMap",
    "LibraryCall",
    "PrintTensor",
    "PrintTensorFmt",
    "Program",
    "Regions",
    "RemoteBuffer",
    "Repeat",
    "RepeatWhile",
    "RepeatWhileFalse",
    "RepeatWhileTrue",
    "Sequence",
    "SetFloatingPointBehaviour",
    "SetHwSeeds",
    "Shared",
    "SparseNote",
    "StashCopy",
    "StateData",
    "Steps",
    "Stream",
    "Strided",
    "Switch",
    "Sync",
    "SyncGroup",
    "Tensor",
    "TensorCloneMethod",
    "TileMapping",
    "Variable",
    "VertexGroup",
    "VertexRef",
    "VirtualGraph",
    "WriteUndef",
    "boxes",
    "caller",
    "concat",
    "definition_of",
    "gathered",
    "reorder_to_simplify",
    "rows",
    "shared",
    "sorted_contiguous_regions",
    "stack",
    "walk",
    "whole",
]
