"""``from abele import keras``: Keras and TensorFlow 2 on the modelled machine, under the names that programs import.

Programs that say ``import tensorflow as tf`` or ``from tensorflow.python import ipu`` run unchanged, and without
TensorFlow, with ``python -m abele.keras program.py``, or after ``abele.keras.install()``.
"""

from __future__ import annotations

import importlib
from typing import Any

from abele.frontends.keras.tensorflow import install, uninstall
from abele.frontends.keras.tensorflow import tensorflow as _tensorflow

__all__ = ["install", "ipu", "tensorflow", "uninstall"]


def __getattr__(name: str) -> Any:
    if name == "tensorflow":
        return _tensorflow()
    if name == "ipu":
        return importlib.import_module("abele.frontends.keras.ipu")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
