"""Networks from the text that prints them.

A recursive descent over tokens; see :mod:`abele.network.ir.printer` for what it reads. Whatever is wrong with a
text is a :class:`~abele.errors.NetworkTextError` that shows the line, or a :class:`~abele.errors.NetworkError` if the
text reads well and means nothing legal.
"""

from __future__ import annotations

import re
from typing import Any

from abele.graph.debug import DebugRecord
from abele.network.ir.attributes import AttributeReader, read_data
from abele.network.ir.builder import NetworkBuilder
from abele.network.ir.frozen import FrozenDict
from abele.network.ir.network import AllowedRange, Network
from abele.network.ir.op import NetworkFunction, NetworkOp, OpBlock
from abele.network.ir.tokens import Token, Tokens
from abele.network.ir.value import HERE, Place, Stage, Value
from abele.network.ir.verify import verify

_ORIGIN = re.compile(r"#\s*(?P<name>.*?)(?: \((?P<file>[^()]*):(?P<line>\d{1,9})\))?(?: in (?P<label>.*))?\s*")
_PLACE = re.compile(r"@(?:ipu\d{1,6}|stage\d{1,6}|phase\d{1,6})(?::(?:stage|phase)\d{1,6})*")
_STAGES = {stage.value: stage for stage in Stage}
_LARGEST_DIM = 2**40


def parse(text: str) -> Network:
    """The network that a text describes, checked.

    Raises:
        NetworkTextError: The text does not read; the line and column are named.
        NetworkError: It reads, but is no legal network.
    """
    net = _TextReader(Tokens(text)).read()
    verify(net)
    return net


