"""``poptorch.optim``: PyTorch's optimisers with the device's extra options.

No code of theirs runs: what a step does is compiled (:mod:`abele.network.optimisers`), and their numbers are read when
a model is compiled or ``setOptimizer`` is called.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch

from abele.frontends.poptorch import logs
from abele.frontends.poptorch.errors import CheckError, Error


class OptimizerStateError(Error, ValueError):
    """A state that no optimiser on the device can take over."""


class VariableAttributes:
    """Hyper-parameters that may change through ``setOptimizer`` without recompiling."""

    def __init__(self, variable_attributes: Iterable[str], allowed_attributes: Iterable[str]) -> None:
        self._variable_attributes = list(variable_attributes)
        self._allowed_attributes = list(allowed_attributes)

    def isConstant(self, attr: str) -> bool:
        """True if ``attr`` is compiled into the program."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Compile ``attr`` into the program."""
        if attr not in self._allowed_attributes:
            raise CheckError(
                f"Unknown attribute {attr}, allowed values: {self._allowed_attributes}",
            )
        self._variable_attributes = [a for a in self._variable_attributes if a != attr]

    def markAsVariable(self, attr: str) -> None:
        """Keep ``attr`` on the device, where ``setOptimizer`` can change it."""
        self.markAsConstant(attr)
        self._variable_attributes.append(attr)


