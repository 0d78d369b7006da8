"""Products with quantised weights."""

from abele.poplibs.poplin.quantised.product import QuantisedTensor, create_part, dequantise, quantised_matmul

__all__ = ["QuantisedTensor", "create_part", "dequantise", "quantised_matmul"]
