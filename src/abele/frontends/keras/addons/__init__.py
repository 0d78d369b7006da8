"""``ipu_tensorflow_addons``: layers and optimisers of the IPU's package, as Keras'."""

from abele.frontends.keras.addons import keras

__all__ = ["keras"]
