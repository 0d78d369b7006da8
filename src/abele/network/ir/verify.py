"""Legality of networks.

Every value is made once, before it is read; a block reads only what is its own; every op has a known kind, and the
operands, attributes, regions and result types that its kind asks for; what leaves has the type of what it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from abele.errors import AbeleError, NetworkError, nearest
from abele.network.ir.network import Network
from abele.network.ir.op import NetworkOp, OpBlock, PlanHint
from abele.network.ir.value import Stage, Value, type_text
from abele.numerics import u32
from abele.words import counted


def verify(net: Network) -> None:
    """Check a network.

    Raises:
        NetworkError: It is not legal; the error names the op and the user's source line.
    """
    known = set(net.entries)
    if len(known) != len(net.entries):
        raise NetworkError("a value enters the network twice")
    _check_names(net)
    if net.seed is not None and net.seed.type != ((2,), u32):
        raise NetworkError(f"the seed is {net.seed}, it has to be u32[2]")
    _check_functions(net)
    _check_ops(net.ops, known)
    _check_leaving(net, known)


def _check_names(net: Network) -> None:
    """The host finds state by name, so names of state are unique."""
    seen: set[str] = set()
    for value in (*net.parameters, *net.buffers, *net.accumulators):
        if value.name in seen:
            raise NetworkError(f"two values of the network's state are named {value.name!r}")
        seen.add(value.name)
    for value in net.entries:
        if value.stage != Stage.FORWARD:
            raise NetworkError(f"{value} enters the network in stage {value.stage.value}")


def _check_functions(net: Network) -> None:
    seen: set[str] = set()
    for function in net.functions:
        if function.name in seen:
            raise NetworkError(f"two functions are named @{function.name}")
        seen.add(function.name)
        _check_block(function.body, f"in function @{function.name}")


def _check_block(block: OpBlock, where: str) -> None:
    known = set(block.parameters)
    if len(known) != len(block.parameters):
        raise NetworkError(f"{where}: a parameter is there twice")
    for value in block.parameters:
        if value.stage != Stage.FORWARD:
            raise NetworkError(f"{where}: the parameter {value} is of stage {value.stage.value}")
    _check_ops(block.ops, known)
    for value in block.results:
        if value not in known:
            raise NetworkError(f"{where}: the result {value} is not made in the block")


def _check_ops(ops: Sequence[NetworkOp], known: set[Value]) -> None:
    for op in ops:
        for number, value in enumerate(op.inputs):
            if value not in known:
                raise _illegal(op, f"operand {number} ({value}) is not made before it is read")
        for value in op.outputs:
            if value in known:
                raise _illegal(op, f"its result {value} was made before")
            # `known` is the caller's: what is made here can be read by what leaves the network.
            known.add(value)
        check_op(op)


def check_op(op: NetworkOp) -> None:
    """Check one op against the rule of its kind, and its regions.

    Raises:
        NetworkError: It breaks the rule.
    """
    from abele.network.registry import RULES

    rule = RULES.get(op.kind)
    if rule is None:
        close = nearest(op.kind, RULES)
        raise _illegal(op, "there is no such kind of op", f"{close!r} exists" if close else None)
    low, high = rule.operands if isinstance(rule.operands, tuple) else (rule.operands, rule.operands)
    if not low <= len(op.inputs) <= (len(op.inputs) if high is None else high):
        wanted = counted(low, "operand") if low == high else f"{low} to {'any' if high is None else high} operands"
        raise _illegal(op, f"it takes {wanted}, not {len(op.inputs)}")
    hints = {"hint": PlanHint} if (rule.planned or rule.hinted) and "hint" in op.attrs else {}
    _check_attributes(op, {**rule.attributes, **hints})
    if len({v.stage for v in op.outputs}) > 1:
        raise _illegal(op, "its results belong to several stages")
    for block in op.regions:
        _check_block(block, f"in a region of {op.kind}")
    _check_types(op, rule.types)


def _check_attributes(op: NetworkOp, wanted: Mapping[str, object]) -> None:
    for name in op.attrs.keys() - wanted.keys():
        close = nearest(name, wanted)
        raise _illegal(op, f"it has no attribute {name!r}", f"{close!r} exists" if close else None)
    for name, expected in wanted.items():
        if name not in op.attrs:
            raise _illegal(op, f"the attribute {name!r} is missing")
        value = op.attrs[name]
        fits = isinstance(value, expected) if isinstance(expected, (type, tuple)) else True
        # In Python a bool is an int; in a network's attributes it is not.
        if not fits or (isinstance(value, bool) and expected is int):
            kinds = expected if isinstance(expected, tuple) else (expected,)
            names = " or ".join(getattr(k, "__name__", str(k)) for k in kinds)
            raise _illegal(op, f"the attribute {name!r} is {value!r}, it has to be of type {names}")


def _check_types(op: NetworkOp, rule: object) -> None:
    """Results against the shape rule of the kind, which may itself find something wrong."""
    assert callable(rule)
    try:
        types = list(rule(op))
    # A rule is written for ops that fit, and may fail in any way on one that does not: the error names the op, not the
    # rule.
    except AbeleError as error:
        raise _illegal(op, error.message, error.remedy) from None
    except (ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, OverflowError, MemoryError) as error:
        raise _illegal(op, str(error) or type(error).__name__) from None
    if len(types) != len(op.outputs):
        raise _illegal(op, f"it makes {counted(len(types), 'result')}, not {len(op.outputs)}")
    for number, (value, (shape, dtype)) in enumerate(zip(op.outputs, types, strict=True)):
        if value.shape != tuple(shape) or value.dtype != dtype:
            raise _illegal(
                op, f"result {number} is {type_text(*value.type)}, its rule says {type_text(tuple(shape), dtype)}"
            )


def _check_leaving(net: Network, known: set[Value]) -> None:
    for what, value in (*(("output", v) for v in net.outputs), *((f"{b.what} bound", b.value) for b in net.bounds)):
        if value not in known:
            raise NetworkError(f"the {what} {value} is not made in the network")
    if net.loss is not None and (net.loss not in known or not net.loss.dtype.is_float):
        raise NetworkError(f"the loss {net.loss} has to be a floating-point value made in the network")
    state = {*net.parameters, *net.buffers, *net.accumulators}
    _check_pairs("update", net.updates.items(), state, known)
    _check_pairs("changed input", net.changed_inputs.items(), set(net.inputs), known)
    _check_pairs("gradient", net.gradients.items(), set(net.entries), known)


def _check_pairs(what: str, pairs: Iterable[tuple[Value, Value]], allowed: set[Value], known: set[Value]) -> None:
    for place, value in pairs:
        if place not in allowed:
            raise NetworkError(f"the {what} of {place}, which is none of the values that may have one")
        if value not in known:
            raise NetworkError(f"the {what} {value} of {place.name} is not made in the network")
        if value.shape != place.shape or (what != "gradient" and value.dtype != place.dtype):
            raise NetworkError(f"the {what} {value} of {place} has another type")


def _illegal(op: NetworkOp, problem: str, remedy: str | None = None) -> NetworkError:
    first = str(op).splitlines()[0]
    shown = first if len(first) <= 300 else f"{first[:300]} …"
    return NetworkError(f"{op.kind}: {problem}", at=op.debug.location or None, because=shown, remedy=remedy)
