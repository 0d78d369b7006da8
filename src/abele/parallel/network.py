"""Networks: captured models as lists of ops on values, without a place on the machine yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import ElementRangeError
from abele.graph.debug import DebugInfo
from abele.numerics import ElementType, as_element_type

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor that one op makes, or that enters the network: an input, parameter, buffer or constant.

    Attributes:
        number: Position among the values of its network.
        shape: Dimensions, for one micro-batch.
        dtype: Element type.
        name: A telling name, such as the parameter's; may be empty.
    """

    number: int
    shape: Shape
    dtype: ElementType
    name: str = ""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __str__(self) -> str:
        return f"%{self.number} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One operation.

    Attributes:
        kind: Which rule of :mod:`abele.parallel.registry` gives its meaning.
        inputs: Values that it reads.
        outputs: Values that it makes.
        attrs: Numbers, tuples and strings that it is configured with.
        debug: Module path and the user's source line.
    """

    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    debug: DebugInfo

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def __str__(self) -> str:
        outputs = ", ".join(str(v) for v in self.outputs)
        inputs = ", ".join(f"%{v.number}" for v in self.inputs)
        attrs = "".join(f" {k}={v}" for k, v in self.attrs.items())
        return f"{outputs} = {self.kind}({inputs}){attrs}  # {self.debug}"


@dataclass(frozen=True, slots=True)
class Bound:
    """Integer elements that must lie in ``range(limit)``, or equal ``exception``.

    Attributes:
        value: The elements.
        limit: One more than the largest that is allowed.
        exception: One more number that is allowed, if any.
        what: The field's word for an element, such as ``label``.
        debug: The op that asks for it.
    """

    value: Value
    limit: int
    exception: int | None
    what: str
    debug: DebugInfo


@dataclass
class Network:
    """A model: what enters it, its ops in order, and what leaves it.

    Attributes:
        inputs: Values that the host sends for every micro-batch.
        parameters: Trainable or frozen weights; their names are those of the model's state.
        buffers: State that is not trained.
        constants: Values known at capture.
        ops: In an order in which every value is made before it is read.
        outputs: What the model returns.
        updates: For a parameter or buffer that the model changes, the value that it holds afterwards.
        changed_inputs: For an input that the model changes, what it holds afterwards.
        wide: Integers that have 64 bits in the model and 32 on the device.
        bounds: Ranges in which integer values must lie.
        loss: The scalar to differentiate, if there is one.
        seed: The u32[2] state of random ops, once there is one.
    """

    inputs: list[Value] = field(default_factory=list)
    parameters: list[Value] = field(default_factory=list)
    buffers: list[Value] = field(default_factory=list)
    constants: dict[Value, Array] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    updates: dict[Value, Value] = field(default_factory=dict)
    changed_inputs: dict[Value, Value] = field(default_factory=dict)
    wide: set[Value] = field(default_factory=set)
    bounds: list[Bound] = field(default_factory=list)
    loss: Value | None = None
    seed: Value | None = None
    num_random: int = 0
    _num_values: int = 0
    _origin: DebugInfo = field(default_factory=lambda: DebugInfo("network"))

    # --- values that enter ---------------------------------------------------------------------------------------

    def value(self, shape: Sequence[int], dtype: Any, name: str = "") -> Value:
        """A new value that nothing makes yet."""
        made = Value(self._num_values, tuple(int(n) for n in shape), as_element_type(dtype), name)
        self._num_values += 1
        return made

    def input(self, shape: Sequence[int], dtype: Any, name: str) -> Value:
        """A new input."""
        self.inputs.append(self.value(shape, dtype, name))
        return self.inputs[-1]

    def parameter(self, shape: Sequence[int], dtype: Any, name: str) -> Value:
        """A new parameter."""
        self.parameters.append(self.value(shape, dtype, name))
        return self.parameters[-1]

    def buffer(self, shape: Sequence[int], dtype: Any, name: str) -> Value:
        """A new buffer."""
        self.buffers.append(self.value(shape, dtype, name))
        return self.buffers[-1]

    def constant(self, array: npt.ArrayLike, dtype: Any, name: str = "constant") -> Value:
        """A new constant of ``dtype`` with the contents of ``array``.

        Raises:
            ElementRangeError: An integer that ``dtype`` cannot hold.
        """
        element = as_element_type(dtype)
        given = np.asarray(array)
        with np.errstate(invalid="ignore"):
            contents = given.astype(element.np)
        if element.kind in ("int", "uint") and given.dtype != contents.dtype and (contents != np.trunc(given)).any():
            raise ElementRangeError(
                f"the constant {given[contents != given].flat[0]} does not fit in {element}, as the device has it",
                at=self._origin.location or None,
                remedy="keep integers within ±2³¹, or compute with float32",
            )
        made = self.value(contents.shape, element, name)
        self.constants[made] = contents
        return made

    def bound(self, value: Value, limit: int, what: str, exception: int | None = None) -> Bound:
        """Ask for the integers of ``value`` to lie in ``range(limit)``; see :class:`Bound`."""
        self.bounds.append(Bound(value, limit, exception, what, self._origin))
        return self.bounds[-1]

    def random_state(self) -> Value:
        """The seed that random ops read: u32[2], advanced after every micro-batch."""
        if self.seed is None:
            self.seed = self.value((2,), "u32", "random_state")
        return self.seed

    def next_random(self) -> int:
        """A modifier that no random op of this network has yet."""
        self.num_random += 1
        return self.num_random - 1

    # --- ops -----------------------------------------------------------------------------------------------------

    @contextmanager
    def at(self, origin: DebugInfo) -> Iterator[None]:
        """Give the ops made inside the name and source line of ``origin``."""
        before, self._origin = self._origin, origin
        try:
            yield
        finally:
            self._origin = before

    def emit(self, kind: str, inputs: Iterable[Value], shape: Sequence[int], dtype: Any, **attrs: Any) -> Value:
        """Append an op with one output; returns the output."""
        return self.emit_many(kind, inputs, [(tuple(shape), dtype)], **attrs)[0]

    def emit_like(self, kind: str, inputs: Iterable[Value], like: Value, **attrs: Any) -> Value:
        """Append an op whose one output has the shape and type of ``like``; returns the output."""
        return self.emit(kind, inputs, like.shape, like.dtype, **attrs)

    def emit_many(
        self, kind: str, inputs: Iterable[Value], outputs: Iterable[tuple[Shape, Any]], **attrs: Any
    ) -> tuple[Value, ...]:
        """Append an op with any number of outputs, given as (shape, type); returns them."""
        made = tuple(self.value(shape, dtype) for shape, dtype in outputs)
        self.ops.append(Op(kind, tuple(inputs), made, attrs, self._origin))
        return made

    # --- questions -----------------------------------------------------------------------------------------------

    def scalar(self, value: Value) -> float | int | bool | None:
        """The number that ``value`` is at every element, if it is a constant with one; else None."""
        contents = self.constants.get(value)
        if contents is None or not contents.size or not (contents == contents.flat[0]).all():
            return None
        number: float | int | bool = contents.flat[0].item()
        return number

    def made_by(self) -> dict[Value, Op]:
        """The op that makes each value."""
        return {v: op for op in self.ops for v in op.outputs}

    def needed(self, targets: Iterable[Value]) -> list[Op]:
        """The ops that ``targets`` depend on, in order."""
        wanted = set(targets)
        kept: list[Op] = []
        for op in reversed(self.ops):
            if wanted.intersection(op.outputs):
                wanted.update(op.inputs)
                kept.append(op)
        return kept[::-1]

    def differentiable(self, sources: Iterable[Value]) -> set[Value]:
        """``sources`` and every floating-point value computed from one of them along a path that is not detached."""
        reached = set(sources)
        for op in self.ops:
            if op.kind != "detach" and reached.intersection(op.inputs):
                reached.update(v for v in op.outputs if v.dtype.is_float)
        return reached

    def __str__(self) -> str:
        roles = (("input", self.inputs), ("parameter", self.parameters), ("buffer", self.buffers))
        lines = [f"{role} {v} {v.name}" for role, values in roles for v in values]
        lines += [str(op) for op in self.ops]
        lines += [f"update {b.name} = %{v.number}" for b, v in self.updates.items()]
        lines += [f"loss %{self.loss.number}"] if self.loss is not None else []
        return "\n".join([*lines, "return " + ", ".join(f"%{v.number}" for v in self.outputs)])
