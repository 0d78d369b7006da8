"""Options of an engine under Poplar's names: values, default and effect of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

from msgspec import Meta

from abele.options import Option, OptionTable

Value = bool | int | str

AUTO = "auto"
INT = Annotated[int, Meta(ge=0)]
BOOL = bool
TEXT = str


def _honoured(name: str, takes: Any, default: Value, doc: str, *, auto: bool = False) -> tuple[str, Option]:
    """An option that does something here."""
    return name, Option(default, _type(takes, auto), doc=doc)


def _accepted(name: str, takes: Any, default: Value, doc: str, *, auto: bool = False) -> tuple[str, Option]:
    """Option that is accepted, so that programs with it run."""
    return name, Option(default, _type(takes, auto), doc=doc, honoured=False)


def _type(takes: Any, auto: bool) -> Any:
    """The words that an option takes as a type; a number may also be left to the engine."""
    wanted = Literal[takes] if isinstance(takes, tuple) else takes
    return Union[wanted, Literal["auto"]] if auto else wanted  # noqa: UP007


LEVELS = ("off", "vertex", "tile", "ipu", "device")
TARGETS = ("cycles", "balanced", "memory")

OPTIONS = OptionTable(
    "the engine",
    dict(
        [
            _honoured("autoReport.all", BOOL, False, "write every report that the other autoReport options name"),
            _honoured("autoReport.directory", TEXT, ".", "folder that reports are written to; it is made if need be"),
            _honoured("autoReport.outputGraphProfile", BOOL, False, "write the report after compiling"),
            _honoured("autoReport.outputExecutionProfile", BOOL, False, "write the report again after runs"),
            _honoured(
                "autoReport.executionProfileProgramRunCount", INT, 2, "runs after which the report is written again"
            ),
            _accepted("autoReport.outputDebugInfo", BOOL, False, "the report holds names and source lines in any case"),
            _accepted("autoReport.outputSerializedGraph", BOOL, False, "graphs are not written with the report"),
            _accepted("autoReport.outputArchive", BOOL, False, "there is no archive of tile binaries"),
            _accepted("autoReport.outputLoweredVars", BOOL, False, "the report's table of variables is always there"),
            _accepted("autoReport.streamAtEachRun", BOOL, True, "the report is a file that is written whole"),
            _honoured("debug.allowOutOfMemory", BOOL, False, "run a program that would not fit the machine"),
            _honoured("debug.instrument", BOOL, True, "record the runs; false: asking for them is an error"),
            _honoured("debug.instrumentCompute", BOOL, True, "as debug.instrument: all runs are recorded, or none"),
            _honoured(
                "debug.computeInstrumentationLevel", LEVELS, "vertex", "off: record no runs; else in full detail"
            ),
            _accepted("debug.instrumentControlFlow", BOOL, False, "control flow is recorded with the runs"),
            _accepted("debug.instrumentExternalExchange", BOOL, False, "exchange between chips is in the report"),
            _honoured("debug.runtimeVerify", BOOL, False, "check uninitialised reads, bounds and writes to inputs"),
            _honoured(
                "debug.floatPointOpException", BOOL, False, "stop at invalid operations, divisions by zero, overflow"
            ),
            _accepted("debug.nanOverflowMode", BOOL, False, "f16 overflows to infinity, as IEEE 754 has it"),
            _accepted("debug.retainDebugInformation", BOOL, False, "names and source lines are always kept"),
            _accepted("debug.trace", BOOL, False, "there is no trace of API calls"),
            _accepted("debug.traceFile", TEXT, "", "there is no trace of API calls"),
            _accepted("debug.branchRecordFlush", BOOL, False, "branches are counted, not recorded in tile memory"),
            _accepted("debug.outputAllSymbols", BOOL, False, "there are no symbols of tile binaries"),
            _accepted("debug.loweredVarDumpFile", TEXT, "", "the report's table of variables says where they are"),
            _accepted("debug.verify", BOOL, False, "graphs are always verified"),
            _accepted("debug.profilingTile", INT, 0, "profiling takes no tile", auto=True),
            _accepted(
                "debug.cpuMultiThreadExecution", BOOL, True, "Engine(threads=…) says how many host threads there are"
            ),
            _honoured("exchange.enablePrefetch", BOOL, True, "fetch stream data before the program asks for it"),
            _accepted(
                "exchange.streamBufferOverlap",
                ("any", "hostRearrangeOnly", "none"),
                "any",
                "stream buffers never share memory, which each of these allows",
            ),
            _accepted(
                "exchange.multicastPolicy",
                ("off", "cycles", "balanced", "memory"),
                "balanced",
                "elements are sent once to all tiles that want them",
            ),
            _honoured("prng.seed", INT, 0, "what the random seeds are made from at load"),
            _honoured(
                "prng.enableStochasticRounding", BOOL, False, "from load on, round f16 results up or down at random"
            ),
            _honoured(
                "profiler.programs.filter", TEXT, "", "regular expression: record the runs of programs with such a name"
            ),
            _honoured("profiler.host", BOOL, False, "measure all runs on the host, leaf by leaf: engine.profile()"),
            _accepted("profiler.format", ("v1", "v2", "v3", "experimental"), "v3", "reports have one format"),
            _accepted("profiler.blocks.filter", TEXT, "", "all blocks are in the report"),
            _accepted("profiler.blocks.implicitFlush", BOOL, True, "blocks take no tile memory"),
            _accepted("profiler.replicaToProfile", INT, 0, "replicas run alike"),
            _accepted("profiler.includeFlopEstimates", BOOL, False, "the report always has floating-point operations"),
            _accepted("profiler.includeCycleEstimates", BOOL, False, "the report always has cycles"),
            _honoured(
                "streamCallbacks.multiThreadMode",
                ("singleThread", "dedicated", "collaborative"),
                "dedicated",
                "singleThread: one thread prefetches for all streams; else numWorkerThreads do",
            ),
            _honoured(
                "streamCallbacks.numWorkerThreads", INT, AUTO, "threads that prefetch; auto: one a stream", auto=True
            ),
            _honoured("streamCallbacks.maxLookahead", INT, 2**32 - 1, "most copies of a stream that are prefetched"),
            _accepted("streamCallbacks.numaAware", BOOL, False, "threads run where the operating system puts them"),
            _accepted(
                "target.deterministicWorkers", ("true", "false", "portable"), "true", "results are the same each time"
            ),
            _honoured(
                "target.hostSyncTimeout",
                INT,
                0,
                "seconds after which vertices of a step in endless loops are stopped; 0: none",
            ),
            _accepted("target.syncReplicasIndependently", BOOL, False, "replicas run in step"),
            _accepted("target.saveArchive", TEXT, "", "there is no archive of tile binaries"),
            _accepted("target.extendedMemory", BOOL, False, "the System says how much memory a tile has"),
            _accepted(
                "target.workerStackSizeInBytes", INT, AUTO, "stacks have the size that the code needs", auto=True
            ),
            _accepted(
                "target.supervisorStackSizeInBytes", INT, AUTO, "stacks have the size that the code needs", auto=True
            ),
            _accepted(
                "opt.internalExchangeOptimisationTarget", TARGETS, "cycles", "the exchange is planned for cycles"
            ),
            _accepted("opt.useAutoloader", BOOL, True, "loading takes no modelled time"),
            _accepted("opt.maxComputeSetsPerLoweredCopy", INT, 6, "a copy is one superstep"),
            _accepted("opt.maxCompilationThreads", INT, 0, "graphs compile on one thread"),
            _accepted("opt.enableInlining", BOOL, True, "a function called once is always inlined"),
        ]
    ),
    listed="docs/engine.md lists them",
)
"""All options by name. Source: Poplar's list of engine options; names and meaning there, defaults where known."""
