"""Options of an engine: read from the program and the environment, checked, and logged where they do nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

from msgspec import Meta

from abele.errors import InvalidOptionError
from abele.options import Option, OptionTable

# Options of an engine under Poplar's names: values, default and effect of each.

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


LOG = logging.getLogger("abele")

VARIABLES = ("POPLAR_ENGINE_OPTIONS", "POPLAR_RUNTIME_OPTIONS", "ABELE_ENGINE_OPTIONS")
"""Environment variables that hold JSON objects of options; a later one overrides those before it."""

LOG_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL + 1,
}
"""Values of POPLAR_LOG_LEVEL, and levels of the logger ``abele``."""


@dataclass(frozen=True)
class EngineOptions(Mapping[str, Value]):
    """Options with their values; ``options["debug.instrument"]`` is there whether it was given or not.

    Attributes:
        given: Those that the program or the environment gave.
    """

    given: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        if name in self.given:
            return self.given[name]
        default: Value = OPTIONS[OPTIONS.find(name)].default
        return default

    def __iter__(self) -> Iterator[str]:
        return iter(OPTIONS)

    def __len__(self) -> int:
        return len(OPTIONS)

    def flag(self, name: str) -> bool:
        """The value of an option that is true or false."""
        return bool(self[name])

    def number(self, name: str) -> int:
        """The value of an option that is a number."""
        return int(self[name])

    def text(self, name: str) -> str:
        """The value of an option that is a word or text."""
        return str(self[name])


def read_options(options: Mapping[str, Any] | None, environment: Mapping[str, str] | None = None) -> EngineOptions:
    """Options of a program, overridden by those of the environment.

    Args:
        options: By Poplar's names; values may be text.
        environment: Variables; the process's own when left out.

    Raises:
        InvalidOptionError: An option that does not exist, a value that it does not take, or a variable that holds no
            JSON object.
    """
    environment = os.environ if environment is None else environment
    given = {OPTIONS.find(name): OPTIONS.parse(name, value) for name, value in (options or {}).items()}
    for variable in VARIABLES:
        source = f"environment variable {variable}"
        for name, value in _object_in(environment.get(variable, ""), variable).items():
            given[OPTIONS.find(name, source)] = OPTIONS.parse(name, value, source)
    for name in given:
        if not OPTIONS[name].honoured:
            LOG.debug("engine option %r has no effect here: %s", name, OPTIONS[name].doc)
    return EngineOptions(given)


def _object_in(text: str, variable: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidOptionError(
            f"environment variable {variable} holds no JSON: {error}",
            remedy=f'{variable}=\'{{"debug.instrument": "true"}}\'',
        ) from None
    if not isinstance(found, dict):
        raise InvalidOptionError(f"environment variable {variable} holds a JSON {type(found).__name__}, not an object")
    return found


def set_log_level(environment: Mapping[str, str] | None = None) -> None:
    """Set the level of the logger ``abele`` from POPLAR_LOG_LEVEL, and let it write to stderr, if that is set.

    Raises:
        InvalidOptionError: It holds no level.
    """
    word = (os.environ if environment is None else environment).get("POPLAR_LOG_LEVEL", "").upper()
    if not word:
        return
    if word not in LOG_LEVELS:
        raise InvalidOptionError(
            f"environment variable POPLAR_LOG_LEVEL holds {word!r}", remedy="one of " + ", ".join(LOG_LEVELS)
        )
    LOG.setLevel(LOG_LEVELS[word])
    if not LOG.hasHandlers():
        LOG.addHandler(logging.StreamHandler())
