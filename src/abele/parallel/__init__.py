"""Networks and the programs that run and train them: everything between a captured model and the libraries."""

from abele.parallel.meaning import evaluate
from abele.parallel.network import (
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
from abele.parallel.optimisers import Adam, Group, Optimiser, Sgd
from abele.parallel.passes import (
    PassDump,
    Pipeline,
    check_passes,
    checked_passes,
    differentiate,
    inference_pipeline,
    training_pipeline,
)
from abele.parallel.program import NetworkProgram, inference_program, lower_network, training_program
from abele.parallel.schedule import OutputMode, Schedule

__all__ = [
    "Adam",
    "BlockBuilder",
    "Group",
    "Network",
    "NetworkBuilder",
    "NetworkFunction",
    "NetworkOp",
    "NetworkProgram",
    "OpBlock",
    "Optimiser",
    "OutputMode",
    "PassDump",
    "Pipeline",
    "Place",
    "Schedule",
    "Sgd",
    "Stage",
    "Value",
    "check_passes",
    "checked_passes",
    "differentiate",
    "evaluate",
    "inference_pipeline",
    "inference_program",
    "lower_network",
    "parse",
    "training_pipeline",
    "training_program",
    "verify",
]
