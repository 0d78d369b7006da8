"""Convolutions that a model's author groups, or their gradients, as one op: they run together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, FrozenDict, NetworkOp, Value
from abele.network.ir.op import ConvGroup, PlanHint
from abele.network.ops.convolution import Convolving, bias_gradient, turned_weights
from abele.network.registry import RULES, Gradients, OpRule, Types, require, rule
from abele.poplibs import poplin
from abele.poplibs.poplin import multiconv
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.operations.convolution import exchanged

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

KINDS = ("convolution", "convolution_grad_data", "convolution_grad_weight")
"""Kinds of ops that can be members."""
_OF_WEIGHTS = KINDS[2]
_OPERANDS = {KINDS[0]: (2, 3), KINDS[1]: (2, 3), _OF_WEIGHTS: (2,)}
"""Number of operands of each kind."""


@dataclass(frozen=True)
class GroupedConv:
    """A convolution, or a gradient of one, that is to run together with others.

    Attributes:
        kind: One of :data:`KINDS`.
        inputs: Its operands.
        like: A value of the type of its result.
        params: The convolution that it is, or is a gradient of.
        hint: Planning of the group.
    """

    kind: str
    inputs: tuple[Value, ...]
    like: Value
    params: ConvParams
    hint: PlanHint

    @staticmethod
    def of(op: NetworkOp) -> GroupedConv:
        """An op that stands alone."""
        return GroupedConv(op.kind, op.inputs, op.outputs[0], op.attrs["params"], op.hint or PlanHint())


def group_attributes(members: Sequence[GroupedConv], group: ConvGroup) -> dict[str, Any]:
    """The attributes of the op that does what ``members`` do."""
    return {
        "kinds": tuple(m.kind for m in members),
        "counts": tuple(len(m.inputs) for m in members),
        "params": tuple(m.params for m in members),
        "hints": tuple(m.hint for m in members),
        "group": group,
    }


def _together(net: BlockBuilder, members: Sequence[GroupedConv], group: ConvGroup) -> list[Value]:
    """Append one op for all members."""
    if not members:
        return []
    inputs = [v for m in members for v in m.inputs]
    types = [(m.like.shape, m.like.dtype) for m in members]
    return list(net.emit_many("convolution_group", inputs, types, **group_attributes(members, group)))


@rule("convolution_group")
class ConvolutionGroup(OpRule):
    """Several convolutions, or gradients by the weights of several, none of which reads what another makes."""

    operands = (2, None)
    attributes: ClassVar = {"kinds": tuple, "counts": tuple, "params": tuple, "hints": tuple, "group": ConvGroup}

    def members(self, op: NetworkOp) -> list[NetworkOp]:
        """Each of them as an op of its own."""
        made, attrs = [], op.attrs
        rows = zip(op.outputs, attrs["kinds"], attrs["counts"], attrs["params"], attrs["hints"], strict=True)
        end = 0
        for value, kind, count, params, hint in rows:
            require(kind in KINDS, f"{kind!r} is no kind of convolution")
            require(isinstance(params, ConvParams), f"{params!r} are no parameters of a convolution")
            require(isinstance(hint, PlanHint), f"{hint!r} is no hint")
            require(count in _OPERANDS[kind], f"{kind} does not take {count} operands")
            begin, end = end, end + count
            given = FrozenDict({"params": params, "hint": hint})
            made.append(NetworkOp(kind, op.inputs[begin:end], (value,), given, op.debug))
        require(end == len(op.inputs), f"its members take {end} operands")
        return made

    def types(self, op: NetworkOp) -> Types:
        """Types of its members' results."""
        members = self.members(op)
        of_weights = {m.kind == _OF_WEIGHTS for m in members}
        require(len(of_weights) == 1, "gradients by weights are grouped with one another only")
        return [made for m in members for made in RULES[m.kind].types(m)]

    def evaluate(self, op: NetworkOp, *args: Array) -> tuple[Array, ...]:
        """Each of its members in NumPy."""
        given, made = dict(zip(op.inputs, args, strict=True)), []
        for member in self.members(op):
            made.append(RULES[member.kind].evaluate(member, *(given[v] for v in member.inputs)))
        return tuple(made)

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One multi-convolution, then the biases added in place."""
        members = self.members(op)
        options = op.attrs["group"].options
        if members[0].kind == _OF_WEIGHTS:
            deltas = [
                multiconv.CalculateWeightDeltasArgs(to[z], to[x], m.attrs["params"], to.planned(m, x.dtype))
                for m in members
                for z, x in [m.inputs]
            ]
            return tuple(multiconv.calculate_weight_deltas(to.graph, deltas, to.prog, options=options))
        args = [_forward(to, m) for m in members]
        made = multiconv.convolution(to.graph, args, to.prog, options=options)
        for member, result in zip(members, made, strict=True):
            for bias in member.inputs[2:]:
                poplin.add_bias(to.graph, result, to[bias], to.prog)
        return tuple(made)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Inputs and weights as the planner of all together wants them."""
        members, number, place = self.members(op), 0, operand
        while place >= len(members[number].inputs):
            place -= len(members[number].inputs)
            number += 1
        member, value = members[number], op.inputs[operand]
        if member.kind == _OF_WEIGHTS or place > 1:
            return None
        args = [
            multiconv.CreateTensorArgs(x.dtype, _run(m), to.planned(m, x.dtype), value.name)
            for m in members
            for x in m.inputs[:1]
        ]
        options = op.attrs["group"].options
        if place == 0:
            return multiconv.create_input(to.graph, args, number, options=options)
        made = multiconv.create_weights(to.graph, args, number, options=options)
        return turned_weights(made, member.attrs["params"]) if member.kind == KINDS[1] else made

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradients by all inputs together, those by all weights together, and sums for the biases."""
        by_input: dict[int, GroupedConv] = {}
        by_weights: dict[int, GroupedConv] = {}
        gradients: list[Value | None] = [None] * len(op.inputs)
        place = 0
        for member, grad in zip(self.members(op), grads, strict=True):
            x, weight, *bias = member.inputs
            if grad is not None:
                rule, params, hint = RULES[member.kind], member.attrs["params"], member.attrs["hint"]
                assert isinstance(rule, Convolving), "gradients by weights have no derivative"
                if wanted[place]:
                    by_input[place] = GroupedConv(rule.by_input, (grad, weight), x, params, hint)
                if wanted[place + 1]:
                    pair = rule.weight_operands(grad, x)
                    by_weights[place + 1] = GroupedConv(_OF_WEIGHTS, pair, weight, params, hint)
                if bias and wanted[place + 2]:
                    gradients[place + 2] = bias_gradient(net, grad)
            place += len(member.inputs)
        for part in (by_input, by_weights):
            for at, made in zip(part, _together(net, list(part.values()), op.attrs["group"]), strict=True):
                gradients[at] = made
        return gradients


def _run(member: NetworkOp) -> ConvParams:
    """The convolution that is run for a member."""
    params: ConvParams = member.attrs["params"]
    return params if member.kind == "convolution" else params.gradient_params()


def _forward(to: Lowering, member: NetworkOp) -> multiconv.ConvolutionArgs:
    x, weight = (to[v] for v in member.inputs[:2])
    turned = weight if member.kind == "convolution" else exchanged(weight, member.attrs["params"].groups)
    return multiconv.ConvolutionArgs(x, turned, _run(member), to.planned(member, x.dtype))
