"""Matrix products."""

from __future__ import annotations

from dataclasses import replace

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Program
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.contraction.binding import Binding
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.lowering.call import ContractionCall, cheapest
from abele.poplibs.poplin.options import Planning, read_settings, resolve_types
from abele.poplibs.poplin.planner.rearranging import SIDES
from abele.poplibs.poputil.options import Options
from abele.words import counted


def matmul(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    prog: Program,
    *,
    output_type: ElementType | str | None = None,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    like: Tensor | None = None,
    name: str = "matmul",
) -> Tensor:
    """The product ``a @ b``.

    Args:
        graph: The graph.
        a: Left matrix, [m, k]; any view, transposed ones too.
        b: Right matrix, [k, n].
        prog: Where the call is appended.
        output_type: Type of the result; by default that of the operands.
        partials_type: Type of partial sums; by default f32.
        available_memory_proportion: Share of a tile's memory that slices and partials may take; by default 0.6.
        options: PopLibs' options, by name.
        like: A tensor [m, n] whose storage order and tile mapping the result takes.
        name: Name of the call.

    Returns:
        The product, [m, n], columns grouped innermost; on the tiles that computed it.

    Raises:
        TensorError: Shapes that do not fit each other.
        TypeMismatchError: Operands of different types, or a type that the matrix units do not take.
        InvalidOptionError: An unknown option, or a value that it does not take.
        OutOfMemoryError: No split fits the tiles.
    """
    _check_matrices(name, a, b, ("m", "k"), ("k", "n"))
    settings = read_settings(name, options, partials_type, available_memory_proportion)
    types = resolve_types(name, {f"a {a.name!r}": a.dtype, f"b {b.name!r}": b.dtype}, output_type, settings.partials)
    problem = problems.matmul(
        1, a.shape[0], a.shape[1], columns=b.shape[1], dtype=types.dtype, partials=types.partials, output=types.output
    )
    return product_call(
        graph, "poplin.matmul", name, problem=problem, a=a, b=b, planning=settings.planning, like=like
    ).append(prog)


def matmul_grouped(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    prog: Program,
    *,
    output_type: ElementType | str | None = None,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    like: Tensor | None = None,
    name: str = "matmul_grouped",
) -> Tensor:
    """The products ``a[i] @ b[i]`` of [g, m, k] and [g, k, n]: [g, m, n].

    Other arguments and errors as of :func:`matmul`.
    """
    _check_matrices(name, a, b, ("g", "m", "k"), ("g", "k", "n"))
    settings = read_settings(name, options, partials_type, available_memory_proportion)
    types = resolve_types(name, {f"a {a.name!r}": a.dtype, f"b {b.name!r}": b.dtype}, output_type, settings.partials)
    extents = a.shape[0], a.shape[1], a.shape[2], b.shape[2]
    problem = problems.matmul(*extents, dtype=types.dtype, partials=types.partials, output=types.output)
    function = "poplin.matmul_grouped"
    return product_call(graph, function, name, problem=problem, a=a, b=b, planning=settings.planning, like=like).append(
        prog
    )


def product_call(
    graph: Graph,
    function: str,
    name: str,
    problem: Contraction,
    a: Tensor,
    b: Tensor,
    planning: Planning,
    like: Tensor | None = None,
    *,
    swapped: bool | None = None,
) -> ContractionCall:
    """The call that makes the product: rows as the batch, or columns (swapped: the left operand is held as weights).

    Columns are the batch where that is said, where that writes ``like`` along its memory, or where that is faster.
    PopLibs lays operands out for swapped products and takes all three sides to be rearranged for others, so it keeps
    the left operand in the units unless the other way saves more than that. Source: machine.md §4.16.
    """
    if swapped is None and like is not None:
        swapped = Binding(like, _roles(like, "b", "co"), problem.groups).operand().innermost == "b"
    if swapped is None:
        swapped = planning.swaps
    calls = []
    for swap in (True, False) if swapped is None else (swapped,):
        asked = replace(problem, batch=problem.out_channels, out_channels=problem.batch) if swap else problem
        row, column = ("co", "b") if swap else ("b", "co")
        left = Binding(a, _roles(a, row, "ci"), problem.groups)
        right = Binding(b, _roles(b, "ci", column), problem.groups)
        x, w = (right, left) if swap else (left, right)
        calls.append(
            ContractionCall(
                graph,
                function=function,
                name=name,
                problem=asked,
                x=x,
                w=w,
                out_roles=_roles(a, row, column),
                planning=planning,
                like=like,
                charged=() if swap else SIDES,
            )
        )
    return cheapest(calls)


def is_swapped(call: ContractionCall) -> bool:
    """True if the columns of a product take the part of the rows."""
    return call.out_roles[-1] == "b"


def _roles(tensor: Tensor, *roles: str) -> tuple[str, ...]:
    """Roles of a matrix's dimensions, groups before them where there are any."""
    return ("g", *roles) if tensor.ndim == 3 else roles


def _check_matrices(name: str, a: Tensor, b: Tensor, a_dims: tuple[str, ...], b_dims: tuple[str, ...]) -> None:
    for label, tensor, dims in (("a", a, a_dims), ("b", b, b_dims)):
        if tensor.ndim != len(dims):
            raise TensorError(
                f"{name}: {label} must be [{', '.join(dims)}], got {tensor!r}",
                remedy="reshape it, or use matmul_grouped for three dimensions" if len(dims) == 2 else None,
            )
        if tensor.size == 0:
            raise TensorError(f"{name}: {label} {tensor!r} has no elements")
    if a.shape[-1] != b.shape[-2]:
        raise TensorError(
            f"{name}: a has {counted(a.shape[-1], 'column')}, b has {counted(b.shape[-2], 'row')}",
            because=f"a is {a!r}, b is {b!r}",
            remedy="transpose one of them: tensor.T is a view",
        )
    if a.ndim == 3 and a.shape[0] != b.shape[0]:
        raise TensorError(
            f"{name}: a has {counted(a.shape[0], 'group')}, b has {b.shape[0]}", because=f"a is {a!r}, b is {b!r}"
        )
