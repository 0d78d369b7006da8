"""Optimisers by the arguments of Keras 2: ``lr``, ``decay``, ``clipnorm``; what they make is Keras 3's."""

from __future__ import annotations

from typing import Any

import keras

_NAMES = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD"]


class _Older(type):
    """Classes whose instances are those of Keras 3's class of the same name."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1]) if "_older" in vars(cls) else super().__instancecheck__(instance)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls.__mro__[1] if "_older" in vars(cls) else cls
        settings = newer_arguments(kwargs)
        return made(*args, **settings) if made is not cls else super().__call__(*args, **settings)


def newer_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Keras 3's arguments for those of Keras 2.

    ``decay`` d makes the rate that of step t divided by 1 + d·t.
    """
    settings = dict(arguments)
    if "lr" in settings:
        settings["learning_rate"] = settings.pop("lr")
    decay = settings.pop("decay", None)
    if decay:
        rate = settings.get("learning_rate", 0.01)
        settings["learning_rate"] = keras.optimizers.schedules.InverseTimeDecay(rate, 1, decay)
    for unused in ("jit_compile", "is_legacy_optimizer"):
        settings.pop(unused, None)
    return settings


OPTIMIZERS = {name: _Older(name, (getattr(keras.optimizers, name),), {"_older": True}) for name in _NAMES}


class LossScaleOptimizer(keras.mixed_precision.LossScaleOptimizer, metaclass=_Older):  # type: ignore[misc]
    """Gradients of a scaled loss, by the arguments of Keras 2.

    Args:
        inner_optimizer: Optimiser of the weights.
        dynamic: False for a scale that does not change.
        initial_scale: The scale at first.
        dynamic_growth_steps: Updates after which the scale is doubled.
    """

    def __init__(
        self,
        inner_optimizer: Any,
        dynamic: bool = True,
        initial_scale: float | None = None,
        dynamic_growth_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        steps = dynamic_growth_steps or 2000
        super().__init__(
            inner_optimizer,
            initial_scale=float(initial_scale or 2**15),
            dynamic_growth_steps=steps if dynamic else 2**31 - 1,
            **kwargs,
        )
