"""Sparse tensors of PyTorch while a model is recorded: their products become products with sparse weights.

PyTorch records no tensor of a sparse layout. So for as long as a model is recorded, a dense parameter or buffer of its
values stands for each sparse one, and the model's code finds a :class:`SparseOperand` under its name, which says what
functions of PyTorch mean for it: products, transposes and ``to_dense()``. Patterns are known then; those that would
follow from data are refused, and so are products of two sparse matrices.

Example: a parameter of 64 × 32 in compressed rows with 200 values is recorded as a parameter f32[200, 1, 1], and
``functional.linear(x, weight)`` is one operator with the pattern of the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from abele.errors import UnsupportedOpError
from abele.frontends.poptorch.capture.sparse_products import (
    PATTERNS,
    PLANS,
    dense_weight,
    sampled_product,
    sparse_linear,
)
from abele.frontends.poptorch.program.blocks import user_line
from abele.frontends.poptorch.values.sparse import held_values, is_sparse, pattern_of
from abele.sparsity import Pattern

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class SparseOperand:
    """A sparse matrix as recorded code sees it.

    Attributes:
        find: Gives the values [blocks, block rows, block columns], as they are recorded.
        pattern: Blocks that are held.
        turned: True if the matrix is the transpose of what the pattern is of.
        layout: PyTorch's layout.
    """

    find: Callable[[], Tensor]
    pattern: Pattern
    turned: bool
    layout: torch.layout

    @classmethod
    def of(cls, tensor: Tensor, find: Callable[[], Tensor] | None = None) -> SparseOperand:
        """The operand of a sparse tensor; its values are constants where nothing stands for them."""
        pattern, turned = pattern_of(tensor)
        values = held_values(tensor)
        return cls(find or (lambda: values), pattern, turned, tensor.layout)

    @property
    def shape(self) -> torch.Size:
        """Rows and columns."""
        return torch.Size(self.pattern.shape[::-1] if self.turned else self.pattern.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.find().dtype

    @property
    def ndim(self) -> int:
        """Two."""
        return 2

    @property
    def is_sparse(self) -> bool:
        """True for coordinates, as PyTorch says it."""
        return self.layout == torch.sparse_coo

    def size(self, dim: int | None = None) -> Any:
        """Rows and columns, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Two."""
        return 2

    def t(self) -> SparseOperand:
        """The transpose."""
        return replace(self, turned=not self.turned)

    T = property(t)

    def to_dense(self) -> Tensor:
        """The dense matrix."""
        weight = dense_weight(self.find(), self.pattern)
        return weight.T if self.turned else weight

    def times(self, dense: Tensor) -> Tensor:
        """S · dense [..., k, n], or of a vector [k]."""
        if dense.dim() == 1:
            return self.rows_times(dense)
        return self.rows_times(dense.transpose(-1, -2)).transpose(-1, -2)

    def rows_times(self, x: Tensor, *, transposed: bool = True) -> Tensor:
        """x · Sᵀ for x [..., k]; or x · S."""
        by_columns = self.turned == transposed
        return sparse_linear(x, self.find(), self.pattern, transposed=by_columns)

    def __matmul__(self, other: Any) -> Any:
        return _product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _product(other, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = getattr(Tensor, name)
        if not callable(function):
            raise _refused(name)
        return lambda *args, **kwargs: self.__torch_function__(function, (), (self, *args), kwargs)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Meaning of a function of PyTorch with a sparse matrix among its arguments.

        Raises:
            UnsupportedOpError: Nothing that can be recorded.
        """
        name = getattr(function, "__name__", str(function))
        meaning = _MEANINGS.get(name)
        if meaning is None:
            raise _refused(name)
        return meaning(*args, **(kwargs or {}))


def _refused(name: str, what: str = "of a sparse tensor", remedy: str | None = None) -> UnsupportedOpError:
    return UnsupportedOpError(
        f"{name} {what} has no lowering",
        at=user_line() or None,
        remedy=remedy or "products with dense matrices have one; to_dense() makes any other call possible",
    )


def _product(a: Any, b: Any, *, out: None = None) -> Tensor:
    if isinstance(a, SparseOperand) and isinstance(b, SparseOperand):
        raise _refused("the product", "of two sparse matrices", "a.to_dense() @ b, or multiply them beforehand")
    if isinstance(a, SparseOperand):
        return a.times(b)
    made: Tensor = b.rows_times(a, transposed=False)
    return made


def _reversed_product(b: Any, a: Any) -> Tensor:
    return _product(a, b)


def _linear(x: Any, weight: Any, bias: Tensor | None = None) -> Tensor:
    if isinstance(x, SparseOperand):
        if isinstance(weight, SparseOperand):
            return _product(x, weight.t())
        made = x.times(weight.t())
    else:
        made = weight.rows_times(x)
    return made if bias is None else made + bias


