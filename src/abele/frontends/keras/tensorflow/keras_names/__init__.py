"""``tf.keras``: Keras 3, and the names of Keras 2 that it lacks."""

from __future__ import annotations
