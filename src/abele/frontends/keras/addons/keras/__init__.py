"""``ipu_tensorflow_addons.keras``."""

from abele.frontends.keras.addons.keras import layers, optimizers

__all__ = ["layers", "optimizers"]
