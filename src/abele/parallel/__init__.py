"""Networks and the programs that run and train them: everything between a captured model and the libraries."""

from abele.parallel.autodiff import differentiate
from abele.parallel.network import Network, Op, Value
from abele.parallel.optimisers import Adam, Group, Optimiser, Sgd
from abele.parallel.program import NetworkProgram, inference_program, training_program
from abele.parallel.registry import evaluate
from abele.parallel.schedule import OutputMode, Schedule

__all__ = [
    "Adam",
    "Group",
    "Network",
    "NetworkProgram",
    "Op",
    "Optimiser",
    "OutputMode",
    "Schedule",
    "Sgd",
    "Value",
    "differentiate",
    "evaluate",
    "inference_program",
    "training_program",
]
