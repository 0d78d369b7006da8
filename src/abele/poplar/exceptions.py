"""Poplar's exceptions by its names: each is the kind of :mod:`abele.errors` that means the same."""

# ruff: noqa: N801, N818 - the names are Poplar's

from abele.errors import (
    AbeleError,
    ApplicationRuntimeError,
    CodeletError,
    CodeletLinkError,
    CodeletLoadError,
    CodeletParseError,
    ControlProgramError,
    DataRaceError,
    FieldOverflowError,
    GraphConnectionError,
    GraphRecursionError,
    GraphReplicationError,
    InvalidOptionError,
    MachineError,
    MemoryElementError,
    MissingPerfEstimateError,
    OutOfMemoryError,
    ProfilingDisabledError,
    ProgramRuntimeError,
    StreamConnectionError,
    StreamMemoryError,
    SymbolError,
    TensorAccessError,
    TensorCreationError,
    TensorError,
    TensorIndexError,
    TileMappingError,
    TypeMismatchError,
    UnknownFieldError,
    UnknownVertexTypeError,
    VectorSizeError,
)

poplar_error = AbeleError
poplibs_error = TensorError
control_program_error = ControlProgramError
file_load_error = CodeletLoadError
graph_connection_error = GraphConnectionError
graph_cycle_error = DataRaceError
graph_memory_allocation_error = OutOfMemoryError
graph_object_compilation_error = CodeletError
graph_object_creation_error = CodeletError
graph_object_load_error = CodeletLoadError
graph_recursion_error = GraphRecursionError
graph_replication_error = GraphReplicationError
index_error = TensorIndexError
invalid_machine_model = MachineError
invalid_option = InvalidOptionError
invalid_tile_mapping = TileMappingError
link_error = CodeletLinkError
memory_elem_constraints_error = MemoryElementError
missing_perf_estimate = MissingPerfEstimateError
missing_cycle_estimate = MissingPerfEstimateError
no_environment = CodeletLoadError
"""In Poplar, an SDK that is not set up; here, a C++ compiler that is not there."""
no_size_specified = VectorSizeError
overflow_error = FieldOverflowError
parse_error = CodeletParseError
profiling_disabled = ProfilingDisabledError
stream_connection_error = StreamConnectionError
stream_memory_allocation_error = StreamMemoryError
symbol_error = SymbolError
tensor_creation_error = TensorCreationError
tensor_io_state_error = TensorAccessError
type_error = TypeMismatchError
undefined_field = UnknownFieldError
unknown_field = UnknownFieldError
unknown_vertex_type = UnknownVertexTypeError

runtime_error = ProgramRuntimeError
application_runtime_error = ApplicationRuntimeError


class system_runtime_error(ProgramRuntimeError):
    """A fault of the machine itself: no hardware, no fault, so this exists as a name to catch."""


class recoverable_runtime_error(system_runtime_error):
    """A fault that a reset repairs; never raised."""


class unrecoverable_runtime_error(system_runtime_error):
    """A fault that nothing repairs; never raised."""


class unknown_runtime_error(system_runtime_error):
    """A fault of unknown origin; never raised."""
