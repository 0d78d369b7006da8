"""``pipelining_ops``: options of pipelines; pipelines themselves are those of Keras models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax

from abele.errors import UnsupportedOpError
from abele.frontends.keras.ipu.enums import PipelineSchedule, RecomputationMode

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "pipeline",
    "recomputation_checkpoint",
]


@dataclass(frozen=True)
class PipelineStageOptions:
    """Options of libraries for one stage.

    Attributes:
        convolution_options: Of convolutions, under PopLibs' names.
        matmul_options: Of matrix products.
        slice_options: Of slices; recorded alone.
    """

    convolution_options: dict[str, Any] = field(default_factory=dict)
    matmul_options: dict[str, Any] = field(default_factory=dict)
    slice_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerFunctionOutput:
    """Result of the optimiser function of a pipeline of TensorFlow 1."""

    opt: Any
    loss: Any
    compute_gradients_args: Any = None
    compute_gradients_kwargs: Any = None
    apply_gradients_args: Any = None
    apply_gradients_kwargs: Any = None
    variables: Any = None
    tape: Any = None
    gradient_capture_context: Any = None
    captured_gradient_outputs: Any = None


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Tensors that backward stages keep, where they compute others again."""
    from abele.frontends.keras.ipu.ops.primitives import KEEP

    return jax.tree.map(KEEP.bind, tensors)


def pipeline(*args: Any, **kwargs: Any) -> Any:
    """Refused: a pipeline of functions, as in TensorFlow 1.

    Raises:
        UnsupportedOpError: Always.
    """
    raise UnsupportedOpError(
        "pipelines of functions are not built",
        remedy="a Keras model with PipelineStage(n) scopes, set_pipelining_options and fit()",
    )