class _Scope:
    """The values of one block by name."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}


class _TextReader:
    """One text being read."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.functions: dict[str, NetworkFunction] = {}
        self.wide: set[Value] = set()
        self.data: dict[str, bytes] = {}
        self.attributes = AttributeReader(tokens, self.functions, self.data)

    def read(self) -> Network:
        self._data()
        while self.tokens.peek().text == "function":
            self._function()
        self.tokens.expect("network")
        net = self._network()
        read_data(self.tokens)
        if self.tokens.peek().kind != "end":
            raise self.tokens.error("expected the end of the text")
        return net

    def _data(self) -> None:
        """Look for the contents at the end of the text before anything that names them."""
        with self.tokens.ahead_at("data"):
            self.data.update(read_data(self.tokens))

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _function(self) -> None:
        self.tokens.expect("function")
        token = self.tokens.expect_kind("symbol", "the name of a function")
        name = token.text[1:]
        if name in self.functions:
            raise self.tokens.error(f"a second function @{name}", token)
        scope = _Scope()
        parameters = self._parameters(scope, Stage.FORWARD)
        random = self.tokens.integer() if self.tokens.take("random") else 0
        self.functions[name] = NetworkFunction(name, self._block(parameters, scope, Stage.FORWARD), random)

    def _parameters(self, scope: _Scope, stage: Stage) -> tuple[Value, ...]:
        self.tokens.expect("(")
        made: list[Value] = []
        while not self.tokens.take(")"):
            made.append(self._definition(scope, stage))
            if not self.tokens.take(","):
                self.tokens.expect(")")
                break
        return tuple(made)

    def _block(self, parameters: tuple[Value, ...], scope: _Scope, stage: Stage) -> OpBlock:
        with self.tokens.nested():
            self.tokens.expect("{")
            ops = self._ops(scope, stage, ends=("return",))
            self.tokens.expect("return")
            results = self._values(scope) if self.tokens.peek().kind == "value" else ()
            self.tokens.expect("}")
            return OpBlock(parameters, tuple(ops), results)

    def _values(self, scope: _Scope) -> tuple[Value, ...]:
        found = [self._value(scope)]
        while self.tokens.take(","):
            found.append(self._value(scope))
        return tuple(found)

    def _value(self, scope: _Scope) -> Value:
        token = self.tokens.expect_kind("value", "a value")
        if token.text not in scope.values:
            raise self.tokens.error(f"{token.text} is read before it is made", token)
        return scope.values[token.text]

    def _definition(self, scope: _Scope, stage: Stage) -> Value:
        """A value with its type: ``%x: f32[2, 3]``."""
        tokens = self.tokens
        token = tokens.expect_kind("value", "a value")
        if token.text in scope.values:
            raise tokens.error(f"{token.text} is made twice", token)
        # The printer numbers values without a name, and gives a name in quotes where it is no identifier.
        name = "" if token.text[1].isdigit() else token.text[1:]
        if tokens.peek().kind == "string":
            name = tokens.string()
        tokens.expect(":")
        dtype = tokens.element_type()
        shape = self._shape()
        is_wide = tokens.take("wide")
        made = Value(shape, dtype, name, stage, self._place())
        if is_wide:
            self.wide.add(made)
        scope.values[token.text] = made
        return made

    def _shape(self) -> tuple[int, ...]:
        tokens = self.tokens
        tokens.expect("[")
        dims: list[int] = []
        while not tokens.take("]"):
            token = tokens.peek()
            dims.append(tokens.integer())
            if not 0 <= dims[-1] <= _LARGEST_DIM:
                raise tokens.error(f"a dimension of {dims[-1]}", token)
            if not tokens.take(","):
                tokens.expect("]")
                break
        return tuple(dims)

    def _place(self) -> Place:
        token = self.tokens.peek()
        if token.kind != "symbol":
            return HERE
        if not _PLACE.fullmatch(token.text):
            raise self.tokens.error("expected a place such as @ipu1:stage2:phase3")
        self.tokens.next()
        numbers = {k: int(n) for k, n in re.findall(r"([a-z]+)(\d+)", token.text)}
        return Place(numbers.get("ipu", 0), numbers.get("stage", 0), numbers.get("phase", 0))

    # --- ops ----------------------------------------------------------------------------------------------------------

    def _ops(self, scope: _Scope, stage: Stage, ends: tuple[str, ...]) -> list[NetworkOp]:
        tokens = self.tokens
        ops: list[NetworkOp] = []
        while tokens.peek().kind != "end":
            if tokens.peek().text in _STAGES and tokens.peek(1).text == ":":
                stage = _STAGES[tokens.next().text]
                tokens.expect(":")
            elif tokens.peek().text in ("}", *ends):
                break
            else:
                ops.append(self._op(scope, stage))
        return ops

    def _op(self, scope: _Scope, stage: Stage) -> NetworkOp:
        tokens = self.tokens
        # An op's results are visible below it, not in its own operands.
        made = _Scope()
        outputs: list[Value] = []
        start = tokens.peek()
        while tokens.peek().kind == "value":
            outputs.append(self._definition(made, stage))
            if not tokens.take(","):
                break
        if outputs:
            tokens.expect("=")
        kind = tokens.expect_kind("name", "the kind of an op")
        inputs: tuple[Value, ...] = ()
        if tokens.take("("):
            inputs = self._values(scope)
            tokens.expect(")")
        attrs = self._attributes(outputs)
        debug = _origin(tokens.comment())
        regions = []
        while tokens.take("do"):
            tokens.expect_kind("name", "the name of a region")
            inner = _Scope()
            # A region sees only its own parameters: a new scope, not one inside the op's.
            parameters = self._parameters(inner, Stage.FORWARD)
            regions.append(self._block(parameters, inner, stage))
        self._define(scope, made, start)
        return NetworkOp(kind.text, inputs, tuple(outputs), FrozenDict(attrs), debug, tuple(regions))

    def _define(self, scope: _Scope, made: _Scope, start: Token) -> None:
        twice = scope.values.keys() & made.values.keys()
        if twice:
            raise self.tokens.error(f"{min(twice)} is made twice", start)
        scope.values.update(made.values)

    def _attributes(self, outputs: list[Value]) -> dict[str, Any]:
        tokens = self.tokens
        attrs: dict[str, Any] = {}
        shape, dtype = outputs[0].type if outputs else ((), None)
        while tokens.peek().kind == "name" and tokens.peek(1).text == "=":
            token = tokens.next()
            tokens.expect("=")
            if token.text in attrs:
                raise tokens.error(f"the attribute {token.text} is given twice", token)
            attrs[token.text] = self.attributes.read(shape, dtype)
        return attrs

    # --- the network --------------------------------------------------------------------------------------------------

    def _network(self) -> Network:
        tokens, net, scope = self.tokens, NetworkBuilder(), _Scope()
        tokens.expect("{")
        self._entries(net, scope)
        # Words that end the ops.
        leaving = ("output", "update", "change", "gradient", "loss", "bound", "random")
        for op in self._ops(scope, Stage.FORWARD, leaving):
            net.append(op)
        while not tokens.take("}"):
            self._leaving(net, scope)
        net.wide |= self.wide
        return net.finish()

    def _entries(self, net: NetworkBuilder, scope: _Scope) -> None:
        tokens = self.tokens
        groups = {
            "input": net.inputs,
            "parameter": net.parameters,
            "buffer": net.buffers,
            "accumulator": net.accumulators,
        }
        while tokens.peek().text in (*groups, "seed") and tokens.peek(1).kind == "value":
            token = tokens.next()
            value = self._definition(scope, Stage.FORWARD)
            if token.text in groups:
                groups[token.text].append(value)
            elif net.seed is None:
                net.seed = value
            else:
                raise tokens.error("a second seed", token)

    def _leaving(self, net: NetworkBuilder, scope: _Scope) -> None:
        tokens = self.tokens
        token = tokens.next()
        pairs = {"update": net.updates, "change": net.changed_inputs, "gradient": net.gradients}
        match token.text:
            case "output":
                net.output(self._value(scope))
            case "loss":
                net.loss = self._value(scope)
            case "random":
                net.num_random = tokens.integer()
            case "bound":
                net.bounds.append(self._bound(scope))
            case _ if token.text in pairs:
                key = self._value(scope)
                tokens.expect("=")
                pairs[token.text][key] = self._value(scope)
            case _:
                raise tokens.error("expected what leaves the network, or '}'", token)

    def _bound(self, scope: _Scope) -> AllowedRange:
        tokens = self.tokens
        value = self._value(scope)
        tokens.expect("<")
        limit = tokens.integer()
        lowest = tokens.integer() if tokens.take("from") else 0
        exception = tokens.integer() if tokens.take("or") else None
        what = tokens.string()
        return AllowedRange(value, limit, exception, what, _origin(tokens.comment()), lowest)


def _origin(comment: str) -> DebugRecord:
    """Origin of an op, read from the comment after it."""
    # A comment is only that: what does not look like an origin is ignored, not an error.
    match = _ORIGIN.fullmatch(comment)
    if match is None or not match["name"]:
        return DebugRecord("")
    path, _, name = match["name"].rpartition("/")
    return DebugRecord(name, path, match["file"] or "", int(match["line"] or 0), match["label"] or "")
