"""``tensorflow_addons``: the names that Keras 3 has taken over; others say that they are missing."""

from __future__ import annotations

import sys
from typing import Any

import keras

from abele.frontends.keras.lookalike import Lookalike
from abele.frontends.keras.tensorflow.keras_names.optimizers import OPTIMIZERS


def _adam_w(weight_decay: Any = 0.004, learning_rate: Any = 0.001, **kwargs: Any) -> Any:
    """``AdamW`` with the decay as first argument, not multiplied by the rate as it is in Keras."""
    rate = float(learning_rate) if not callable(learning_rate) else None
    if rate is None:
        raise NotImplementedError("AdamW of a schedule: keras.optimizers.AdamW(learning_rate, weight_decay)")
    return OPTIMIZERS["AdamW"](learning_rate=rate, weight_decay=weight_decay / rate, **kwargs)


def _instance_norm(**kwargs: Any) -> Any:
    return keras.layers.GroupNormalization(groups=-1, **{"epsilon": 1e-3, **kwargs})


_MODULES: dict[str, dict[str, Any]] = {
    "activations": {
        "gelu": lambda x, approximate=True: keras.activations.gelu(x, approximate),
        "mish": keras.activations.mish,
        "hardshrink": keras.activations.hard_shrink,
        "softshrink": keras.activations.soft_shrink,
        "tanhshrink": keras.activations.tanh_shrink,
    },
    "layers": {
        "GroupNormalization": keras.layers.GroupNormalization,
        "InstanceNormalization": _instance_norm,
        "SpectralNormalization": keras.layers.SpectralNormalization,
        "MultiHeadAttention": keras.layers.MultiHeadAttention,
    },
    "losses": {
        "SigmoidFocalCrossEntropy": lambda alpha=0.25, gamma=2.0, **kwargs: keras.losses.BinaryFocalCrossentropy(
            apply_class_balancing=True, alpha=alpha, gamma=gamma, **kwargs
        ),
    },
    "metrics": {"F1Score": lambda num_classes=None, **kwargs: keras.metrics.F1Score(**kwargs)},
    "optimizers": {"AdamW": _adam_w, "LAMB": keras.optimizers.Lamb, "LazyAdam": OPTIMIZERS["Adam"]},
}
sys.modules[__name__].__dict__.update(
    {name: Lookalike(f"tensorflow_addons.{name}", names) for name, names in _MODULES.items()}
)
__version__ = "0.14.0"
"""The version that goes with TensorFlow 2.6."""
