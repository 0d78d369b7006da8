"""Meanings of strings of plain ops: norms, softmaxes, activation functions, and their gradients."""

from abele.network.recognition.functions import find_functions, find_relu_gradients
from abele.network.recognition.norms import find_norms
from abele.network.recognition.products import find_turned_products
from abele.network.recognition.region import Appender, Emit, Replacements, Uses
from abele.network.recognition.softmaxes import find_softmaxes
from abele.network.recognition.updates import find_single_updates

__all__ = [
    "Appender",
    "Emit",
    "Replacements",
    "Uses",
    "find_functions",
    "find_norms",
    "find_relu_gradients",
    "find_single_updates",
    "find_softmaxes",
    "find_turned_products",
]
