"""Names of Keras that are private to it: all that the front end uses, in one place, and pinned by a test.

A version of Keras that renames one fails here, at import, and not in the middle of ``fit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.frontends.keras.backend import require_jax_backend

keras = require_jax_backend()

from keras.src import backend, callbacks, tree  # noqa: E402
from keras.src.backend.common import global_state  # noqa: E402
from keras.src.backend.common.stateless_scope import in_stateless_scope  # noqa: E402
from keras.src.backend.common.symbolic_scope import in_symbolic_scope  # noqa: E402
from keras.src.layers import BatchNormalization  # noqa: E402
from keras.src.models.functional import Functional  # noqa: E402
from keras.src.models.model import Model  # noqa: E402
from keras.src.models.sequential import Sequential  # noqa: E402
from keras.src.ops.node import Node  # noqa: E402
from keras.src.ops.operation import Operation  # noqa: E402
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer  # noqa: E402
from keras.src.random import seed_generator  # noqa: E402
from keras.src.trainers import data_adapters  # noqa: E402
from keras.src.trainers.data_adapters import data_adapter_utils, get_data_adapter  # noqa: E402
from keras.src.trainers.data_adapters.array_slicing import train_validation_split  # noqa: E402
from keras.src.trainers.data_adapters.data_adapter import DataAdapter  # noqa: E402
from keras.src.trainers.trainer import Trainer  # noqa: E402
from keras.src.utils import module_utils  # noqa: E402
from keras.src.utils.jax_utils import is_in_jax_tracing_scope  # noqa: E402
from keras.src.utils.naming import auto_name  # noqa: E402

CallbackList = callbacks.CallbackList
unpack = data_adapter_utils.unpack_x_y_sample_weight
class_weights = data_adapter_utils.class_weight_to_sample_weights

Variable = backend.Variable
"""Keras' variables on JAX; their array is the attribute ``_value``."""

__all__ = [
    "BatchNormalization",
    "CallbackList",
    "DataAdapter",
    "Functional",
    "LossScaleOptimizer",
    "Model",
    "Node",
    "Operation",
    "Sequential",
    "Trainer",
    "Variable",
    "auto_name",
    "backend",
    "class_weights",
    "data_adapters",
    "get_data_adapter",
    "global_state",
    "in_stateless_scope",
    "in_symbolic_scope",
    "is_in_jax_tracing_scope",
    "keras",
    "module_utils",
    "seed_generator",
    "train_validation_split",
    "tree",
    "unpack",
]


def build_for(model: Any, batch: Any) -> None:
    """Make all variables of a model, its metrics and its optimiser, for a batch."""
    model._symbolic_build(data_batch=batch)


def build_layers(model: Any, x: Any) -> None:
    """Make the variables of a model alone, for inputs."""
    backend.compute_output_spec(model, tree.map_structure(lambda t: backend.KerasTensor(t.shape, t.dtype.name), x))


def micro_batch(
    model: Any,
    trainable: Sequence[Any],
    others: Sequence[Any],
    optimiser: Sequence[Any],
    metrics: Sequence[Any],
    data: Any,
) -> tuple[Any, Any, Sequence[Any], Sequence[Any]]:
    """Forward pass, loss and metrics of a micro-batch, to be traced.

    Returns:
        The loss to differentiate, the logs, the new values of other variables and of metrics.
    """
    x, y, weight = unpack(data)
    loss, (unscaled, y_pred, others, metrics) = model.compute_loss_and_updates(
        trainable, others, metrics, x, y, weight, training=True, optimizer_variables=optimiser
    )
    logs, metrics = model._update_metrics_variables(metrics, unscaled, x, y, y_pred, weight)
    return loss, logs, others, metrics
