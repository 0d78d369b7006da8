"""``ipu.optimizers`` and ``keras.ipu.optimizers``: optimisers of the IPU's modules, as Keras optimisers."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.frontends.keras.ipu import former
from abele.frontends.keras.private import LossScaleOptimizer, backend, keras

__all__ = [
    "ALSOptimizer",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "IpuOptimizer",
    "LossScaleOptimizer",
    "MapGradientOptimizer",
]

ops = keras.ops
gradient_accumulation_optimizer = former.MODULES["gradient_accumulation_optimizer"]
cross_replica_optimizer = map_gradient_optimizer = sys.modules[__name__]


class IpuOptimizer(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Base of optimisers of the user's own; as Keras'."""


class CrossReplicaOptimizer:
    """An optimiser whose gradients are means over replicas, as those of all models on the device are.

    Args:
        opt: The optimiser; it is what calling this gives.
    """

    def __new__(cls, opt: Any, name: str = "CrossReplicaOptimizer") -> Any:
        """The optimiser itself."""
        return opt


class MapGradientOptimizer:
    """An optimiser of gradients that a function changes first.

    Args:
        wrapped_optimizer: The optimiser; what calling this gives is one of a subclass.
        gradient_mapping_function: Takes a gradient and its variable's value, and gives the gradient.
    """

    def __new__(cls, wrapped_optimizer: Any, gradient_mapping_function: Any, name: str | None = None) -> Any:
        """The optimiser, whose ``apply`` calls the function."""
        kind = type(wrapped_optimizer)

        def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
            of = self._trainable_variables if trainable_variables is None else trainable_variables
            mapped = [gradient_mapping_function(g, v) for g, v in zip(grads, of, strict=True)]
            return kind.apply(self, mapped, trainable_variables)

        wrapped_optimizer.__class__ = type(kind.__name__, (kind,), {"apply": apply, "__module__": kind.__module__})
        return wrapped_optimizer


class GradientAccumulationOptimizer:
    """Refused: accumulation is an option of a model."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused.

        Raises:
            UnsupportedOpError: Always.
        """
        raise UnsupportedOpError(
            "gradients are not accumulated by an optimizer",
            remedy="model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=...)",
        )


