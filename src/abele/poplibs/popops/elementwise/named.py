"""The element-wise operations as functions: each with a new output, in place, or into a given output.

Operands are tensors, or numbers as long as one of them is a tensor; they broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError, TypeMismatchError
from abele.expr import find_popops
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import bool_
from abele.poplibs.popops.elementwise.map import map, map_with_output
from abele.poplibs.popops.expr import Expr, Op, PlaceHolder
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.rules import check_operand, check_program, is_number

__all__ = [
    "abs",
    "abs_in_place",
    "abs_with_output",
    "add",
    "add_in_place",
    "add_with_output",
    "asin",
    "asin_in_place",
    "asin_with_output",
    "atan2",
    "atan2_in_place",
    "atan2_with_output",
    "bitwise_and",
    "bitwise_and_in_place",
    "bitwise_and_with_output",
    "bitwise_not",
    "bitwise_not_in_place",
    "bitwise_not_with_output",
    "bitwise_or",
    "bitwise_or_in_place",
    "bitwise_or_with_output",
    "bitwise_xnor",
    "bitwise_xnor_in_place",
    "bitwise_xnor_with_output",
    "bitwise_xor",
    "bitwise_xor_in_place",
    "bitwise_xor_with_output",
    "cbrt",
    "cbrt_in_place",
    "cbrt_with_output",
    "ceil",
    "ceil_in_place",
    "ceil_with_output",
    "clamp",
    "clamp_in_place",
    "clamp_with_output",
    "cos",
    "cos_in_place",
    "cos_with_output",
    "count_leading_zeros",
    "count_leading_zeros_in_place",
    "count_leading_zeros_with_output",
    "div",
    "div_in_place",
    "div_with_output",
    "eq",
    "eq_in_place",
    "eq_with_output",
    "erf",
    "erf_in_place",
    "erf_with_output",
    "exp",
    "exp2",
    "exp2_in_place",
    "exp2_with_output",
    "exp_in_place",
    "exp_with_output",
    "expm1",
    "expm1_in_place",
    "expm1_with_output",
    "floor",
    "floor_in_place",
    "floor_with_output",
    "gelu_erf",
    "gelu_erf_in_place",
    "gelu_erf_with_output",
    "gt",
    "gt_in_place",
    "gt_with_output",
    "gteq",
    "gteq_in_place",
    "gteq_with_output",
    "hash",
    "hash_in_place",
    "hash_with_output",
    "inv",
    "inv_in_place",
    "inv_std_dev_to_variance",
    "inv_std_dev_to_variance_in_place",
    "inv_std_dev_to_variance_with_output",
    "inv_with_output",
    "is_finite",
    "is_finite_in_place",
    "is_finite_with_output",
    "is_inf",
    "is_inf_in_place",
    "is_inf_with_output",
    "is_nan",
    "is_nan_in_place",
    "is_nan_with_output",
    "log",
    "log1p",
    "log1p_in_place",
    "log1p_with_output",
    "log_in_place",
    "log_with_output",
    "logical_and",
    "logical_and_in_place",
    "logical_and_with_output",
    "logical_not",
    "logical_not_in_place",
    "logical_not_with_output",
    "logical_or",
    "logical_or_in_place",
    "logical_or_with_output",
    "lt",
    "lt_in_place",
    "lt_with_output",
    "lteq",
    "lteq_in_place",
    "lteq_with_output",
    "max",
    "max_in_place",
    "max_with_output",
    "min",
    "min_in_place",
    "min_with_output",
    "mul",
    "mul_in_place",
    "mul_with_output",
    "nearbyint",
    "nearbyint_in_place",
    "nearbyint_with_output",
    "neg",
    "neg_in_place",
    "neg_with_output",
    "neq",
    "neq_in_place",
    "neq_with_output",
    "popcount",
    "popcount_in_place",
    "popcount_with_output",
    "pow",
    "pow_in_place",
    "pow_with_output",
    "relu",
    "relu_in_place",
    "relu_with_output",
    "rem",
    "rem_in_place",
    "rem_with_output",
    "round",
    "round_in_place",
    "round_with_output",
    "rsqrt",
    "rsqrt_in_place",
    "rsqrt_with_output",
    "select",
    "select_in_place",
    "select_with_output",
    "shift_left",
    "shift_left_in_place",
    "shift_left_with_output",
    "shift_right",
    "shift_right_in_place",
    "shift_right_sign_extend",
    "shift_right_sign_extend_in_place",
    "shift_right_sign_extend_with_output",
    "shift_right_with_output",
    "sigmoid",
    "sigmoid_in_place",
    "sigmoid_with_output",
    "signum",
    "signum_in_place",
    "signum_with_output",
    "sin",
    "sin_in_place",
    "sin_with_output",
    "sqrt",
    "sqrt_in_place",
    "sqrt_with_output",
    "square",
    "square_in_place",
    "square_with_output",
    "sub",
    "sub_in_place",
    "sub_with_output",
    "tan",
    "tan_in_place",
    "tan_with_output",
    "tanh",
    "tanh_in_place",
    "tanh_with_output",
    "trunc",
    "trunc_in_place",
    "trunc_with_output",
    "variance_to_inv_std_dev",
    "variance_to_inv_std_dev_in_place",
    "variance_to_inv_std_dev_with_output",
]

Operand = Tensor | float | int | bool


@dataclass(frozen=True)
class _Function:
    """One form of an operation.

    Attributes:
        op: The operation.
    """

    op: str

    def expression(self, graph: Graph, operands: tuple[Operand, ...], prog: Sequence) -> tuple[Expr, list[Tensor]]:
        """The operation over placeholders for the tensors among ``operands``, and those tensors.

        Raises:
            InvalidOptionError: No operand is a tensor.
            TypeMismatchError: An operand is neither a tensor nor a number, or ``prog`` is no sequence.
            TensorError: A tensor of another graph.
        """
        check_program(self.op, "prog", prog, graph)
        for n, operand in enumerate(operands):
            if not is_number(operand):
                check_operand(self.op, f"operand {n}", operand, graph)
        predicate = operands[-1]
        if self.op == "select" and isinstance(predicate, Tensor) and predicate.dtype != bool_:
            raise TypeMismatchError(
                f"select: the predicate {predicate!r} is {predicate.dtype}, it must be bool",
                remedy="select(then, otherwise, predicate): the predicate comes last",
            )
        tensors = [o for o in operands if isinstance(o, Tensor)]
        if not tensors:
            raise InvalidOptionError(f"{self.op} of numbers alone: {operands}", remedy="one operand must be a tensor")
        numbers = iter(range(1, len(tensors) + 1))
        args = [PlaceHolder(next(numbers)) if isinstance(o, Tensor) else o for o in operands]
        return Op(self.op, *args), tensors

    def new(self, graph: Graph, operands: tuple[Operand, ...], prog: Sequence, name: str, options: Options) -> Tensor:
        """The operation as a new tensor."""
        expression, tensors = self.expression(graph, operands, prog)
        return map(graph, expression, tensors, prog, name or self.op, options=options)

    def into(
        self, graph: Graph, operands: tuple[Operand, ...], out: Operand, prog: Sequence, name: str, options: Options
    ) -> None:
        """The operation into ``out``."""
        expression, tensors = self.expression(graph, operands, prog)
        if not isinstance(out, Tensor):
            raise InvalidOptionError(f"{self.op} cannot write to the number {out}", remedy="give a tensor first")
        check_operand(self.op, "the output", out, graph)
        map_with_output(graph, expression, tensors, out, prog, name or self.op, options=options)


class UnaryFunction(_Function):
    """A one-operand operation that makes a new tensor."""

    def __call__(self, graph: Graph, x: Tensor, prog: Sequence, name: str = "", *, options: Options = None) -> Tensor:
        """The operation on every element of ``x``, in a new tensor."""
        return self.new(graph, (x,), prog, name, options)


class UnaryInPlace(_Function):
    """A one-operand operation that overwrites it."""

    def __call__(self, graph: Graph, x: Tensor, prog: Sequence, name: str = "", *, options: Options = None) -> None:
        """Overwrite every element of ``x`` with the operation on it."""
        self.into(graph, (x,), x, prog, name, options)


class UnaryWithOutput(_Function):
    """A one-operand operation into a given tensor."""

    def __call__(
        self, graph: Graph, x: Tensor, out: Tensor, prog: Sequence, name: str = "", *, options: Options = None
    ) -> None:
        """Write the operation on every element of ``x`` to ``out``."""
        self.into(graph, (x,), out, prog, name, options)


class BinaryFunction(_Function):
    """A two-operand operation that makes a new tensor."""

    def __call__(
        self, graph: Graph, x: Operand, y: Operand, prog: Sequence, name: str = "", *, options: Options = None
    ) -> Tensor:
        """The operation on ``x`` and ``y``, broadcast, in a new tensor."""
        return self.new(graph, (x, y), prog, name, options)


class BinaryInPlace(_Function):
    """A two-operand operation that overwrites the first."""

    def __call__(
        self, graph: Graph, x: Tensor, y: Operand, prog: Sequence, name: str = "", *, options: Options = None
    ) -> None:
        """Overwrite ``x`` with the operation on ``x`` and ``y``."""
        self.into(graph, (x, y), x, prog, name, options)


class BinaryWithOutput(_Function):
    """A two-operand operation into a given tensor."""

    def __call__(
        self,
        graph: Graph,
        x: Operand,
        y: Operand,
        out: Tensor,
        prog: Sequence,
        name: str = "",
        *,
        options: Options = None,
    ) -> None:
        """Write the operation on ``x`` and ``y`` to ``out``."""
        self.into(graph, (x, y), out, prog, name, options)


class Ternary(_Function):
    """A three-operand operation that makes a new tensor."""

    def __call__(
        self,
        graph: Graph,
        x: Operand,
        y: Operand,
        z: Operand,
        prog: Sequence,
        name: str = "",
        *,
        options: Options = None,
    ) -> Tensor:
        """The operation on ``x``, ``y`` and ``z``, broadcast, in a new tensor."""
        return self.new(graph, (x, y, z), prog, name, options)


class TernaryInPlace(_Function):
    """A three-operand operation that overwrites the first."""

    def __call__(
        self,
        graph: Graph,
        x: Tensor,
        y: Operand,
        z: Operand,
        prog: Sequence,
        name: str = "",
        *,
        options: Options = None,
    ) -> None:
        """Overwrite ``x`` with the operation on ``x``, ``y`` and ``z``."""
        self.into(graph, (x, y, z), x, prog, name, options)


class TernaryWithOutput(_Function):
    """A three-operand operation into a given tensor."""

    def __call__(
        self,
        graph: Graph,
        x: Operand,
        y: Operand,
        z: Operand,
        out: Tensor,
        prog: Sequence,
        name: str = "",
        *,
        options: Options = None,
    ) -> None:
        """Write the operation on ``x``, ``y`` and ``z`` to ``out``."""
        self.into(graph, (x, y, z), out, prog, name, options)


def _unary(op: str) -> tuple[UnaryFunction, UnaryInPlace, UnaryWithOutput]:
    find_popops(op)
    return UnaryFunction(op), UnaryInPlace(op), UnaryWithOutput(op)


def _binary(op: str) -> tuple[BinaryFunction, BinaryInPlace, BinaryWithOutput]:
    find_popops(op)
    return BinaryFunction(op), BinaryInPlace(op), BinaryWithOutput(op)


def _ternary(op: str) -> tuple[Ternary, TernaryInPlace, TernaryWithOutput]:
    find_popops(op)
    return Ternary(op), TernaryInPlace(op), TernaryWithOutput(op)


add, add_in_place, add_with_output = _binary("add")
sub, sub_in_place, sub_with_output = _binary("sub")
mul, mul_in_place, mul_with_output = _binary("mul")
div, div_in_place, div_with_output = _binary("div")
rem, rem_in_place, rem_with_output = _binary("rem")
pow, pow_in_place, pow_with_output = _binary("pow")
atan2, atan2_in_place, atan2_with_output = _binary("atan2")
max, max_in_place, max_with_output = _binary("max")
min, min_in_place, min_with_output = _binary("min")
eq, eq_in_place, eq_with_output = _binary("eq")
neq, neq_in_place, neq_with_output = _binary("neq")
lt, lt_in_place, lt_with_output = _binary("lt")
lteq, lteq_in_place, lteq_with_output = _binary("lteq")
gt, gt_in_place, gt_with_output = _binary("gt")
gteq, gteq_in_place, gteq_with_output = _binary("gteq")
logical_and, logical_and_in_place, logical_and_with_output = _binary("logical_and")
logical_or, logical_or_in_place, logical_or_with_output = _binary("logical_or")
bitwise_and, bitwise_and_in_place, bitwise_and_with_output = _binary("bitwise_and")
bitwise_or, bitwise_or_in_place, bitwise_or_with_output = _binary("bitwise_or")
bitwise_xor, bitwise_xor_in_place, bitwise_xor_with_output = _binary("bitwise_xor")
bitwise_xnor, bitwise_xnor_in_place, bitwise_xnor_with_output = _binary("bitwise_xnor")
shift_left, shift_left_in_place, shift_left_with_output = _binary("shift_left")
shift_right, shift_right_in_place, shift_right_with_output = _binary("shift_right")
shift_right_sign_extend, shift_right_sign_extend_in_place, shift_right_sign_extend_with_output = _binary(
    "shift_right_sign_extend"
)
variance_to_inv_std_dev, variance_to_inv_std_dev_in_place, variance_to_inv_std_dev_with_output = _binary(
    "variance_to_inv_std_dev"
)
inv_std_dev_to_variance, inv_std_dev_to_variance_in_place, inv_std_dev_to_variance_with_output = _binary(
    "inv_std_dev_to_variance"
)
abs, abs_in_place, abs_with_output = _unary("abs")
neg, neg_in_place, neg_with_output = _unary("neg")
square, square_in_place, square_with_output = _unary("square")
relu, relu_in_place, relu_with_output = _unary("relu")
inv, inv_in_place, inv_with_output = _unary("inv")
sqrt, sqrt_in_place, sqrt_with_output = _unary("sqrt")
rsqrt, rsqrt_in_place, rsqrt_with_output = _unary("rsqrt")
exp, exp_in_place, exp_with_output = _unary("exp")
exp2, exp2_in_place, exp2_with_output = _unary("exp2")
expm1, expm1_in_place, expm1_with_output = _unary("expm1")
log, log_in_place, log_with_output = _unary("log")
log1p, log1p_in_place, log1p_with_output = _unary("log1p")
tanh, tanh_in_place, tanh_with_output = _unary("tanh")
sigmoid, sigmoid_in_place, sigmoid_with_output = _unary("sigmoid")
erf, erf_in_place, erf_with_output = _unary("erf")
gelu_erf, gelu_erf_in_place, gelu_erf_with_output = _unary("gelu_erf")
sin, sin_in_place, sin_with_output = _unary("sin")
cos, cos_in_place, cos_with_output = _unary("cos")
tan, tan_in_place, tan_with_output = _unary("tan")
asin, asin_in_place, asin_with_output = _unary("asin")
cbrt, cbrt_in_place, cbrt_with_output = _unary("cbrt")
ceil, ceil_in_place, ceil_with_output = _unary("ceil")
floor, floor_in_place, floor_with_output = _unary("floor")
trunc, trunc_in_place, trunc_with_output = _unary("trunc")
round, round_in_place, round_with_output = _unary("round")
nearbyint, nearbyint_in_place, nearbyint_with_output = _unary("nearbyint")
signum, signum_in_place, signum_with_output = _unary("signum")
is_finite, is_finite_in_place, is_finite_with_output = _unary("is_finite")
is_inf, is_inf_in_place, is_inf_with_output = _unary("is_inf")
is_nan, is_nan_in_place, is_nan_with_output = _unary("is_nan")
logical_not, logical_not_in_place, logical_not_with_output = _unary("logical_not")
bitwise_not, bitwise_not_in_place, bitwise_not_with_output = _unary("bitwise_not")
popcount, popcount_in_place, popcount_with_output = _unary("popcount")
count_leading_zeros, count_leading_zeros_in_place, count_leading_zeros_with_output = _unary("count_leading_zeros")
hash, hash_in_place, hash_with_output = _unary("hash")
select, select_in_place, select_with_output = _ternary("select")
clamp, clamp_in_place, clamp_with_output = _ternary("clamp")
