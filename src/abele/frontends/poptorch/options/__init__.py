"""Options of a model: how it is batched, trained, placed and run."""

from abele.frontends.poptorch.options.checked import CheckedOptions as _OptionsDict
from abele.frontends.poptorch.options.distributed import DistributedOptions as _DistributedOptions
from abele.frontends.poptorch.options.distributed import JitOptions as _JitOptions
from abele.frontends.poptorch.options.files import ConfigFileError
from abele.frontends.poptorch.options.locations import TensorLocationOptions as _TensorLocationOptions
from abele.frontends.poptorch.options.locations import TensorLocationSettings
from abele.frontends.poptorch.options.options import Options
from abele.frontends.poptorch.options.popart import PopartOptions as _PopartOptions
from abele.frontends.poptorch.options.precision import PrecisionOptions as _PrecisionOptions
from abele.frontends.poptorch.options.strategies import ExecutionStrategy as _IExecutionStrategy
from abele.frontends.poptorch.options.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from abele.frontends.poptorch.options.strategies import PhasedExecution as _IPhasedExecution
from abele.frontends.poptorch.options.training import TrainingOptions as _TrainingOptions

BlockId = str
"""Name or number of a block."""

__all__ = [
    "BlockId",
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "_DistributedOptions",
    "_IExecutionStrategy",
    "_IPhasedExecution",
    "_JitOptions",
    "_OptionsDict",
    "_PopartOptions",
    "_PrecisionOptions",
    "_TensorLocationOptions",
    "_TrainingOptions",
]