class ALSOptimizer(LossScaleOptimizer):  # type: ignore[misc]
    """Loss scaling by a histogram of gradients.

    After every ``update_frequency`` updates the loss scale is divided by ``increase_factor`` if more than a share of
    all gradients has a magnitude above an edge, and multiplied by it otherwise.

    Args:
        opt: The optimiser.
        initial_loss_scaling_factor: The first scale.
        update_frequency: Updates from one change to the next.
        increase_factor: Factor of a change, above 1.
        max_loss_scaling_factor: The largest scale.
        accumulate_statistics_over_update_period: True to count the gradients of all updates of a period, not of the
            last alone.
        ratio_threshold: Share of large gradients above which the scale shrinks.
        captured_grads_only: Gradients of activations are not captured, so it cannot be True.
        lpf_alpha: Weight of older counts in the share, from 0 to below 1.
        histogram_bin_edge: Magnitude from which on a gradient is large.
        replicas_average_op: Not used: gradients are means over replicas.
        name: Name of the optimiser.

    Raises:
        InvalidOptionError: A number out of its range.
    """

    def __init__(
        self,
        opt: Any = None,
        initial_loss_scaling_factor: float = 1,
        update_frequency: int = 8,
        increase_factor: float = 2,
        max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 10e-6,
        captured_grads_only: bool = False,
        lpf_alpha: float = 0.0,
        histogram_bin_edge: float = 2**13,
        replicas_average_op: bool = True,
        name: str = "ALSOptimizer",
        inner_optimizer: Any = None,
        **kwargs: Any,
    ) -> None:
        opt = inner_optimizer if opt is None else opt
        for value, low, what in (
            (initial_loss_scaling_factor, 0, "initial_loss_scaling_factor"),
            (update_frequency, 0, "update_frequency"),
            (increase_factor, 1, "increase_factor"),
            (ratio_threshold, 0, "ratio_threshold"),
            (histogram_bin_edge, 0, "histogram_bin_edge"),
        ):
            if not value > low:
                raise InvalidOptionError(f"{what} is above {low}, not {value!r}")
        if max_loss_scaling_factor < initial_loss_scaling_factor:
            raise InvalidOptionError(
                f"max_loss_scaling_factor {max_loss_scaling_factor} is below the initial one, "
                f"{initial_loss_scaling_factor}"
            )
        if not 0 <= lpf_alpha < 1:
            raise InvalidOptionError(f"lpf_alpha is from 0 to below 1, not {lpf_alpha!r}")
        if captured_grads_only:
            raise InvalidOptionError(
                "gradients of activations are not captured", remedy="captured_grads_only=False: those of weights are"
            )
        super().__init__(opt, initial_scale=float(initial_loss_scaling_factor), name=name)
        self.update_frequency, self.increase_factor = int(update_frequency), float(increase_factor)
        self.max_loss_scaling_factor = float(max_loss_scaling_factor)
        self.accumulates = bool(accumulate_statistics_over_update_period)
        self.ratio_threshold, self.lpf_alpha = float(ratio_threshold), float(lpf_alpha)
        self.histogram_bin_edge = float(histogram_bin_edge)

    def build(self, var_list: Any) -> None:
        """Make the counts beside the inner optimiser's variables."""
        if self.built:
            return
        super().build(var_list)
        # Keras' list of own variables grows behind; the inner ones stay after it.
        self.large = self.add_variable((), name="large", initializer="zeros", dtype="float32")
        self.counted = self.add_variable((), name="counted", initializer="zeros", dtype="float32")
        self.ratio = self.add_variable((), name="ratio", initializer="zeros", dtype="float32")

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """New trainable variables, and new variables of this optimiser."""
        own, inner = optimizer_variables[: len(self._variables)], optimizer_variables[len(self._variables) :]
        mapping = list(zip(self._variables, own, strict=True))
        with backend.StatelessScope(state_mapping=mapping) as scope:
            scale, last = (ops.convert_to_tensor(v) for v in (self.dynamic_scale, self.ratio))
            wide = [ops.cast(g, "float32") for g in grads]
            large = sum(ops.sum(ops.cast(ops.abs(g) >= self.histogram_bin_edge, "float32")) for g in wide)
            size = float(sum(int(g.size) for g in wide))
            if self.accumulates:
                large, every = self.large + large, self.counted + size
            else:
                every = ops.cast(size, "float32")
            steps = ops.cast(self.step_counter + 1, "int32")
            ends = ops.equal(steps, self.update_frequency)
            ratio = self.lpf_alpha * last + (1 - self.lpf_alpha) * large / every
            grown = ops.minimum(scale * self.increase_factor, self.max_loss_scaling_factor)
            shrunk = ops.maximum(scale / self.increase_factor, 1.0)
            moved = ops.where(ratio > self.ratio_threshold, shrunk, grown)
            self.dynamic_scale.assign(ops.where(ends, moved, scale))
            self.ratio.assign(ops.where(ends, ratio, last))
            self.step_counter.assign(ops.where(ends, 0, steps))
            self.large.assign(ops.where(ends, 0.0, large))
            self.counted.assign(ops.where(ends, 0.0, every))
            new_own = [scope.get_current_value(v) for v in self._variables]
        unscaled = [g / scale for g in wide]
        made, new_inner = self.inner_optimizer.stateless_apply(inner, unscaled, trainable_variables)
        return made, [*new_own, *new_inner]

    @property
    def loss_scaling_factor(self) -> Any:
        """The scale as it is now."""
        return self.dynamic_scale

    def get_config(self) -> dict[str, Any]:
        """Everything that the optimiser was made with."""
        config: dict[str, Any] = super().get_config()
        for name in ("initial_scale", "dynamic_growth_steps"):
            config.pop(name, None)
        return config | {
            "initial_loss_scaling_factor": self.initial_scale,
            "update_frequency": self.update_frequency,
            "increase_factor": self.increase_factor,
            "max_loss_scaling_factor": self.max_loss_scaling_factor,
            "accumulate_statistics_over_update_period": self.accumulates,
            "ratio_threshold": self.ratio_threshold,
            "lpf_alpha": self.lpf_alpha,
            "histogram_bin_edge": self.histogram_bin_edge,
        }
