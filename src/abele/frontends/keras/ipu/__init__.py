"""Modules of IPUs under the names that Keras and TensorFlow programs know.

``from tensorflow.python import ipu``, ``from tensorflow.keras import ipu`` and ``from abele.keras import ipu`` are this
module.
"""

import sys

from abele.frontends.keras.ipu import config, ipu_strategy  # isort: skip
from abele.frontends.keras.addons.keras import layers
from abele.frontends.keras.ipu import (
    dataset_benchmark,
    distributed,
    former,
    gradient_accumulation,
    ipu_compiler,
    ipu_infeed_queue,
    ipu_outfeed_queue,
    loops,
    ops,
    optimizers,
    pipelining_ops,
    scopes,
    utils,
)
from abele.frontends.keras.ipu.enums import ReplicatedMetricReductionMethod
from abele.frontends.keras.ipu.ops import (
    all_to_all_op,
    cross_replica_ops,
    custom_ops,
    embedding_ops,
    functional_ops,
    image_ops,
    internal_ops,
    math_ops,
    nn_ops,
    rand_ops,
    reduce_scatter_op,
    replication_ops,
    statistics_ops,
    within_replica_ops,
)
from abele.frontends.keras.model.assignment import LayerPipelineStageAssignment
from abele.frontends.keras.model.scopes import PipelineStage

keras = sys.modules[__name__]
"""``tensorflow.python.ipu.keras``, where programs of older SDKs find layers, optimisers and stages."""

FunctionalLayerPipelineStageAssignment = LayerPipelineStageAssignment
FunctionalNestedModelPipelineStageAssignment = LayerPipelineStageAssignment
ModelLayerPipelineStageAssignment = LayerPipelineStageAssignment
NestedModelPipelineStageAssignment = LayerPipelineStageAssignment
horovod = distributed
globals().update(former.MODULES)

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "LayerPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "all_to_all_op",
    "config",
    "cross_replica_ops",
    "custom_ops",
    "dataset_benchmark",
    "distributed",
    "embedding_ops",
    "functional_ops",
    "gradient_accumulation",
    "horovod",
    "image_ops",
    "internal_ops",
    "ipu_compiler",
    "ipu_infeed_queue",
    "ipu_outfeed_queue",
    "ipu_strategy",
    "layers",
    "loops",
    "math_ops",
    "nn_ops",
    "ops",
    "optimizers",
    "pipelining_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "scopes",
    "statistics_ops",
    "utils",
    "within_replica_ops",
]
