"""Files of weights and block formats, as NumPy arrays."""

from abele.weights.files import open_weights
from abele.weights.quantised import SCHEMES, QuantisedMatrix, dequantise, quantise
from abele.weights.stored import StoredTensor, WeightFile
from abele.weights.writing import write_safetensors

__all__ = [
    "SCHEMES",
    "QuantisedMatrix",
    "StoredTensor",
    "WeightFile",
    "dequantise",
    "open_weights",
    "quantise",
    "write_safetensors",
]
