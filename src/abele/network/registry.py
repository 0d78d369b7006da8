"""The table of op rules: what each kind of op is, in one place.

A kind is a class of three parts: legal operands, attributes and results, and its meaning in NumPy (:class:`OpMeaning`);
what it simplifies to, and its derivative (:class:`OpRewrites`); and its lowering to libraries (:class:`OpLowering`).
:func:`rule` registers it; a new kind touches the one file that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.errors import NetworkError, UnsupportedOpError, nearest
from abele.network.ir.part import ValuePart, whole_digits

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering
    from abele.graph import Tensor, TileMapping
    from abele.network.interpreter import Interpreter
    from abele.network.ir.builder import BlockBuilder
    from abele.network.ir.op import NetworkOp
    from abele.network.ir.value import Shape, Value
    from abele.numerics import ElementType
    from abele.poplibs.poputil.order import StorageOrder

Gradients = Sequence["Value | None"]
Types = Iterable[tuple["Shape", "ElementType"]]


class OpMeaning:
    """Legal ops of a kind and their results: asked by the verifier, the printer and the interpreter.

    Attributes:
        operands: Number of operands, or the least and the most (None: any number).
        attributes: Name and Python type (or types) of each attribute; all are required, no others allowed.
        planned: True if libraries plan it: it may have an attribute ``hint``, a
            :class:`~abele.network.ir.op.PlanHint`, besides the others.
        hinted: True if it may have one, though it is none of the products that programs are cut and costed by.
        region_names: Names of the regions in listings; the last name stands for all further ones.
    """

    operands: ClassVar[int | tuple[int, int | None]] = 1
    attributes: ClassVar[Mapping[str, Any]] = {}
    planned: ClassVar[bool] = False
    hinted: ClassVar[bool] = False
    region_names: ClassVar[tuple[str, ...]] = ()

    def types(self, op: NetworkOp) -> Types:
        """The shape rule: types of the results, from operands and attributes.

        Where the op chooses a type within limits (the shape of a reshape, the element type of a map), the limits are
        checked and the chosen type is given back.

        Raises:
            NetworkError: The operands do not fit each other or the attributes; :func:`require` raises it.
        """
        raise NotImplementedError

    def evaluate(self, op: NetworkOp, *args: Any, **kwargs: Any) -> Any:
        """The outputs, from the inputs as NumPy arrays: the definition of the kind."""
        raise NotImplementedError

    def interpret(self, run: Interpreter, op: NetworkOp, args: Sequence[Array]) -> Any:
        """As :meth:`evaluate`, for kinds with blocks that ``run`` can interpret."""
        return self.evaluate(op, *args)


class OpRewrites:
    """Equivalent ops and derivatives: asked by passes and by :func:`~abele.network.autodiff.differentiate`.

    Attributes:
        folds: True if an op on constants alone may be computed when the network is compiled.
        repeats: True if equal ops have equal results, so that one can stand for both.
    """

    folds: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | tuple[Value, ...] | None:
        """Simpler equivalent of the op, appended to ``net``; None to leave it as it is.

        What is appended must itself be simpler (fewer or cheaper ops), so that simplifying ends.
        """
        return None

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """Parts of the operands that are needed for ``part`` of the result.

        Returns:
            The part that :meth:`emit_part` makes, which has all of ``part``, and for it the part of each operand; None
            for an operand of which nothing is needed. By default everything is.
        """
        return ValuePart.whole(op.output.shape), [ValuePart.whole(v.shape) for v in op.inputs]

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """Append what makes ``part`` of the result of the parts of those operands of which anything is needed."""
        return net.emit(op.kind, inputs, part.shape, op.output.dtype, **op.attrs)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Append ops for the gradients of the inputs, given those of the outputs.

        Args:
            net: Network or block to extend.
            op: The op to differentiate.
            grads: Gradient of the loss by each output; None where the loss does not depend on it.
            wanted: For each input, whether its gradient is needed.

        Returns:
            One value per input; None where the input has no gradient or it is not wanted.
        """
        raise no_derivative(op)


