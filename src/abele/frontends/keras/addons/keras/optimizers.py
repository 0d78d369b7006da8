"""``ipu_tensorflow_addons.keras.optimizers``: Adam, LAMB and SGD whose state has types of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from abele.frontends.keras.private import backend, keras

ops = keras.ops

_Type = Any
"""A type of Keras, a function that gives one for a variable, or None for the variable's."""


def _type_for(dtype: _Type, variable: Any) -> str:
    found = dtype(variable) if callable(dtype) and not hasattr(dtype, "name") else dtype
    return str(backend.standardize_dtype(found if found is not None else variable.dtype))


class _Typed(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Optimisers with slots of types of their own, which are computed in the variable's type."""

    def _slots(self, variables: Sequence[Any], name: str, dtype: _Type) -> list[Any]:
        return [
            self.add_variable(
                shape=v.shape, dtype=_type_for(dtype, v), name=f"{v.path.replace('/', '_')}_{name}", initializer="zeros"
            )
            for v in variables
        ]

    def _keep(self, slot: Any, value: Any) -> Any:
        self.assign(slot, ops.cast(value, slot.dtype))
        return value


class AdamIpuOptimizer(_Typed):
    """Adam.

    Args:
        learning_rate: Rate, or a schedule.
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the mean of their squares.
        epsilon: Added to the root of the second.
        amsgrad: Not supported by the IPU's optimiser.
        name: Name of the optimiser.
        m_dtype: Type of the first mean.
        v_dtype: Type of the second.
        vhat_dtype: Not used.
        debiasing: True to correct both for their start at zero.
        outline_apply_gradients: Not used: equal updates are lowered once.
        optimizer_compute_precisions: Not used.
        **kwargs: As of ``keras.optimizers.Optimizer``.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "adam_ipu",
        m_dtype: _Type = None,
        v_dtype: _Type = None,
        vhat_dtype: _Type = None,
        debiasing: bool = True,
        outline_apply_gradients: bool = False,
        optimizer_compute_precisions: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if amsgrad:
            raise ValueError("AdamIpuOptimizer has no amsgrad; keras.optimizers.Adam has")
        self.beta_1, self.beta_2, self.epsilon, self.debiasing = beta_1, beta_2, epsilon, debiasing
        self.m_dtype, self.v_dtype = m_dtype, v_dtype

    def build(self, variables: Any) -> None:
        """Make the means."""
        if self.built:
            return
        super().build(variables)
        self._m = self._slots(variables, "m", self.m_dtype)
        self._v = self._slots(variables, "v", self.v_dtype)

    def _means(self, gradient: Any, variable: Any) -> tuple[Any, Any]:
        number = self._get_variable_index(variable)
        m, v = self._m[number], self._v[number]
        first = self._keep(m, self.beta_1 * ops.cast(m, variable.dtype) + (1 - self.beta_1) * gradient)
        second = self._keep(v, self.beta_2 * ops.cast(v, variable.dtype) + (1 - self.beta_2) * ops.square(gradient))
        if not self.debiasing:
            return first, second
        step = ops.cast(self.iterations + 1, variable.dtype)
        return first / (1 - ops.power(self.beta_1, step)), second / (1 - ops.power(self.beta_2, step))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One step."""
        first, second = self._means(ops.cast(gradient, variable.dtype), variable)
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * first / (ops.sqrt(second) + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        """Numbers that the optimiser was made with."""
        config: dict[str, Any] = super().get_config()
        return config | {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "debiasing": self.debiasing,
        }


class LAMBIpuOptimizer(AdamIpuOptimizer):
    """LAMB: Adam's step, at a rate for each variable that keeps its norm.

    Args:
        learning_rate: Rate, or a schedule.
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the mean of their squares.
        epsilon: Added to the root of the second.
        weight_decay_rate: Part of a variable that is added to its step.
        exclude_from_weight_decay: Names of variables without decay.
        exclude_from_layer_adaptation: Names of variables without a rate of their own.
        name: Name of the optimiser.
        **kwargs: As of :class:`AdamIpuOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "lamb_ipu",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.exclude_from_weight_decay = list(exclude_from_weight_decay or [])
        without = exclude_from_layer_adaptation
        self.exclude_from_layer_adaptation = list(self.exclude_from_weight_decay if without is None else without)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One step."""
        first, second = self._means(ops.cast(gradient, variable.dtype), variable)
        step = first / (ops.sqrt(second) + self.epsilon)
        value = ops.convert_to_tensor(variable)
        if self.weight_decay_rate and not _named(variable, self.exclude_from_weight_decay):
            step = step + self.weight_decay_rate * value
        ratio = ops.cast(1.0, variable.dtype)
        if not _named(variable, self.exclude_from_layer_adaptation):
            long, wide = ops.norm(ops.reshape(value, (-1,))), ops.norm(ops.reshape(step, (-1,)))
            safe = ops.where(wide > 0, wide, ops.ones_like(wide))
            ratio = ops.where(ops.logical_and(long > 0, wide > 0), long / safe, ops.ones_like(long))
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * ratio * step)

    def get_config(self) -> dict[str, Any]:
        """Numbers that the optimiser was made with."""
        config: dict[str, Any] = super().get_config()
        return config | {
            "weight_decay_rate": self.weight_decay_rate,
            "exclude_from_weight_decay": self.exclude_from_weight_decay,
            "exclude_from_layer_adaptation": self.exclude_from_layer_adaptation,
        }


def _named(variable: Any, names: Sequence[str]) -> bool:
    return any(name in variable.path for name in names)


class SGDIpuOptimizer(_Typed):
    """Descent with momentum.

    Args:
        learning_rate: Rate, or a schedule.
        momentum: Part of the last step that is taken again.
        nesterov: True to look ahead.
        name: Name of the optimiser.
        momentum_accum_dtype: Type of the momentum.
        outline_apply_gradients: Not used: equal updates are lowered once.
        optimizer_compute_precisions: Not used.
        **kwargs: As of ``keras.optimizers.Optimizer``.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "sgd_ipu",
        momentum_accum_dtype: _Type = None,
        outline_apply_gradients: bool = False,
        optimizer_compute_precisions: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum, self.nesterov = float(momentum), nesterov
        self.momentum_accum_dtype: Callable[..., Any] | Any = momentum_accum_dtype

    def build(self, variables: Any) -> None:
        """Make the momenta."""
        if self.built:
            return
        super().build(variables)
        self._momenta = self._slots(variables, "momentum", self.momentum_accum_dtype) if self.momentum else []

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One step."""
        gradient = ops.cast(gradient, variable.dtype)
        taken = ops.cast(learning_rate, variable.dtype) * gradient
        if not self.momentum:
            self.assign_sub(variable, taken)
            return
        slot = self._momenta[self._get_variable_index(variable)]
        velocity = self._keep(slot, self.momentum * ops.cast(slot, variable.dtype) - taken)
        self.assign_add(variable, self.momentum * velocity - taken if self.nesterov else velocity)

    def get_config(self) -> dict[str, Any]:
        """Numbers that the optimiser was made with."""
        config: dict[str, Any] = super().get_config()
        return config | {"momentum": self.momentum, "nesterov": self.nesterov}


IpuAdamOptimizer, IpuLAMBOptimizer, IpuSGDOptimizer = AdamIpuOptimizer, LAMBIpuOptimizer, SGDIpuOptimizer
