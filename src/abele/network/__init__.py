"""Networks: captured models as an intermediate representation, with its ops, passes, derivatives and optimisers."""

from abele.network.autodiff import differentiate
from abele.network.interpreter import evaluate, evaluate_replicas
from abele.network.ir import (
    BlockBuilder,
    Network,
    NetworkBuilder,
    NetworkFunction,
    NetworkOp,
    OpBlock,
    Place,
    Stage,
    Value,
    parse,
    verify,
)
from abele.network.locations import Locations, TensorLocation
from abele.network.optimisers import (
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    Group,
    Lamb,
    Lars,
    NAdam,
    Optimiser,
    RAdam,
    RmsProp,
    Sgd,
)
from abele.network.passes import PassDump, Pipeline, check_passes, checked_passes, inference_pipeline, training_pipeline
from abele.network.schedule import Anchor, MeanStrategy, OutputMode, PipelineSchedule, Schedule
from abele.network.split import Split

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "Anchor",
    "BlockBuilder",
    "Group",
    "Lamb",
    "Lars",
    "Locations",
    "MeanStrategy",
    "NAdam",
    "Network",
    "NetworkBuilder",
    "NetworkFunction",
    "NetworkOp",
    "OpBlock",
    "Optimiser",
    "OutputMode",
    "PassDump",
    "Pipeline",
    "PipelineSchedule",
    "Place",
    "RAdam",
    "RmsProp",
    "Schedule",
    "Sgd",
    "Split",
    "Stage",
    "TensorLocation",
    "Value",
    "check_passes",
    "checked_passes",
    "differentiate",
    "evaluate",
    "evaluate_replicas",
    "inference_pipeline",
    "parse",
    "training_pipeline",
    "verify",
]