def _added(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if isinstance(c, SparseOperand):
        raise _refused("addmm", "of a sparse addend")
    product = _product(a, b)
    scaled = product if alpha == 1 else product * alpha
    return scaled if beta == 0 else (c if beta == 1 else c * beta) + scaled


def _sampled(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1, out: None = None) -> SparseOperand:
    """alpha · a · b at the places of c, plus beta · c."""
    if not isinstance(c, SparseOperand) or isinstance(a, SparseOperand) or isinstance(b, SparseOperand):
        raise _refused("sampled_addmm", "of sparse factors")
    left, right = (b.T, a) if c.turned else (a, b.T)
    product = sampled_product(left, right, c.pattern)
    values = product * alpha + c.find() * beta if beta else product * alpha
    return replace(c, find=lambda: values)


def _transposed(sparse: SparseOperand, first: int, second: int) -> SparseOperand:
    return sparse if first % 2 == second % 2 else sparse.t()


def _typed(sparse: SparseOperand, *args: Any, **kwargs: Any) -> SparseOperand:
    """The operand in another type; there is one device."""
    found = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)]
    return replace(sparse, find=lambda: sparse.find().to(found[0])) if found else sparse


_MEANINGS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mm", "matmul", "__matmul__", "mv", "_sparse_mm", "smm", "spmm", "hspmm"), _product),
    "__rmatmul__": _reversed_product,
    "linear": _linear,
    **dict.fromkeys(("addmm", "addmv", "_sparse_addmm"), _added),
    **dict.fromkeys(("sampled_addmm", "sparse_sampled_addmm"), _sampled),
    **dict.fromkeys(("t", "adjoint"), SparseOperand.t),
    **dict.fromkeys(("transpose", "swapaxes"), _transposed),
    "to_dense": SparseOperand.to_dense,
    "to": _typed,
    **dict.fromkeys(("half",), lambda s: _typed(s, torch.float16)),
    **dict.fromkeys(("float",), lambda s: _typed(s, torch.float32)),
    **dict.fromkeys(("coalesce", "contiguous", "detach"), lambda s: s),
}
"""Functions and methods by name."""

_MAKERS = {
    *(getattr(torch, f"sparse_{kind}_tensor") for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed")),
    *(getattr(Tensor, f"to_sparse{kind}") for kind in ("", "_coo", "_csr", "_csc", "_bsr", "_bsc")),
}
"""Functions that make sparse tensors."""


class SparseCalls(TorchFunctionMode):
    """Calls with sparse tensors mean what :class:`SparseOperand` says; sparse tensors of data are refused."""

    def __init__(self) -> None:
        super().__init__()
        self._operands: dict[int, tuple[Tensor, SparseOperand]] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function, or its meaning for sparse operands."""
        given = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # It reads this code as well, for bodies of loops.
            return function(*args, **given)
        if function in _MAKERS:
            raise UnsupportedOpError(
                f"{function.__name__} in forward makes a sparse tensor whose pattern depends on data",
                at=user_line() or None,
                remedy="make it beforehand, as an attribute, a buffer or a parameter of the model; for patterns that "
                "change between steps poptorch.sparse.SparseLinear(…, dynamic=True)",
            )
        args = tuple(map(self._operand, args))
        given = {name: self._operand(value) for name, value in given.items()}
        if any(isinstance(value, SparseOperand) for value in (*args, *given.values())):
            return SparseOperand.__torch_function__(function, types, args, given)
        return function(*args, **given)

    def _operand(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not is_sparse(value):
            return value
        if id(value) not in self._operands:
            with torch._C.DisableTorchFunction(), _disable_current_modes():  # It is read, not recorded.
                self._operands[id(value)] = value, SparseOperand.of(value)
        return self._operands[id(value)][1]


@contextmanager
def sparse_held(model: torch.nn.Module) -> Iterator[None]:
    """Dense values in place of a model's sparse parameters and buffers inside; its code finds operands.

    Raises:
        SparsePatternError: One is no matrix, or not in order.
    """
    PATTERNS.clear()
    PLANS.clear()
    changed: list[tuple[dict[str, Any], str, Tensor, dict[str, Any]]] = []
    stand_ins: dict[int, Tensor] = {}
    try:
        for module in model.modules():
            tables: tuple[dict[str, Any], ...] = module._parameters, module._buffers, module.__dict__
            for table in tables:
                for name, tensor in list(table.items()):
                    if isinstance(tensor, Tensor) and is_sparse(tensor):
                        changed.append((table, name, tensor, module.__dict__))
                        _stand_in(module, table, name, stand_ins)
        yield
    finally:
        for table, name, tensor, own in changed:
            own.pop(name, None)
            table[name] = tensor


def _stand_in(module: torch.nn.Module, table: dict[str, Any], name: str, stand_ins: dict[int, Tensor]) -> None:
    tensor = table[name]
    if table is module.__dict__:
        table[name] = SparseOperand.of(tensor)
        return
    operand = SparseOperand.of(tensor, lambda: table[name])
    if id(tensor) not in stand_ins:
        values = held_values(tensor)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        stand_ins[id(tensor)] = torch.nn.Parameter(values, tensor.requires_grad) if is_parameter else values
    table[name] = stand_ins[id(tensor)]
    module.__dict__[name] = operand
