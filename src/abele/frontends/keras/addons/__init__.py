"""``ipu_tensorflow_addons``: layers and optimisers of the IPU's package, as Keras'."""

from abele.frontends.keras.addons import keras

__version__ = "3.3.0"
"""Version of the SDK whose package this is like."""

__all__ = ["keras"]
