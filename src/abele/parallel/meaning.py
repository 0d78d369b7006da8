"""Evaluation of networks in NumPy: the slow, plain meaning that lowerings are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from abele.parallel.network import Network, NetworkOp, OpBlock, Value
from abele.parallel.registry import Array, rule_of


class Interpreter:
    """Runs ops on arrays.

    Args:
        precise: True to compute floating-point values in 64 bits; otherwise in the type of each value.
    """

    def __init__(self, *, precise: bool = True) -> None:
        self.precise = precise

    def block(self, block: OpBlock, arguments: Sequence[npt.ArrayLike]) -> list[Array]:
        """The results of a block.

        Args:
            block: What to run.
            arguments: An array for each parameter.
        """
        values: dict[Value, Array] = {}
        for value, array in zip(block.parameters, arguments, strict=True):
            self.put(values, value, array)
        self.ops(block.ops, values)
        return [values[v] for v in block.results]

    def ops(self, ops: Iterable[NetworkOp], values: dict[Value, Array]) -> None:
        """Run ops in order; what they make is added to ``values``."""
        for op in ops:
            results = rule_of(op).interpret(self, op, [values[v] for v in op.inputs])
            for value, array in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=True):
                self.put(values, value, array)

    def put(self, values: dict[Value, Array], value: Value, array: npt.ArrayLike) -> None:
        """Let ``value`` be ``array``, in the type in which is computed."""
        wide = self.precise and value.dtype.is_float
        with np.errstate(invalid="ignore", over="ignore"):
            values[value] = np.asarray(array).astype(np.float64 if wide else value.dtype.np)
        assert values[value].shape == value.shape, f"{value} got shape {values[value].shape}"


def evaluate(net: Network, feeds: Mapping[Value, npt.ArrayLike], *, precise: bool = True) -> dict[Value, Array]:
    """Every value of a network.

    Args:
        net: The network.
        feeds: Inputs, parameters, buffers, accumulators and the random state.
        precise: True to compute floating-point values in 64 bits; otherwise in the type of each value.

    Returns:
        The array of every value.
    """
    run, values = Interpreter(precise=precise), dict[Value, Array]()
    for value, array in feeds.items():
        run.put(values, value, array)
    run.ops(net.ops, values)
    return values
