"""The text of networks.

Entering values come first, then the ops, one per line: what they make with types, their kind, what they read, their
attributes, and after ``#`` the module and source line. A heading such as ``backward:`` gives the stage of the ops
below it. Functions stand before the network, long contents of constants after it. :mod:`abele.network.ir.parser`
reads all of this back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from abele.graph.debug import DebugRecord
from abele.network.ir.attributes import Data, attribute_text
from abele.network.ir.network import AllowedRange, Network
from abele.network.ir.op import NetworkFunction, NetworkOp, OpBlock
from abele.network.ir.tokens import quoted
from abele.network.ir.value import HERE, Stage, Value, type_text

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.$/-]*")
ENTRIES = ("input", "parameter", "buffer", "accumulator", "seed")
"""The words for what enters a network, in the order of its text."""


def network_text(net: Network, *, origins: bool = True) -> str:
    """A network as text.

    Args:
        net: The network.
        origins: True to say after each op which module and source line it comes from.
    """
    data = Data()
    lines: list[str] = []
    for function in net.functions:
        lines += [*_function_lines(function, data, origins), ""]
    lines += ["network {", *_indented(_network_lines(net, data, origins)), "}", *data.lines()]
    return "\n".join(lines)


def function_text(function: NetworkFunction) -> str:
    """A function on its own, with the contents of its constants."""
    data = Data()
    return "\n".join([*_function_lines(function, data, False), *data.lines()])


def op_text(op: NetworkOp) -> str:
    """One op on its own, its values by their names or as they are numbered among themselves."""
    names = _ValueNames()
    for value in dict.fromkeys(op.inputs):
        names.define(value)
    return "\n".join(_op_lines(op, names, Data(), True))


class _ValueNames:
    """Names of values in one block: their own name where it is plain and not taken, else a number."""

    def __init__(self, wide: Collection[Value] = ()) -> None:
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._numbered = 0
        self._wide = wide

    def define(self, value: Value) -> str:
        """Name for a value that is made or enters now, followed by its own name if that differs."""
        if _PLAIN_NAME.fullmatch(value.name) and value.name not in self._taken:
            self._taken.add(value.name)
            self._names[value] = f"%{value.name}"
            return self._names[value]
        self._names[value] = f"%{self._numbered}"
        self._numbered += 1
        return self._names[value] + (f" {quoted(value.name)}" if value.name else "")

    def typed(self, value: Value) -> str:
        """The definition of a value."""
        flags = [type_text(*value.type)]
        flags += ["wide"] if value in self._wide else []
        flags += [str(value.place)] if value.place != HERE else []
        return f"{self.define(value)}: {' '.join(flags)}"

    def __getitem__(self, value: Value) -> str:
        return self._names.get(value, f"%{_stranger(value)}")

    def read(self, values: Iterable[Value]) -> str:
        """A list of values that are read."""
        return ", ".join(self[v] for v in values)


def _stranger(value: Value) -> str:
    """Text for a value made outside the block that reads it; the verifier refuses it."""
    return f"undefined.{value.name}" if _PLAIN_NAME.fullmatch(value.name) else "undefined"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _network_lines(net: Network, data: Data, origins: bool) -> list[str]:
    names = _ValueNames(net.wide)
    seeds = () if net.seed is None else (net.seed,)
    groups = (net.inputs, net.parameters, net.buffers, net.accumulators, seeds)
    lines = [f"{word} {names.typed(v)}" for word, group in zip(ENTRIES, groups, strict=True) for v in group]
    lines += _ops_lines(net.ops, names, data, origins, Stage.FORWARD)
    lines += [f"output {names[v]}" for v in net.outputs]
    changes = (("update", net.updates), ("change", net.changed_inputs), ("gradient", net.gradients))
    lines += [f"{word} {names[k]} = {names[v]}" for word, pairs in changes for k, v in pairs.items()]
    lines += [f"loss {names[net.loss]}"] if net.loss is not None else []
    lines += [_bound_text(b, names, origins) for b in net.bounds]
    return lines + ([f"random {net.num_random}"] if net.num_random else [])


def _bound_text(bound: AllowedRange, names: _ValueNames, origins: bool) -> str:
    exception = "" if bound.exception is None else f" or {bound.exception}"
    lowest = f" from {bound.lowest}" if bound.lowest else ""
    range_ = f"{names[bound.value]} < {bound.limit}{lowest}{exception}"
    return f"bound {range_} {quoted(bound.what)}{_origin(bound.debug, origins)}"


def _function_lines(function: NetworkFunction, data: Data, origins: bool) -> list[str]:
    random = f" random {function.num_random}" if function.num_random else ""
    return _block_lines(f"function @{function.name}", function.body, f"{random} {{", data, origins, Stage.FORWARD)


def _block_lines(head: str, block: OpBlock, opening: str, data: Data, origins: bool, stage: Stage) -> list[str]:
    names = _ValueNames()
    entering = ", ".join(names.typed(v) for v in block.parameters)
    inside = _ops_lines(block.ops, names, data, origins, stage)
    leaving = f"return {names.read(block.results)}".rstrip()
    return [f"{head}({entering}){opening}", *_indented([*inside, leaving]), "}"]


def _ops_lines(ops: Sequence[NetworkOp], names: _ValueNames, data: Data, origins: bool, stage: Stage) -> list[str]:
    """Ops under the headings of their stages; those above the first heading are of ``stage``."""
    lines: list[str] = []
    for op in ops:
        if op.outputs and op.stage != stage:
            stage = op.stage
            lines.append(f"{stage.value}:")
        lines += _op_lines(op, names, data, origins, stage)
    return lines


def _op_lines(op: NetworkOp, names: _ValueNames, data: Data, origins: bool, stage: Stage | None = None) -> list[str]:
    read = f"({names.read(op.inputs)})" if op.inputs else ""
    made = ", ".join(names.typed(v) for v in op.outputs)
    attrs = "".join(f" {name}={attribute_text(value, data)}" for name, value in sorted(op.attrs.items()))
    text = f"{made}{' = ' if made else ''}{op.kind}{read}{attrs}{_origin(op.debug, origins)}"
    lines = [text]
    for label, region in zip(_region_names(op), op.regions, strict=True):
        lines += _indented(_block_lines(f"do {label}", region, " {", data, origins, stage or op.stage))
    return lines


def _region_names(op: NetworkOp) -> list[str]:
    from abele.network.registry import RULES

    rule = RULES.get(op.kind)
    names = rule.region_names if rule is not None else ()
    return [names[min(i, len(names) - 1)] if names else "body" for i in range(len(op.regions))]


def _origin(debug: DebugRecord, shown: bool) -> str:
    """Origin of an op as a comment: its name, file and line, and the module's label."""
    if not shown or not debug.full_name:
        return ""
    label = f" in {debug.text}" if debug.text else ""
    return f"  # {debug}{label}".replace("\n", " ")
