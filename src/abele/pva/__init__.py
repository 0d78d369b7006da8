"""Reports under the names of PopVision's analysis library (libpva).

``from abele import pva`` in place of ``import pva``. Sequences make objects when they are indexed or iterated, and
have the same as NumPy arrays: ``compilation.alwaysLiveVariables[3].size``, ``compilation.alwaysLiveVariables.bytes``.
"""

from abele.pva.compilation import (
    Compilation,
    Graph,
    LivenessProgramStep,
    LivenessProgramSteps,
    NotAlwaysLiveMemory,
    Target,
)
from abele.pva.compute_sets import ComputeSet, UsedVariable, UsedVariables, VertexGroup, VertexGroups
from abele.pva.execution import Block, Blocks, Execution, Run, TotalCycles
from abele.pva.programs import (
    DebugContext,
    Operation,
    OperationAnalysis,
    Operations,
    Program,
    Programs,
    ProgramType,
    ProgramVisitor,
)
from abele.pva.reports import InstrumentationSettings, PoplarVersion, Report, Version, openReport
from abele.pva.sequences import LazySequence
from abele.pva.steps import ActiveCycles, CycleRange, RunSteps, Step, StepGroup, StepIpu
from abele.pva.tiles import Ipu, Tile, TileMemory, Tiles
from abele.pva.traces import Event, Events, Process, Thread, Trace, openTrace
from abele.pva.variables import Location, Variable, Variables

__all__ = [
    "ActiveCycles",
    "Block",
    "Blocks",
    "Compilation",
    "ComputeSet",
    "CycleRange",
    "DebugContext",
    "Event",
    "Events",
    "Execution",
    "Graph",
    "InstrumentationSettings",
    "Ipu",
    "LazySequence",
    "LivenessProgramStep",
    "LivenessProgramSteps",
    "Location",
    "NotAlwaysLiveMemory",
    "Operation",
    "OperationAnalysis",
    "Operations",
    "PoplarVersion",
    "Process",
    "Program",
    "ProgramType",
    "ProgramVisitor",
    "Programs",
    "Report",
    "Run",
    "RunSteps",
    "Step",
    "StepGroup",
    "StepIpu",
    "Target",
    "Thread",
    "Tile",
    "TileMemory",
    "Tiles",
    "TotalCycles",
    "Trace",
    "UsedVariable",
    "UsedVariables",
    "Variable",
    "Variables",
    "Version",
    "VertexGroup",
    "VertexGroups",
    "openReport",
    "openTrace",
]
