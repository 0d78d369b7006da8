"""``tf.data``: datasets over NumPy arrays, by TensorFlow's names."""

from __future__ import annotations
