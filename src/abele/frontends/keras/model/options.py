"""Options that the methods of a model set: accumulation, pipelining, replication, queues, callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from abele.errors import InvalidOptionError, nearest
from abele.frontends.keras.ipu.enums import (
    GradientAccumulationReductionMethod,
    PipelineSchedule,
    ReplicatedMetricReductionMethod,
)
from abele.numerics import ElementType, as_element_type, f16, f32

E = TypeVar("E", bound=Enum)


def member(kind: type[E], value: Any, name: str) -> E:
    """A member of an enumeration, from itself or its name in any case.

    Raises:
        InvalidOptionError: Neither.
    """
    if isinstance(value, kind):
        return value
    found = {m.name.lower(): m for m in kind}.get(str(value).lower().rpartition(".")[2])
    if found is None:
        raise InvalidOptionError(f"{name} is one of {', '.join(m.name for m in kind)}, not {value!r}")
    return found


def positive(value: Any, name: str, most: int | None = None) -> int:
    """A positive whole number.

    Raises:
        InvalidOptionError: Not one, or more than ``most``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        raise InvalidOptionError(f"{name} is a whole number from 1{f' to {most}' if most else ' on'}, not {value!r}")
    return value


_REFUSED: dict[str, Mapping[str, str]] = {
    "set_gradient_accumulation_options": {
        "opt": "the optimizer is that of compile()",
        "optimizer": "the optimizer is that of compile()",
        "num_mini_batches": "it is gradient_accumulation_steps_per_replica here",
        "gradient_accumulation_count": "it is gradient_accumulation_steps_per_replica here",
        "experimental_normalize_gradients": "it was removed: gradient_accumulation_reduction_method='mean'",
    },
    "set_pipelining_options": {
        "gradient_accumulation_count": "it is gradient_accumulation_steps_per_replica here",
        "experimental_normalize_gradients": "it was removed: gradient_accumulation_reduction_method='mean'",
    }
    | dict.fromkeys(
        (
            "computational_stages",
            "batch_serialization_iterations",
            "repeat_count",
            "inputs",
            "infeed_queue",
            "outfeed_queue",
            "optimizer_function",
            "outfeed_loss",
            "outfeed_mask",
            "name",
            "reduction_method",
            "device_mapping_per_stage",
        ),
        "the model sets it",
    ),
    "set_infeed_queue_options": {"dataset": "it is the data of fit()", "device_ordinal": "the strategy sets it"},
    "set_outfeed_queue_options": {"outfeed_mode": "the model sets it", "device_ordinal": "the strategy sets it"},
}
"""Arguments that others set, by method, and what to do in place of giving them."""

_KNOWN: dict[str, frozenset[str]] = {
    "set_gradient_accumulation_options": frozenset(
        {
            "dtype",
            "offload_weight_update_variables",
            "replicated_optimizer_state_sharding",
            "num_micro_batches_per_replica",
            "name",
        }
    ),
    "set_pipelining_options": frozenset(
        {
            "pipeline_schedule",
            "recomputation_mode",
            "offload_weight_update_variables",
            "replicated_optimizer_state_sharding",
            "offload_activations",
            "offload_weights",
            "offload_gradient_accumulation_buffers",
            "replicated_weight_sharding",
            "gradient_accumulation_dtype",
            "gradient_accumulation_for_captured_grads",
            "forward_propagation_stages_poplar_options",
            "backward_propagation_stages_poplar_options",
            "weight_update_poplar_options",
            "continuous_weight_updates",
        }
    ),
    "set_infeed_queue_options": frozenset({"prefetch_depth", "optimise_latency"}),
    "set_outfeed_queue_options": frozenset({"buffer_depth", "optimise_latency"}),
}


def check_arguments(method: str, given: Mapping[str, Any]) -> None:
    """Raise for arguments that a method does not take.

    Raises:
        InvalidOptionError: One that the model sets, that is called something else, or that does not exist.
    """
    for name in given:
        if name in _REFUSED[method]:
            raise InvalidOptionError(f"{method} does not take {name!r}", because=_REFUSED[method][name])
        if name not in _KNOWN[method]:
            close = nearest(name, _KNOWN[method])
            raise InvalidOptionError(
                f"{method} has no argument {name!r}",
                because=f"there are {', '.join(sorted(_KNOWN[method]))}",
                remedy=f"did you mean {close!r}?" if close else None,
            )


def accumulator_type(value: Any) -> ElementType:
    """Element type of the sums of gradients; f32 for None, and for a function of the variable, which is called with
    none.

    Raises:
        InvalidOptionError: Neither float32 nor float16.
    """
    if value is None or callable(value):
        return f32
    name = getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)
    if name not in ("float32", "float16"):
        raise InvalidOptionError(f"gradients are summed in float32 or float16, not in {name}")
    return f16 if as_element_type(name) == f16 else f32


@dataclass
class ModelOptions:
    """Options of one model, as its methods leave them.

    Attributes:
        accumulation: Micro-batches of an update on each replica; None if not set.
        reduction: Reduction of their gradients.
        accumulator: Element type of sums of gradients.
        pipelined: True once pipelining options were set.
        pipeline_accumulation: As ``accumulation``, for pipelines.
        pipeline_reduction: As ``reduction``, for pipelines.
        pipeline_accumulator: As ``accumulator``, for pipelines.
        device_mapping: IPU of each stage; None for one each.
        accumulate_outfeed: True if logs are means over an update, or over an execution of evaluation.
        schedule: Stages that run at the same time.
        offload_activations: True if activations wait in streaming memory.
        stage_options: For each stage, options of libraries.
        asynchronous: True if batch callbacks are called for every step.
        metric_reduction: Reduction of the metrics of several replicas for the host.
        queues: Depths of queues, recorded alone.
        recorded: Other arguments as given, without an effect.
    """

    accumulation: int | None = None
    reduction: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
    accumulator: ElementType = f32
    pipelined: bool = False
    pipeline_accumulation: int | None = None
    pipeline_reduction: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
    pipeline_accumulator: ElementType = f32
    device_mapping: list[int] | None = None
    accumulate_outfeed: bool = False
    schedule: PipelineSchedule = PipelineSchedule.Grouped
    offload_activations: bool = False
    stage_options: list[Any] | None = None
    asynchronous: bool = False
    metric_reduction: ReplicatedMetricReductionMethod = ReplicatedMetricReductionMethod.NONE
    queues: dict[str, Any] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict)
