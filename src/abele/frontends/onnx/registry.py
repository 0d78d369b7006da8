"""The table of ONNX operators: for each, a function that appends its meaning to the network.

A handler takes a :class:`NodeCall`, then the inputs of the operator in order, then its attributes by name::

    @op("LeakyRelu")
    def leaky_relu(call: NodeCall, x: Value, *, alpha: float = 0.01) -> Value:
        return call.map(select(v < 0.0, v * alpha, v), x)

What an input is handed over as follows from its annotation: a ``Value`` of the network, ``Known`` elements as an array,
or the ``Item`` itself. Many operators have had an attribute that is an input since: an attribute with the name of an
input stands for it, so that one handler serves all versions::

    @op("Squeeze")
    def squeeze(call: NodeCall, data: Value, axes: Known | None = None) -> Value: ...

Names of Python's own get an underscore (``min_``). A handler for some versions alone has ``since`` or ``until``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from abele.arrays import Array
from abele.errors import UnsupportedOpError
from abele.expr import Const, Expr
from abele.frontends.onnx.errors import ModelError, ModelShapeError
from abele.frontends.onnx.types import MOST_MADE, check_size, device_type
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import ElementType, bool_, f32, i32

if TYPE_CHECKING:
    from abele.frontends.onnx.reader import GraphReader

Known = Array
"""Annotation of an input whose elements the handler needs while the model is read."""
Handler = Callable[..., Any]
LATEST = 10_000


@dataclass
class Item:
    """A tensor of the model while it is read.

    Attributes:
        name: Name in the model.
        shape: Its shape.
        dtype: NumPy's type of it, as the model has it; the device may have fewer bits.
        known: Its elements, where they are known before the model runs; of a parameter those it begins with.
        fixed: True if they stay the same, so that what is computed of them is known as well.
        value: It in the network, once something reads it there.
        weight: True if it is a parameter in the network, not a constant.
        recipe: Elements as they follow from weights, given the elements of any tensor; None if it is computed of none.
        made_by: Description of the recipe: of two tensors with the same one, the second is the first.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    known: Array | None = None
    fixed: bool = False
    value: Value | None = None
    weight: bool = False
    recipe: Callable[[Callable[[Item], Array]], Array] | None = None
    made_by: Hashable = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def description(self) -> Hashable:
        """Source of its elements: a recipe, a weight's name, or the elements themselves."""
        if self.made_by is not None or self.weight or self.known is None:
            return self.made_by if self.made_by is not None else (self.name, id(self.known))
        return self.dtype.str, self.shape, self.known.tobytes()


@dataclass(frozen=True)
class _Entry:
    """A handler and what it takes.

    Attributes:
        handler: The function.
        signature: Its parameters.
        since: First version of the operator that it is for.
        until: First version that it is not for any more.
        inputs: Name and annotation of each input in order.
        rest: Annotation of all further inputs; empty for none.
        attributes: Names of attributes that are no inputs; None for all.
    """

    handler: Handler
    signature: inspect.Signature
    since: int
    until: int
    inputs: tuple[tuple[str, str], ...]
    rest: str
    attributes: frozenset[str] | None


_TABLE: dict[tuple[str, str], list[_Entry]] = {}
"""Handlers by domain and operator."""
STANDARD = ""


def domain_of(name: str) -> str:
    """A domain under one name: the standard operators have two."""
    return STANDARD if name == "ai.onnx" else name


