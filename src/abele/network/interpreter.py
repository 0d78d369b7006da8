"""Evaluation of networks in NumPy: the slow, plain meaning that lowerings are held against."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.network.ir import Network, NetworkOp, OpBlock, Value
from abele.network.registry import rule_of
from abele.numerics import to_device, to_host


class Peers:
    """The replicas of a network that are interpreted together, each by a thread; they meet where ops need all of them.

    Args:
        replicas: Number of replicas.
    """

    def __init__(self, replicas: int) -> None:
        self._given: list[Any] = [None] * replicas
        self._barrier = threading.Barrier(replicas)

    def exchange(self, replica: int, given: Any) -> list[Any]:
        """Values given by all replicas, in order of their numbers."""
        self._given[replica] = given
        self._barrier.wait()
        everyone = list(self._given)
        self._barrier.wait()  # Nobody goes on to the next op before all have read.
        return everyone

    def abandon(self) -> None:
        """Let nobody wait for a replica that has failed."""
        self._barrier.abort()


class Interpreter:
    """Runs ops on arrays.

    Args:
        precise: True to compute floating-point values in 64 bits; otherwise in the type of each value.
        peers: The replicas that are interpreted beside this one; None where all replicas have the same values.
        replica: The number of this one.
    """

    def __init__(self, *, precise: bool = True, peers: Peers | None = None, replica: int = 0) -> None:
        self.precise = precise
        self.peers = peers
        self.replica = replica

    def block(self, block: OpBlock, arguments: Sequence[npt.ArrayLike]) -> list[Array]:
        """The results of a block.

        Args:
            block: Block to run.
            arguments: An array for each parameter.
        """
        values: dict[Value, Array] = {}
        for value, array in zip(block.parameters, arguments, strict=True):
            self.put(values, value, array)
        self.ops(block.ops, values)
        return [values[v] for v in block.results]

    def ops(self, ops: Iterable[NetworkOp], values: dict[Value, Array]) -> None:
        """Run ops in order; their results are added to ``values``."""
        for op in ops:
            results = rule_of(op).interpret(self, op, [values[v] for v in op.inputs])
            for value, array in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=True):
                self.put(values, value, array)

    def put(self, values: dict[Value, Array], value: Value, array: npt.ArrayLike) -> None:
        """Let ``value`` be ``array``, in the type in which is computed."""
        wide, given = self.precise and value.dtype.is_float, np.asarray(array)
        with np.errstate(invalid="ignore", over="ignore"):
            if value.dtype.is_quarter:  # which have scales
                given = to_host(given, value.dtype) if wide else to_device(given, value.dtype)
            values[value] = given.astype(np.float64 if wide else value.dtype.np)
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
    return _evaluated(Interpreter(precise=precise), net, feeds)


def evaluate_replicas(
    net: Network, feeds: Sequence[Mapping[Value, npt.ArrayLike]], *, precise: bool = True
) -> list[dict[Value, Array]]:
    """Every value of a network on each of several replicas, which have inputs and weights of their own.

    Args:
        net: The network.
        feeds: Inputs of each replica, as for :func:`evaluate`.
        precise: True to compute floating-point values in 64 bits; otherwise in the type of each value.

    Returns:
        For each replica the array of every value.

    Raises:
        GraphReplicationError: The replicas do not divide into the groups of an op.
    """
    peers = Peers(len(feeds))

    def one(replica: int) -> dict[Value, Array]:
        try:
            return _evaluated(Interpreter(precise=precise, peers=peers, replica=replica), net, feeds[replica])
        except Exception:
            peers.abandon()
            raise

    with ThreadPoolExecutor(len(feeds)) as threads:
        results = [threads.submit(one, replica) for replica in range(len(feeds))]
    errors = [e for e in (r.exception() for r in results) if e is not None]
    # Those that waited for the one that failed have nothing to say.
    for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return [r.result() for r in results]


def _evaluated(run: Interpreter, net: Network, feeds: Mapping[Value, npt.ArrayLike]) -> dict[Value, Array]:
    values = dict[Value, Array]()
    for value, array in feeds.items():
        run.put(values, value, array)
    run.ops(net.ops, values)
    return values
