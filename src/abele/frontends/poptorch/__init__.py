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

from abele.frontends.poptorch import optim
from abele.frontends.poptorch.data import DataLoader
from abele.frontends.poptorch.enums import (
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    MeanReductionStrategy,
    OutputMode,
    OverlapMode,
    ReductionType,
    SyncPattern,
)
from abele.frontends.poptorch.errors import (
    Error,
    RecoverableError,
    UnrecoverableError,
    createPoptorchError,
)
from abele.frontends.poptorch.executor import PoplarExecutor, isRunningOnIpu
from abele.frontends.poptorch.hardware import ipuHardwareIsAvailable, ipuHardwareVersion
from abele.frontends.poptorch.losses import identity_loss
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.wrappers import inferenceModel, trainingModel

__version__ = "3.4.0+abele"

__all__ = [
    "CommGroupType",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "MeanReductionStrategy",
    "Options",
    "OutputMode",
    "OverlapMode",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SyncPattern",
    "UnrecoverableError",
    "__version__",
    "createPoptorchError",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "optim",
    "trainingModel",
]