def op(*names: str, domain: str = STANDARD, since: int = 1, until: int = LATEST) -> Callable[[Handler], Handler]:
    """Register a handler for operators of a domain, in the versions from ``since`` and before ``until``."""

    def register(handler: Handler) -> Handler:
        signature = inspect.signature(handler)
        parameters = list(signature.parameters.values())[1:]
        inputs = tuple((p.name, str(p.annotation)) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        rest = next((str(p.annotation) for p in parameters if p.kind is p.VAR_POSITIONAL), "")
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        entry = _Entry(
            handler, signature, since, until, inputs=inputs, rest=rest, attributes=None if takes_all else named
        )
        for name in names:
            others = _TABLE.setdefault((domain, name), [])
            assert all(until <= e.since or e.until <= since for e in others), f"{name} is registered twice"
            others.append(entry)
        return handler

    return register


def find(domain: str, name: str, version: int) -> _Entry | None:
    """The handler of an operator in a version of its domain's set."""
    return next((e for e in _TABLE.get((domain, name), ()) if e.since <= version < e.until), None)


def latest_handler(domain: str, name: str) -> _Entry | None:
    """The handler for the latest versions that an operator has one for."""
    return max(_TABLE.get((domain, name), ()), key=lambda e: e.until, default=None)


def names(domain: str = STANDARD) -> tuple[str, ...]:
    """Operators of a domain that have a handler."""
    return tuple(sorted(name for of, name in _TABLE if of == domain))


@dataclass(frozen=True)
class NodeCall:
    """One node that is being read.

    Attributes:
        reader: Reader of the graph that the node is in; it reads graphs inside of it.
        net: The block to append to.
        node: The node.
        version: Version of its domain's operators.
        items: The inputs; None for those that are left out.
    """

    reader: GraphReader
    net: BlockBuilder
    node: onnx.NodeProto
    version: int
    items: Sequence[Item | None]

    @property
    def name(self) -> str:
        """Operator and, where it has one, name of the node."""
        return f"{self.node.op_type} {self.node.name!r}" if self.node.name else str(self.node.op_type)

    @property
    def results(self) -> int:
        """Results that the node names, up to the last one."""
        return len(self.node.output)

    def wants(self, number: int) -> bool:
        """True if something may read a result."""
        return number < len(self.node.output) and bool(self.node.output[number])

    def map(
        self,
        expression: Expr,
        *operands: Value | float,
        common: ElementType | None = None,
        dtype: ElementType | None = None,
        masks: Collection[int] = (),
    ) -> Value:
        """An expression of every element.

        Args:
            expression: Over ``derivative.arg(i)`` for operand i.
            *operands: Values and numbers; numbers become part of the expression.
            common: Type that the operands are converted to; by default that of the first value.
            dtype: Type of the result; by default ``common``.
            masks: Numbers of the operands that are conditions: they stay bools.
        """
        values = [v for n, v in enumerate(operands) if isinstance(v, Value) and n not in masks]
        common = common or (values[0].dtype if values else f32)
        whole = i32 if common == bool_ else common
        return build.map_of(
            self.net,
            expression,
            operands,
            common,
            dtype or common,
            number=lambda value: number_of(value, common),
            whole=whole,
            masks=masks,
        )

    def constant(self, array: Any, dtype: ElementType | None = None) -> Value:
        """A constant of the network."""
        given = np.asarray(array)
        return self.net.constant(given, dtype or device_type(given.dtype))

    def prepared(self, item: Item, how: Callable[[Array], Array], name: str) -> Value | None:
        """A weight in another form, which is made on the host; None where the weight changes as the program runs.

        Args:
            item: The weight.
            how: The form, of its elements.
            name: Name of the form, which comes after the weight's.
        """
        if not (self.reader.parts.prepares and item.weight and item.fixed and item.known is not None):
            return None
        forms, key = self.reader.parts.forms, (name, item.description)
        if key not in forms:
            array = np.ascontiguousarray(how(item.known))
            made = Item(f"{item.name}/{name}", array.shape, array.dtype, array, fixed=True, weight=True, made_by=key)
            made.recipe = lambda elements: np.ascontiguousarray(how(elements(item)))
            forms[key] = made
        return self.reader.value(forms[key])

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front.

        Raises:
            ModelError: There is no such axis.
        """
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise self.wrong(f"has axis {axis}, its input has {rank} dimensions")
        return axis % max(rank, 1)

    def axes(self, axes: Any, rank: int) -> tuple[int, ...]:
        """Axes counted from the front, each once."""
        found = tuple(self.axis(int(a), rank) for a in np.asarray(axes).reshape(-1))
        if len(set(found)) != len(found):
            raise self.wrong(f"names an axis twice: {[int(a) for a in np.asarray(axes).reshape(-1)]}")
        return found

    def made_here(self, *shape: int) -> None:
        """Check the size of a table that is made while the model is read.

        Raises:
            ModelShapeError: It has too many elements.
        """
        check_size(f"a table of {self.name}", shape, MOST_MADE)

    def wrong(self, what: str, remedy: str | None = None) -> ModelError:
        """The error that the model is wrong at this node."""
        return ModelError(f"{self.name} {what}", at=self.net.origin.location or None, remedy=remedy)

    def unknown(self, item: Item, what: str) -> ModelShapeError:
        """The error that elements of a tensor have to be known and are not."""
        return ModelShapeError.unknown(self.name, item.name, what, self.net.origin.location or None)

    def refuse(self, what: str, remedy: str | None = None, because: str | None = None) -> UnsupportedOpError:
        """The error that the node has no lowering as it is."""
        return UnsupportedOpError(
            f"{self.name} {what}", at=self.net.origin.location or None, because=because, remedy=remedy
        )


def number_of(value: float, dtype: ElementType) -> Const:
    """A number of an expression beside operands of a type."""
    if dtype.is_float:
        return Const(float(value))
    return Const(bool(value), bool_) if dtype == bool_ else Const(int(value), dtype)


# --- calling ----------------------------------------------------------------------------------------------------------


def call_handler(call: NodeCall, entry: _Entry, attributes: Mapping[str, Any]) -> Any:
    """Results of a handler for a node.

    Raises:
        ModelError: The node has more inputs than its operator, or an attribute that it does not have.
        ModelShapeError: Elements of an input that have to be known are not.
    """
    given: dict[str, Any] = {}
    left = dict(attributes)
    args: list[Any] = []
    if len(call.items) > len(entry.inputs) and not entry.rest:
        raise call.wrong(f"has {len(call.items)} inputs, it takes {len(entry.inputs)}")
    for number, item in enumerate(call.items):
        name, kind = entry.inputs[number] if number < len(entry.inputs) else (f"number {number}", entry.rest)
        args.append(_handed(call, name, kind, item))
    for number, (name, _) in enumerate(entry.inputs):
        plain = name.rstrip("_")
        if plain in left and (number >= len(args) or args[number] is None):
            attribute = left.pop(plain)
            if number < len(args):
                args[number] = attribute
            else:
                given[name] = attribute
    for name, attribute in left.items():
        python_name = name if entry.attributes is None or name in entry.attributes else f"{name}_"
        if entry.attributes is not None and python_name not in entry.attributes:
            raise call.refuse(f"has an attribute {name}, which has no meaning here")
        given[python_name] = attribute
    try:
        bound = entry.signature.bind(call, *args, **given)
    except TypeError as error:
        raise call.wrong(f"does not have what it needs: {error}") from None
    while args and args[-1] is None and not entry.rest:
        args.pop()  # So that defaults of inputs that are left out apply.
        bound = entry.signature.bind_partial(call, *args, **given)
    return entry.handler(*bound.args, **bound.kwargs)


def _handed(call: NodeCall, name: str, kind: str, item: Item | None) -> Any:
    if item is None or "Item" in kind:
        return item
    if "Known" in kind:
        if item.known is None:
            raise call.unknown(item, f"the elements of its input {name.rstrip('_')!r}")
        return item.known
    return call.reader.value(item)
