"""PopTorch's names on the modelled machine: change the import line of a PopTorch program to run it here.

>>> from abele import poptorch  # doctest: +SKIP
"""

import importlib.util

from abele.errors import MissingPackageError

if importlib.util.find_spec("torch") is None:
    raise MissingPackageError(
        "abele.poptorch needs PyTorch, which is not installed",
        remedy="pip install 'abele[torch]', or torch itself",
    )

from abele.frontends.popart_enums import MeanReductionStrategy, ReductionType
from abele.frontends.poptorch import (
    _impl,
    _logging,
    enums,
    experts,
    fp8,
    options,
    poptorch_core,
    sparse,
    testing,
    unit_scaling,
)
from abele.frontends.poptorch.capture.quantised_products import quantised_embedding, quantised_linear
from abele.frontends.poptorch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from abele.frontends.poptorch.errors import (
    Error,
    RecoverableError,
    UnrecoverableError,
    createPoptorchError,
)
from abele.frontends.poptorch.experts import MixtureOfExperts
from abele.frontends.poptorch.fitting import Fit, changes_to_fit, fit
from abele.frontends.poptorch.functions import tensor_parallel
from abele.frontends.poptorch.functions.annotations import Attribute, NameScope
from abele.frontends.poptorch.functions.cached_attention import cached_attention
from abele.frontends.poptorch.functions.custom_ops import CustomOp, custom_op, register_op
from abele.frontends.poptorch.functions.keyed_draws import keyed_uniform
from abele.frontends.poptorch.functions.ops import (
    CPU,
    cond,
    ctc_beam_search_decoder,
    for_loop,
    fps,
    ipu_print_tensor,
    nearest,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_overlap_for_input,
    set_overlap_for_output,
)
from abele.frontends.poptorch.functions.planning_hints import MultiConv, set_available_memory
from abele.frontends.poptorch.functions.quantised import QuantisedEmbedding, QuantisedLinear
from abele.frontends.poptorch.functions.slices import dynamic_slice, dynamic_update
from abele.frontends.poptorch.functions.sparq import sparq_attention
from abele.frontends.poptorch.hugging_face.generation import generate, generating
from abele.frontends.poptorch.loading.accessor import AsynchronousDataAccessor
from abele.frontends.poptorch.loading.data import DataLoader
from abele.frontends.poptorch.logs import set_up, setLogLevel
from abele.frontends.poptorch.models import executor as _poplar_executor
from abele.frontends.poptorch.models.checkpoints import load_checkpoint, save_checkpoint
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.models.exporting import accessAttributes, getIpuTensorId, importPoptorchMetadataFromFile
from abele.frontends.poptorch.models.wrappers import inferenceModel, load, trainingModel
from abele.frontends.poptorch.options import (
    BlockId,
    ConfigFileError,
    Options,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)
from abele.frontends.poptorch.options.environment import ipuHardwareIsAvailable, ipuHardwareVersion
from abele.frontends.poptorch.program import profiling
from abele.frontends.poptorch.program.blocks import BeginBlock, Block, BlockFunction, module_repr, removeBlocks
from abele.frontends.poptorch.program.blocks import print_with_blocks as print
from abele.frontends.poptorch.program.losses import identity_loss
from abele.frontends.poptorch.program.recording import isRunningOnIpu, registerPostCompileHook, registerPreCompileHook
from abele.frontends.poptorch.resident import Loop, ProgramState, ResidentPrograms, programs
from abele.frontends.poptorch.training import optim
from abele.frontends.poptorch.values.geometric import registerGeometricCustomArgParsers
from abele.frontends.poptorch.values.structures import ICustomArgParser, registerCustomArgParser
from abele.frontends.poptorch.version import __version__

set_up()

__all__ = [
    "CPU",
    "AsynchronousDataAccessor",
    "Attribute",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "BlockId",
    "CommGroupType",
    "ConfigFileError",
    "ConnectionType",
    "CustomOp",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "Fit",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "Liveness",
    "Loop",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MixtureOfExperts",
    "MultiConv",
    "MultiConvPlanType",
    "NameScope",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "ProgramState",
    "QuantisedEmbedding",
    "QuantisedLinear",
    "RecoverableError",
    "ReductionType",
    "ResidentPrograms",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "__version__",
    "_impl",
    "_logging",
    "_poplar_executor",
    "accessAttributes",
    "cached_attention",
    "changes_to_fit",
    "cond",
    "createPoptorchError",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "enums",
    "experts",
    "fit",
    "for_loop",
    "fp8",
    "fps",
    "generate",
    "generating",
    "getIpuTensorId",
    "identity_loss",
    "importPoptorchMetadataFromFile",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "keyed_uniform",
    "load",
    "load_checkpoint",
    "module_repr",
    "nearest",
    "nop",
    "optim",
    "options",
    "poptorch_core",
    "print",
    "profiling",
    "programs",
    "quantised_embedding",
    "quantised_linear",
    "recomputationCheckpoint",
    "registerCustomArgParser",
    "registerGeometricCustomArgParsers",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "register_op",
    "removeBlocks",
    "save_checkpoint",
    "serializedMatMul",
    "setLogLevel",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "sparq_attention",
    "sparse",
    "tensor_parallel",
    "testing",
    "trainingModel",
    "unit_scaling",
]
