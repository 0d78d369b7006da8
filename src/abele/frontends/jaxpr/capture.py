"""Capturing: a traced function as a network, with a role for each argument and result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends.jaxpr.complex_numbers import without_complex
from abele.frontends.jaxpr.reader import JaxprReader, Random
from abele.frontends.jaxpr.registry import all_missing
from abele.frontends.jaxpr.types import element_type, is_key, type_of
from abele.network import BlockBuilder, Network, NetworkBuilder, Value
from abele.network.ops import build
from abele.numerics import i32
from abele.poplibs.gcl import CommGroup

LARGEST_CONSTANT = 1024
"""Elements of an array that a function closes over and that becomes a constant of the network; larger arrays of floats
are buffers, which can be placed and are not written into the program."""


EFFECTS = "effects"
"""Name of the buffer of functions that call the host for an effect."""


@dataclass(frozen=True)
class Captured:
    """A function as a network.

    Attributes:
        network: The network; its outputs are the results that are not kept in buffers, in order.
        arguments: Value of each argument.
        results: Value of each result.
        closed_over: Arrays of the buffers that hold what the function closes over, by name.
    """

    network: Network
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]
    closed_over: Mapping[str, Array] = field(default_factory=dict)


def read_into(
    net: BlockBuilder,
    jaxpr: Any,
    arguments: Sequence[Value],
    *,
    differentiated: bool = False,
    random: Random = "exact",
) -> list[Value]:
    """Results of a closed jaxpr, appended to a network or block.

    Args:
        net: Network or block to extend.
        jaxpr: The ``ClosedJaxpr``.
        arguments: A value for each of its arguments; keys are their words, complex numbers their parts.
        differentiated: True where Abele differentiates the network: functions keep derivatives of their own.
        random: Source of random bits, as for :func:`capture`.

    Raises:
        UnsupportedOpError: Equations have no lowering; all of them are named, with the user's lines.
        TypeMismatchError: A type that the device lacks.
    """
    reader = JaxprReader(net, differentiated=differentiated, random=random)
    results = reader.closed(without_complex(jaxpr), list(arguments))
    if reader.missing:
        raise all_missing(reader.missing)
    return results


def capture(
    jaxpr: Any,
    names: Sequence[str],
    kept: Mapping[int, int] | None = None,
    absent: Collection[int] = (),
    *,
    axes: Mapping[str, CommGroup] | None = None,
    random: Random = "exact",
) -> Captured:
    """A closed jaxpr as a network.

    Args:
        jaxpr: The ``ClosedJaxpr`` of the function.
        names: A name for each argument.
        kept: Arguments that live on the device from call to call, by number: each becomes a buffer, which takes the
            value of the result of the given number. Other arguments are inputs, other results outputs.
        absent: Arguments that are not sent, by number: of no elements, or read by nothing. Zeros stand for them.
        random: ``exact`` for the bits that JAX draws from a key, which take about 120 integer operations a word;
            ``device`` for those of the machine's generator with the key as its seed: other numbers of the same
            distributions.
        axes: Replicas that each axis goes along, where the function is mapped over some.

    Raises:
        UnsupportedOpError: Equations have no lowering; all of them are named, with the user's lines.
        TypeMismatchError: A type that the device lacks.
    """
    net, kept, jaxpr = NetworkBuilder(), dict(kept or {}), without_complex(jaxpr)
    arguments = []
    for number, (var, name) in enumerate(zip(jaxpr.jaxpr.invars, names, strict=True)):
        shape, dtype = type_of(var.aval)
        if number in absent:
            arguments.append(build.full(net, 0, shape, dtype))
        else:
            arguments.append((net.buffer if number in kept else net.input)(shape, dtype, name))
    reader, closed_over = JaxprReader(net, axes=dict(axes or {}), random=random), dict[str, Array]()
    consts = []
    for const in jaxpr.consts:
        if np.size(const) > LARGEST_CONSTANT and not is_key(const.dtype) and element_type(const.dtype).is_float:
            name = f"closed_over{len(closed_over)}"
            closed_over[name] = np.asarray(const)
            consts.append(net.buffer(*type_of(const.aval if hasattr(const, "aval") else const), name))
        else:
            consts.append(reader.constant(const))
    results = reader.jaxpr(jaxpr.jaxpr, consts, arguments)
    if reader.missing:
        raise all_missing(reader.missing)
    if reader.order.last is not None:
        # A buffer that takes what the last effect gives keeps all of them, and costs no stream.
        effects = net.buffer((), i32, EFFECTS)
        closed_over[EFFECTS] = np.zeros((), np.int32)
        net.updates[effects] = reader.order.last
    updated = {result: arguments[argument] for argument, result in kept.items()}
    for number, value in enumerate(results):
        if number in updated:
            net.updates[updated[number]] = value
        else:
            net.output(value)
    return Captured(net.finish(), tuple(arguments), tuple(results), closed_over)
