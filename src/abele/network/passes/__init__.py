"""Passes: named, small steps from network to network, and the pipelines that they form."""

from abele.network.passes.accumulate import Accumulate
from abele.network.passes.all_reduce import AllReduce
from abele.network.passes.base import BlockPass, Pass, Watch
from abele.network.passes.canonicalise import Canonicalise
from abele.network.passes.common_subexpressions import CommonSubexpressions
from abele.network.passes.dead_code import DeadCode
from abele.network.passes.differentiate import Differentiate
from abele.network.passes.fold_constants import FoldConstants
from abele.network.passes.follow import Follow
from abele.network.passes.group_convolutions import GroupConvolutions
from abele.network.passes.join_casts import JoinCasts
from abele.network.passes.narrow import Narrow
from abele.network.passes.optimise import Optimise
from abele.network.passes.outline import Outline
from abele.network.passes.pipeline import (
    PassDump,
    Pipeline,
    check_passes,
    checked_passes,
    inference_pipeline,
    training_pipeline,
)
from abele.network.passes.place import AssignPlaces
from abele.network.passes.recompute import Recompute
from abele.network.passes.recompute_stages import RecomputeStages
from abele.network.passes.share_convolutions import ShareConvolutions
from abele.network.passes.sparse_updates import SparseUpdates
from abele.network.passes.spread import InsertTransfers
from abele.network.passes.stages import AssignStages

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
    "JoinCasts",
    "Narrow",
    "Optimise",
    "Outline",
    "Pass",
    "PassDump",
    "Pipeline",
    "Recompute",
    "RecomputeStages",
    "ShareConvolutions",
    "SparseUpdates",
    "Watch",
    "check_passes",
    "checked_passes",
    "inference_pipeline",
    "training_pipeline",
]
