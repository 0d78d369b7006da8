"""Reading equations: each becomes ops of a network, or of a region of one.

JAX has traced the function, taken its derivatives and mapped its batches before it comes here: what is left is a list
of equations, some with further lists inside. Functions that were called (``jit``, custom derivatives) are read in their
place; loops and branches have handlers, which read their bodies with :meth:`JaxprReader.body`.

Equations on constants alone are computed here, so that masks, tables of positions and keys with known seeds are
constants of the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.extend.core as jec
import numpy as np
from jax._src import source_info_util

from abele.errors import TypeMismatchError, UnsupportedOpError
from abele.frontends.jaxpr.registry import HANDLERS, PrimitiveCall, call_handler, unsupported
from abele.frontends.jaxpr.types import element_type, is_key, is_token, type_of
from abele.graph.debug import DebugRecord
from abele.network import BlockBuilder, NetworkBuilder, Value
from abele.network.interpreter import Interpreter
from abele.network.ops import build
from abele.numerics import i32
from abele.poplibs.gcl import CommGroup

Random = Literal["exact", "device"]
"""Source of random bits."""

LARGEST_KNOWN = 2**16
"""Elements of a result that is computed here, where all operands are known; larger ones are left to the device, which
makes them where they are read."""


@dataclass
class EffectOrder:
    """Order of effects in a block: calls of the host each take the value that the one before has given.

    Nothing else keeps an op whose results nobody reads, so the last value has to leave the block.

    Attributes:
        last: That of the last effect, i32[]; None before the first.
    """

    last: Value | None = None


@dataclass
class JaxprReader:
    """Reads equations into one block.

    Attributes:
        net: The block.
        values: Values of variables in it.
        missing: Equations that have no lowering, of all blocks.
        made_by: The equation that made each variable.
        differentiated: True where the network is differentiated by Abele: functions keep derivatives of their own.
        random: ``exact`` for the bits that JAX draws from a key; ``device`` for those of the machine's generator.
        axes: Replicas that an axis of a mesh, or of a map over replicas, goes along.
        order: Order of effects in the block.
    """

    net: BlockBuilder
    values: dict[Any, Any] = field(default_factory=dict)
    missing: list[UnsupportedOpError] = field(default_factory=list)
    differentiated: bool = False
    made_by: dict[Any, Any] = field(default_factory=dict)
    random: Random = "exact"
    axes: Mapping[str, CommGroup] = field(default_factory=dict)
    order: EffectOrder = field(default_factory=EffectOrder)

    # --- jaxprs ---------------------------------------------------------------------------------------------------

    def closed(self, jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
        """Results of a closed jaxpr on values of this block, appended to it."""
        return self.jaxpr(jaxpr.jaxpr, [self.constant(c) for c in jaxpr.consts], arguments)

    def jaxpr(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """Results of a jaxpr on values of this block, appended to it.

        Args:
            jaxpr: The open jaxpr.
            consts: A value for each of its constants.
            arguments: A value for each of its arguments.
        """
        inner = self.inside(self.net)
        inner.values |= zip(jaxpr.constvars, consts, strict=True)
        inner.values |= zip(jaxpr.invars, arguments, strict=True)
        for eqn in jaxpr.eqns:
            inner.equation(eqn)
        return [inner.value(v) for v in jaxpr.outvars]

    def body(self, jaxpr: Any, region: BlockBuilder, arguments: Sequence[Any], consts: Sequence[Any] = ()) -> list[Any]:
        """Results of a jaxpr, closed or open, appended to a region; what it closes over enters by itself."""
        reader = self.inside(region)
        if hasattr(jaxpr, "jaxpr"):
            return reader.closed(jaxpr, arguments)
        return reader.jaxpr(jaxpr, consts, arguments)

    def inside(self, net: BlockBuilder, **changes: Any) -> JaxprReader:
        """A reader of equations inside of those read here, into a block."""
        order = self.order if net is self.net else EffectOrder()
        return replace(self, net=net, values={}, order=order, **changes)

    def effects(self, jaxpr: Any, region: BlockBuilder, arguments: Sequence[Any], last: Value) -> list[Any]:
        """As :meth:`body`, after an effect of the block around; that of the last one in the body is the last result."""
        reader = self.inside(region)
        reader.order.last = last
        inner, consts = (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "jaxpr") else (jaxpr, ())
        return [*reader.jaxpr(inner, [reader.constant(c) for c in consts], arguments), reader.order.last]

    @property
    def last_effect(self) -> Value:
        """The value that the next effect takes."""
        if self.order.last is None:
            self.order.last = self.net.constant(0, i32)
        return self.order.last

    def of_elements(
        self, region: BlockBuilder, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Value]
    ) -> list[Value]:
        """Results of an open jaxpr of numbers, for the elements of arguments of one shape.

        Args:
            region: Block to append to.
            jaxpr: A function of numbers.
            consts: Its constants.
            arguments: An array for each of its arguments.
        """
        shape, size = arguments[0].shape, arguments[0].size
        numbers = [jax.ShapeDtypeStruct((size,), var.aval.dtype) for var in jaxpr.invars]
        mapped = jax.make_jaxpr(jax.vmap(lambda *given: jax.core.eval_jaxpr(jaxpr, consts, *given)))(*numbers)
        flat = [build.reshape(region, v, (size,)) for v in arguments]
        return [build.reshape(region, v, shape) for v in self.body(mapped, region, flat)]

    # --- values ---------------------------------------------------------------------------------------------------

    def value(self, atom: Any) -> Any:
        """The value of a variable or literal."""
        if isinstance(atom, jec.Literal):
            return self.constant(atom.val, atom.aval)
        return self.values[atom]

    def constant(self, array: Any, aval: Any = None) -> Value:
        """A constant; a key of ``jax.random`` is its words.

        Args:
            array: A number, a NumPy or JAX array, or an array of keys.
            aval: Type of it, where it is a number of Python.
        """
        dtype = array.dtype if aval is None else aval.dtype
        if is_key(dtype):
            array = jax.random.key_data(array)
        element = element_type(dtype)
        contents = np.zeros(np.shape(array), np.bool_) if dtype == jax.dtypes.float0 else np.asarray(array)
        if contents.ndim and contents.size > 1 and (contents == contents.flat[0]).all():
            contents = np.broadcast_to(contents.flat[0], contents.shape)
        return self.net.constant(contents, element)

    # --- equations ------------------------------------------------------------------------------------------------

    def equation(self, eqn: Any) -> None:
        """Append what an equation means."""
        with self.net.at(self._origin(eqn)):
            operands = [self.value(v) for v in eqn.invars]
            handler = HANDLERS.get(eqn.primitive.name)
            try:
                if handler is None:
                    raise unsupported(
                        eqn.primitive.name,
                        self.net.origin,
                        "has no lowering",
                        "express it with primitives that have one (docs/primitives.md)",
                    )
                results = self._results(eqn, handler, operands)
            except TypeMismatchError as error:
                error.at = error.at or self.net.origin.location or None
                raise
            except UnsupportedOpError as error:
                # The others are looked for as well: zeros stand for the results.
                self.missing.append(error)
                results = [None if is_token(v.aval) else self._stand_in(v.aval) for v in eqn.outvars]
        for var, made in zip(eqn.outvars, results, strict=True):
            self.values[var] = made
            self.made_by[var] = eqn

    def _results(self, eqn: Any, handler: Any, operands: Sequence[Any]) -> list[Any]:
        if eqn.outvars and not eqn.effects and all(not is_token(v.aval) and not v.aval.size for v in eqn.outvars):
            return [self._stand_in(v.aval) for v in eqn.outvars]  # Arrays without elements are made by nothing.
        known = self._known(eqn, handler, operands)
        if known is not None:
            return known
        made = call_handler(PrimitiveCall(self, self.net, eqn), handler, operands)
        return list(made) if isinstance(made, (tuple, list)) else [made]

    def _known(self, eqn: Any, handler: Any, operands: Sequence[Any]) -> list[Any] | None:
        """Results of an equation on constants, as constants; None where it is not one."""
        runs = getattr(handler, "runs", False)
        if eqn.effects or not eqn.outvars or (runs(eqn.params) if callable(runs) else runs):
            return None
        if any(not isinstance(v, Value) or self.net.contents(v) is None for v in operands):
            return None
        if any(is_token(v.aval) or np.prod(v.aval.shape, dtype=np.int64) > LARGEST_KNOWN for v in eqn.outvars):
            return None
        scratch = NetworkBuilder()
        reader = self.inside(scratch, made_by={})
        with scratch.at(self.net.origin):
            entering = [scratch.constant(self.net.contents(v), v.dtype) for v in operands]  # type: ignore[arg-type]
            made = call_handler(PrimitiveCall(reader, scratch, eqn), handler, entering)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        if scratch.seed is not None or not all(isinstance(v, Value) for v in results):
            return None
        arrays: dict[Value, Any] = {}
        with np.errstate(all="ignore"):
            Interpreter(precise=False).ops(scratch.ops, arrays)
        return [self.net.constant(arrays[v], v.dtype) for v in results]

    def _stand_in(self, aval: Any) -> Value:
        # Only the shape matters: nothing is compiled.
        try:
            shape, dtype = type_of(aval)
        except TypeMismatchError:
            shape, dtype = tuple(aval.shape), element_type(np.float32)
        return build.full(self.net, 0, shape, dtype)

    def _origin(self, eqn: Any) -> DebugRecord:
        info = eqn.source_info
        path = str(info.name_stack)
        frame = source_info_util.user_frame(info.traceback) if info.traceback is not None else None
        if frame is None:
            around = self.net.origin
            return DebugRecord(eqn.primitive.name, file=around.file, line=around.line, text=path or around.text)
        return DebugRecord(eqn.primitive.name, file=frame.file_name, line=frame.start_line, text=path)