class OpLowering:
    """Layouts and library calls: asked by :class:`~abele.distribution.lowering.Lowering`.

    Attributes:
        reads_eagerly: False if the op itself sees to it that its operands become variables.
        wants_one_piece: True if matrices that several variables show together are copied into one before the op reads
            them.
        laid_together: Operands that :meth:`layout_together` makes as views of one variable, where all of them are new.
        depends_on_operands_alone: True if lowering depends on nothing but attributes, operands and what results are to
            be laid out like, and changes nothing but the graph and the program. False also where
            it costs less than looking for what was lowered before.
        lays_out_by_operands: True if :meth:`layout` looks at how other operands lie.
        adds_to_sums: True if :meth:`lower_onto` can add the result to a sum, so that it has no tensor of its own.
    """

    reads_eagerly: ClassVar[bool] = True
    wants_one_piece: ClassVar[bool] = False
    laid_together: ClassVar[tuple[int, ...]] = ()
    depends_on_operands_alone: ClassVar[bool] = True
    lays_out_by_operands: ClassVar[bool] = False
    adds_to_sums: ClassVar[bool] = False

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True if an operand may have a type ``dtype`` whose numbers its own has: vertices convert what they load."""
        return False

    def rounds(self, op: NetworkOp) -> bool:
        """True if the first result may have a narrower float type: vertices round what they store."""
        return False

    def waits_for_reader(self, to: Lowering, op: NetworkOp) -> bool:
        """True if an op is lowered when its result is first read, which may then lie as the reader's operands do."""
        return False

    def beside(self, op: NetworkOp, operand: int) -> Iterable[Value]:
        """Operands like one of which input ``operand`` is laid out, where it is a new variable and one of them is not.

        Those of its shape, for ops that go through operands element by element; none, where :meth:`layout` decides.
        """
        return ()

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """A new variable for input ``operand`` in the layout that the op wants, or None when it does not care.

        It is asked once for ops of equal attributes and operand types.
        """
        return None

    def constant_layout(self, to: Lowering, op: NetworkOp, operand: int) -> tuple[StorageOrder, TileMapping] | None:
        """Storage order and tiles for input ``operand``, a constant that nothing has read; None to spread it linearly.

        The order is of the operand's shape with ones before it, as many as it lacks dimensions.
        """
        return None

    def layout_together(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The operands of :attr:`laid_together`, as the op wants them; it is asked as :meth:`layout` is."""
        raise NotImplementedError

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor | tuple[Tensor | None, ...]:
        """Append the library calls that compute ``op``; returns its outputs, None for those that nothing reads."""
        raise NotImplementedError

    def lower_onto(self, to: Lowering, op: NetworkOp, total: Tensor, scale: float) -> None:
        """Append what adds the result of ``op``, times ``scale``, to ``total``, for kinds with :attr:`adds_to_sums`."""
        raise NotImplementedError


class OpRule(OpMeaning, OpRewrites, OpLowering):
    """Rules for the ops of one kind. Subclasses are registered with :func:`rule` and have no state."""


class LazyReader(OpRule):
    """A kind that reads its operands itself, such as one with a body, or a copy from another IPU.

    Its operands become variables when something inside first reads them, so that more than they decides its lowering.
    """

    folds = False
    reads_eagerly = False
    depends_on_operands_alone = False


class Stateful(OpRule):
    """A kind that reads or changes what lives longer than its operands: equal ops have other results."""

    folds = False
    repeats = False
    depends_on_operands_alone = False


class RowWise(OpRule):
    """A kind whose result has the shape of its operands, made of each index of the first dimensions by itself.

    Attributes:
        row_dims: Number of last dimensions that are made together.
    """

    row_dims: ClassVar[int] = 0

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of every operand, since rows are independent."""
        made = part.with_whole(*range(-self.row_dims, 0))
        return made, [made] * len(op.inputs)

    def beside(self, op: NetworkOp, operand: int) -> Sequence[Value]:
        """The other operands of its type."""
        value = op.inputs[operand]
        return [v for v in op.inputs if v is not value and v.type == value.type]


def broadcast_needs(op: NetworkOp, part: ValuePart) -> list[ValuePart]:
    """Parts of operands that broadcast to the result, as needed for ``part`` of it."""
    return [
        ValuePart(
            tuple(
                digits if n == extent else whole_digits(n)
                for n, extent, digits in zip(v.shape, op.output.shape[-v.ndim :], part.dims[-v.ndim :], strict=True)
            )
            if v.ndim
            else ()
        )
        for v in op.inputs
    ]


def no_derivative(op: NetworkOp, what: str | None = None, remedy: str | None = None) -> UnsupportedOpError:
    """The error that an op has no derivative."""
    return UnsupportedOpError(
        f"{what or op.kind} has no derivative",
        at=str(op.debug),
        remedy=remedy or "detach() its result, or freeze the parameters that it depends on",
    )


def only(grads: Gradients) -> Value:
    """The gradient of an op's one output."""
    (grad,) = grads
    assert grad is not None
    return grad


def require(condition: object, problem: str) -> None:
    """Raise unless ``condition`` holds.

    Raises:
        NetworkError: It does not; ``problem`` says what is wrong with the op.
    """
    if not condition:
        raise NetworkError(problem)


def broadcast(*shapes: Shape) -> Shape:
    """The shape that ``shapes`` broadcast to.

    Raises:
        NetworkError: They do not.
    """
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        listed = ", ".join(str(list(s)) for s in shapes)
        raise NetworkError(f"the shapes {listed} do not broadcast") from None


RULES: dict[str, OpRule] = {}


def rule(*kinds: str) -> Callable[[type[OpRule]], type[OpRule]]:
    """Register a rule class for the given kinds of op."""

    def register(cls: type[OpRule]) -> type[OpRule]:
        for kind in kinds:
            assert kind not in RULES, f"{kind} is registered twice"
            RULES[kind] = cls()
        return cls

    return register


def rule_of(op: NetworkOp) -> OpRule:
    """The rule of an op's kind.

    Raises:
        UnsupportedOpError: There is none.
    """
    if op.kind not in RULES:
        close = nearest(op.kind, RULES)
        raise UnsupportedOpError(
            f"no rule for an op of kind {op.kind!r}", at=str(op.debug), remedy=f"{close!r} exists" if close else None
        )
    return RULES[op.kind]
