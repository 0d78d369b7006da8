"""The writer of ONNX models: a network and its weights become a graph of ONNX operators.

A kind of op has one writer, registered with :func:`~abele.frontends.onnx.exporting.graph.writer`; a kind without one is
refused by name, with the line that it comes from.
"""

from abele.frontends.onnx.exporting import control, elementwise, layers, products, rows, views
from abele.frontends.onnx.exporting.graph import WRITERS
from abele.frontends.onnx.exporting.model import export

__all__ = ["WRITERS", "control", "elementwise", "export", "layers", "products", "rows", "views"]
