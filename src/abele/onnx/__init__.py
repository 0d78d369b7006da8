"""``from abele import onnx``: ONNX models on the machine that Abele models.

``load("model.onnx")`` gives a model with ``infer``, ``train``, ``session``, ``network`` and ``report``; ``abele onnx
model.onnx`` checks, runs and costs one from the command line.
"""

from abele.frontends.onnx import *  # noqa: F403
from abele.frontends.onnx import __all__ as _names

__all__ = [*_names]
