"""Notes on sparse operands for reports: what buckets have room for, and where the words are that say what they hold."""

from __future__ import annotations

import numpy as np

from abele.graph import BucketWords, Graph, SparseNote, concat
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.tensors import SparseViews


def note_operand(graph: Graph, plan: DynamicPlan, sparse: SparseViews) -> None:
    """Note the matrix of some buckets; until a run has words, its values are those that were declared, evenly dealt."""
    layer, words = plan.layer, concat([sparse.info.flatten(), sparse.meta.flatten()])
    variables, block = sparse.values.variables, layer.sparsity.blockDimensions
    cuts = np.arange(plan.num_tiles + 1) * -(-layer.numNonZeroValues // plan.area) // plan.num_tiles
    operand = SparseNote(
        name=variables[0].name if variables else "sparse",
        library="dynamic",
        dtype=plan.dtype.name,
        shape=layer.shape,
        block=block,
        blocks=-(-layer.numNonZeroValues // layer.sparsity.area),
        tile=np.arange(plan.num_tiles, dtype=np.int32),
        values=np.diff(cuts) * plan.area,
        groups=layer.numGroups,
        capacity=plan.nz_slots * plan.area,
        worst_passes=plan.num_cells - 1,
        words=words,
        buckets=BucketWords(plan.info_slots, plan.meta_slots, plan.header, plan.area),
    )
    graph.note_sparse(operand)
