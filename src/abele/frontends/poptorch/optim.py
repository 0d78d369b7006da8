"""``poptorch.optim``: PyTorch's optimisers with the device's extra options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.errors import CheckError


class VariableAttributes:
    """Which hyper-parameters may change through ``setOptimizer`` without recompiling."""

    def __init__(self, variable: Iterable[str], allowed: Iterable[str]) -> None:
        self._variable = set(variable)
        self._allowed = set(allowed)

    def isConstant(self, attribute: str) -> bool:
        """True if ``attribute`` is compiled into the program."""
        self._check(attribute)
        return attribute not in self._variable

    def markAsConstant(self, attribute: str) -> None:
        """Compile ``attribute`` into the program."""
        self._check(attribute)
        self._variable.discard(attribute)

    def markAsVariable(self, attribute: str) -> None:
        """Keep ``attribute`` on the device, where ``setOptimizer`` can change it."""
        self._check(attribute)
        self._variable.add(attribute)

    def _check(self, attribute: str) -> None:
        if attribute not in self._allowed:
            raise CheckError(f"Unknown attribute {attribute!r}", remedy=", ".join(sorted(self._allowed)))


class Optimizer:
    """Mixin of PopTorch's optimisers: attributes given to the constructor are variable, the others constant."""

    variable_attrs: VariableAttributes
    loss_scaling: float

    def _set_up(self, given: Mapping[str, Any], loss_scaling: float) -> None:
        if loss_scaling != 1.0:
            raise InvalidOptionError("loss_scaling does not exist here yet", remedy="leave it at 1.0")
        self.loss_scaling = loss_scaling
        self.variable_attrs = VariableAttributes((k for k, v in given.items() if v is not None), given)

    def __getstate__(self) -> dict[str, Any]:
        """What pickling keeps: also what PyTorch's own optimisers do not have."""
        state: Any = super().__getstate__()
        return {**state, **{name: self.__dict__[name] for name in _OWN if name in self.__dict__}}


_OWN = ("variable_attrs", "loss_scaling", "bias_correction")


def _given(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """``defaults`` with those of ``values`` that were given."""
    return {name: default if values[name] is None else values[name] for name, default in defaults.items()}


def _check_accumulation(accum_type: torch.dtype | None) -> None:
    if accum_type not in (None, torch.float32):
        raise InvalidOptionError(f"accumulators are torch.float32 here, not {accum_type}")


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent; arguments as PyTorch's, state is kept in float32."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        loss_scaling: float = 1.0,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        use_combined_accum: bool = False,
    ) -> None:
        _check_accumulation(accum_type)
        _check_accumulation(velocity_accum_type)
        given = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        defaults = {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0}
        torch.optim.SGD.__init__(
            self, params, nesterov=bool(nesterov), maximize=bool(maximize), **_given(defaults, given)
        )
        self._set_up(given, loss_scaling)


_ADAM_DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}


class Adam(Optimizer, torch.optim.Adam):
    """Adam; arguments as PyTorch's, state is kept in float32."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        loss_scaling: float = 1.0,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        check_amsgrad(amsgrad)
        for kind in (accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type):
            _check_accumulation(kind)
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        torch.optim.Adam.__init__(self, params, maximize=bool(maximize), **_given(_ADAM_DEFAULTS, given))
        self._set_up(given, loss_scaling)


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay; arguments as PyTorch's, state is kept in float32."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        loss_scaling: float = 1.0,
        bias_correction: bool = True,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        check_amsgrad(amsgrad)
        for kind in (accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type):
            _check_accumulation(kind)
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        defaults = {**_ADAM_DEFAULTS, "weight_decay": 1e-2}
        torch.optim.AdamW.__init__(self, params, maximize=bool(maximize), **_given(defaults, given))
        self.bias_correction = bias_correction
        self._set_up(given, loss_scaling)


def check_amsgrad(amsgrad: bool | None) -> None:
    """Raise if the AMSGrad variant is asked for.

    Raises:
        ValueError: It is.
    """
    if amsgrad:
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