class DeviceState(Protocol):
    """The state of an optimiser on the device, under PopTorch's names."""

    session: Any

    def read(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """State of the optimiser beside parameters, and the numbers in use."""

    def write(
        self, state: Mapping[str, torch.Tensor], numbers: Mapping[str, torch.Tensor], optimiser: torch.optim.Optimizer
    ) -> None:
        """Take over the state, and the numbers of ``optimiser``; until a run, all reads as it was given."""

    def note_run(self) -> None:
        """The model ran, or was given the numbers of another optimiser: nothing reads as it was given."""


State = dict[str, torch.Tensor]
LOSS_SCALE, LOSS_FACTOR = "lossScaling_FLOAT", "lossScaleUpdateFactor_FLOAT"
"""Names of the loss's factor, and of the part of it that follows gradients by itself."""


class Optimizer:
    """Mixin of PopTorch's optimisers: attributes given to the constructor are variable, the others constant.

    Attributes:
        variable_attrs: Hyper-parameters that may change.
        loss_scaling: Factor of the loss; updates see gradients without it.
    """

    own_attributes: tuple[str, ...] = ()
    variable_attrs: VariableAttributes
    loss_scaling: float
    max_grad_norm: float
    ipu_state: State | None = None
    ipu_param: State | None = None
    _device: DeviceState | None = None

    def _set_up(
        self, given: Mapping[str, Any], *, types: Mapping[str, torch.dtype | None], **own: tuple[Any, Any]
    ) -> None:
        """Keep what PyTorch's class has no place for.

        Args:
            given: Every attribute that may be variable, None where it was not given.
            types: Element types of what is kept, None where they were not given.
            own: Value and default of each further attribute.
        """
        for name, kind in types.items():
            if kind not in (None, torch.float16, torch.float32):
                raise CheckError(f"{name} must be one of torch.float16 or torch.float32, not {kind}")
            setattr(self, name, torch.float32 if kind is None else kind)
        for name, (value, default) in own.items():
            setattr(self, name, default if value is None else value)
        self.variable_attrs = VariableAttributes((k for k, v in given.items() if v is not None), given)
        self.own_attributes = (*types, *own, "variable_attrs")

    # --- state ---------------------------------------------------------------------------------------------------

    def has_state(self) -> bool:
        """True if there is state to save."""
        return self._device is not None or self.ipu_state is not None

    def state_dict(self) -> dict[str, Any]:
        """PyTorch's part, and ``ipu_state`` and ``ipu_param``: state and numbers on the device, by name.

        Both are None before the model is compiled.
        """
        found: dict[str, Any] = super().state_dict()  # type: ignore[misc]
        self.refresh_state()
        return {**found, "ipu_state": self.ipu_state, "ipu_param": self.ipu_param}

    def refresh_state(self) -> None:
        """Copy the state from the device."""
        if self._device is not None:
            self.ipu_state, self.ipu_param = self._device.read()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state that :meth:`state_dict` gave: at once, or when the model is compiled.

        Raises:
            OptimizerStateError: It is empty, or of an optimiser that did not run on the device.
        """
        if not {"ipu_state", "ipu_param"} <= set(state_dict):
            raise OptimizerStateError("Only IPU optimizer states can be loaded onto the IPU.")
        state, numbers = state_dict["ipu_state"], state_dict["ipu_param"]
        if state is None or numbers is None:
            raise OptimizerStateError("Cannot load optimizer state dictionary because it is empty.")
        rest = {key: value for key, value in state_dict.items() if key not in ("ipu_state", "ipu_param")}
        super().load_state_dict(rest)  # type: ignore[misc]
        self.ipu_state, self.ipu_param = copy.deepcopy(state), copy.deepcopy(numbers)
        if LOSS_SCALE in numbers and not self.variable_attrs.isConstant("loss_scaling"):
            self.loss_scaling = float(numbers[LOSS_SCALE]) / float(state.get(LOSS_FACTOR, 1.0))
        self._write_loaded()

    def _write_loaded(self) -> None:
        if self._device is not None and self.ipu_state is not None and self.ipu_param is not None:
            self._device.write(self.ipu_state, self.ipu_param, self)  # type: ignore[arg-type]

    def attach_state(self, device: DeviceState) -> None:
        """Put the state on a device from now on; state loaded before goes there."""
        self._device = device
        self._write_loaded()

    def detach_state(self, *, keep: bool) -> None:
        """The device goes, and its state is kept here; or another optimiser goes on with its state."""
        if keep:
            self.refresh_state()
        else:
            self.ipu_state = self.ipu_param = None
        self._device = None

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, with the attributes that PyTorch's own optimisers do not have."""
        self.refresh_state()
        state: Any = super().__getstate__()
        own = (*self.own_attributes, "own_attributes", "ipu_state", "ipu_param")
        return {**state, **{name: self.__dict__[name] for name in own if name in self.__dict__}}


def _given(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that were given, and ``defaults`` for others."""
    return {**defaults, **{name: value for name, value in values.items() if value is not None}}


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent; arguments as PyTorch's, and:

    Args:
        params: Parameters, or groups of them.
        loss_scaling: Factor of the loss, for gradients in float16.
        velocity_scaling: Factor of the momentum as it is stored; with ``use_combined_accum`` only.
        use_combined_accum: True if one tensor is the momentum and takes up gradients.
        accum_type: Type of sums of gradients over micro-batches.
        velocity_accum_type: Type of the momentum.
        max_grad_norm: Gradients of all parameters together are shrunk to this norm; None for as they are.
    """

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        given = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, **_given({}, given | {"foreach": foreach, "differentiable": differentiable}))
        combined = bool(use_combined_accum)
        if velocity_scaling is not None and not combined:
            logs.warn("velocity_scaling is ignored unless use_combined_accum is True")
        if combined and velocity_accum_type is not None and accum_type not in (None, velocity_accum_type):
            raise CheckError("accum_type and velocity_accum_type must be equal with use_combined_accum=True")
        self._set_up(
            given | {"loss_scaling": loss_scaling, "velocity_scaling": velocity_scaling if combined else None},
            types={"accum_type": accum_type, "velocity_accum_type": velocity_accum_type},
            loss_scaling=(loss_scaling, 1.0),
            velocity_scaling=(velocity_scaling, 1.0),
            use_combined_accum=(use_combined_accum, False),
            max_grad_norm=(max_grad_norm, float("inf")),
        )


class Adam(Optimizer, torch.optim.Adam):
    """Adam; arguments as PyTorch's, and:

    Args:
        params: Parameters, or groups of them.
        loss_scaling: Factor of the loss, for gradients in float16.
        accum_type: Type of sums of gradients over micro-batches.
        first_order_momentum_accum_type: Type of the mean of gradients.
        second_order_momentum_accum_type: Type of the mean of their squares.
        max_grad_norm: Gradients of all parameters together are shrunk to this norm; None for as they are.
    """

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        check_amsgrad(amsgrad)
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        passed = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused}
        super().__init__(params, **_given({}, given | passed))
        self._set_up(
            given | {"loss_scaling": loss_scaling},
            types={
                "accum_type": accum_type,
                "first_order_momentum_accum_type": first_order_momentum_accum_type,
                "second_order_momentum_accum_type": second_order_momentum_accum_type,
            },
            loss_scaling=(loss_scaling, 1.0),
            max_grad_norm=(max_grad_norm, float("inf")),
        )


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay; arguments as :class:`Adam`'s, and:

    Args:
        params: Parameters, or groups of them.
        bias_correction: True if means are corrected for their start at 0.
    """

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        check_amsgrad(amsgrad)
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        passed = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused}
        super().__init__(params, **_given({}, given | passed))
        self._set_up(
            given | {"loss_scaling": loss_scaling},
            types={
                "accum_type": accum_type,
                "first_order_momentum_accum_type": first_order_momentum_accum_type,
                "second_order_momentum_accum_type": second_order_momentum_accum_type,
            },
            loss_scaling=(loss_scaling, 1.0),
            bias_correction=(bias_correction, True),
            max_grad_norm=(max_grad_norm, float("inf")),
        )


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop; arguments as PyTorch's, and:

    Args:
        params: Parameters, or groups of them.
        loss_scaling: Factor of the loss, for gradients in float16.
        accum_type: Type of sums of gradients over micro-batches.
        first_order_momentum_accum_type: Type of the mean of gradients, and of the momentum.
        second_order_momentum_accum_type: Type of the mean of their squares.
        use_tf_variant: True to add ``eps`` under the root.
    """

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        use_tf_variant: bool | None = None,
    ) -> None:
        given = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, **_given({}, given | {"foreach": foreach, "differentiable": differentiable}))
        self._set_up(
            given | {"loss_scaling": loss_scaling},
            types={
                "accum_type": accum_type,
                "first_order_momentum_accum_type": first_order_momentum_accum_type,
                "second_order_momentum_accum_type": second_order_momentum_accum_type,
            },
            loss_scaling=(loss_scaling, 1.0),
            use_tf_variant=(use_tf_variant, False),
        )


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments, by You et al. (2020): the steps of AdamW, as long as the layer's weights allow.

    Args:
        params: Parameters, or groups of them.
        lr: Learning rate.
        betas: Of the means of gradients and of their squares.
        eps: Added to the root.
        weight_decay: Decoupled.
        bias_correction: True if means are corrected for their start at 0.
        loss_scaling: Factor of the loss, for gradients in float16.
        max_weight_norm: Largest norm of a parameter that counts; 65,500 if None.
        accum_type: Type of sums of gradients over micro-batches.
        first_order_momentum_accum_type: Type of the mean of gradients.
        second_order_momentum_accum_type: Type of the mean of their squares.
    """

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "max_weight_norm": max_weight_norm}
        defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0}
        super().__init__(params, _given(defaults, given))
        self._set_up(
            given | {"loss_scaling": loss_scaling},
            types={
                "accum_type": accum_type,
                "first_order_momentum_accum_type": first_order_momentum_accum_type,
                "second_order_momentum_accum_type": second_order_momentum_accum_type,
            },
            loss_scaling=(loss_scaling, 1.0),
            bias_correction=(bias_correction, True),
        )


class LARS(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive rates, by You et al. (2017), in the form of MLPerf: momentum of steps that are as long as the
    norms of a layer's weights and gradient allow. PopTorch has no such optimiser.

    A group may have ``"layerwise": False``, for biases and the scales of norms, which published runs leave out: their
    steps are as long as the learning rate says.

    Args:
        params: Parameters, or groups of them.
        lr: Learning rate.
        momentum: Part of the last step that is kept.
        weight_decay: Added to the gradient, times the parameter; the norms know of it.
        trust_coefficient: Length of a step per norm of the parameter.
        eps: Added to the norm of the gradient.
        layerwise: False for plain momentum.
        loss_scaling: Factor of the loss, for gradients in float16.
        accum_type: Type of sums of gradients over micro-batches.
        velocity_accum_type: Type of the momentum.
        max_grad_norm: Gradients of all parameters together are shrunk to this norm; None for as they are.
    """

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        trust_coefficient: float | None = None,
        eps: float | None = None,
        layerwise: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        given = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "eps": eps,
        }
        defaults = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.0, "trust_coefficient": 1e-3, "eps": 0.0}
        super().__init__(params, _given(defaults | {"layerwise": True}, given | {"layerwise": layerwise}))
        self._set_up(
            given | {"loss_scaling": loss_scaling},
            types={"accum_type": accum_type, "velocity_accum_type": velocity_accum_type},
            loss_scaling=(loss_scaling, 1.0),
            max_grad_norm=(max_grad_norm, float("inf")),
        )


def check_amsgrad(amsgrad: bool | None) -> None:
    """Raise if the AMSGrad variant is asked for.

    Raises:
        ValueError: It is.
    """
    if amsgrad:
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
