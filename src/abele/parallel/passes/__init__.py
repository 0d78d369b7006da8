"""Passes: named, small steps from network to network, and the pipelines that they form."""

from abele.parallel.passes.accumulate import Accumulate
from abele.parallel.passes.all_reduce import AllReduce
from abele.parallel.passes.base import BlockPass, Pass, Watch
from abele.parallel.passes.canonicalise import Canonicalise
from abele.parallel.passes.common_subexpressions import CommonSubexpressions
from abele.parallel.passes.dead_code import DeadCode
from abele.parallel.passes.differentiate import Differentiate, differentiate
from abele.parallel.passes.fold_constants import FoldConstants
from abele.parallel.passes.follow import Follow
from abele.parallel.passes.group_convolutions import GroupConvolutions
from abele.parallel.passes.narrow import Narrow
from abele.parallel.passes.optimise import Optimise
from abele.parallel.passes.outline import Outline
from abele.parallel.passes.pipeline import (
    PassDump,
    Pipeline,
    check_passes,
    checked_passes,
    inference_pipeline,
    training_pipeline,
)
from abele.parallel.passes.place import AssignPlaces
from abele.parallel.passes.recompute import Recompute
from abele.parallel.passes.recompute_stages import RecomputeStages
from abele.parallel.passes.spread import InsertTransfers
from abele.parallel.passes.stages import AssignStages

__all__ = [
    "Accumulate",
    "AllReduce",
    "AssignPlaces",
    "AssignStages",
    "BlockPass",
    "Canonicalise",
    "CommonSubexpressions",
    "DeadCode",
    "Differentiate",
    "FoldConstants",
    "Follow",
    "GroupConvolutions",
    "InsertTransfers",
    "Narrow",
    "Optimise",
    "Outline",
    "Pass",
    "PassDump",
    "Pipeline",
    "Recompute",
    "RecomputeStages",
    "Watch",
    "check_passes",
    "checked_passes",
    "differentiate",
    "inference_pipeline",
    "training_pipeline",
]
