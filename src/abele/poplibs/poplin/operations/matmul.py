"""Matrix products."""

from __future__ import annotations

from dataclasses import replace

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.operations.float8 import Scales, scaled_call
from abele.poplibs.poplin.operations.matmul_layout import planned_together, product_call
from abele.poplibs.poplin.options import Planning, Types, read_settings, resolve_types
from abele.poplibs.poputil.options import Options
from abele.words import counted


def matmul(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    prog: Steps,
    *,
    output_type: ElementType | str | None = None,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    like: Tensor | None = None,
    scales: Scales = None,
    throws: bool = True,
    in_halves: bool = False,
    name: str = "matmul",
) -> Tensor:
    """The product ``a @ b``.

    Args:
        graph: The graph.
        a: Left matrix, [m, k]; any view, transposed ones too.
        b: Right matrix, [k, n].
        prog: Program that the call is appended to.
        output_type: Type of the result; by default that of the operands, f16 of 8-bit floats.
        partials_type: Type of partial sums; by default f32, always f16 of 8-bit floats.
        available_memory_proportion: Share of a tile's memory that slices and partials may take; by default 0.6.
        options: PopLibs' options, by name.
        like: A tensor [m, n] whose storage order and tile mapping the result takes.
        scales: Of 8-bit floats: PopLibs' metadata, further scales of ``a`` and ``b`` beyond those of their element
            types: exponents of two, or tensors of one i32.
        throws: False for scales of tensors that are out of range to be the nearest that are not; else they stop the
            program.
        in_halves: True to let operands arrive in halves where a tile would receive much at a time. PopLibs'
            products have no such choice.
        name: Name of the call.

    Returns:
        The product, [m, n], columns grouped innermost; on the tiles that computed it.

    Raises:
        TensorError: Shapes that do not fit each other.
        TypeMismatchError: Operands of different types, or a type that the matrix units do not take; 8-bit floats on a
            chip that does not multiply them, unless option ``convertQuarterToHalf`` is set.
        InvalidOptionError: An unknown option, or a value that it does not take.
        OutOfMemoryError: No split fits the tiles.
    """
    _check_matrices(name, a, b, ("m", "k"), ("k", "n"))
    settings = read_settings(name, options, partials_type, available_memory_proportion)
    types = resolve_types(name, {f"a {a.name!r}": a.dtype, f"b {b.name!r}": b.dtype}, output_type, settings.partials)

    def make(graph: Graph, a: Tensor, b: Tensor, types: Types) -> ContractionCall:
        planning = settings.planning
        call = product_of(graph, "poplin.matmul", name, a=a, b=b, types=types, planning=planning, like=like)
        return replace(call, in_halves=in_halves)

    return scaled_call(
        graph, name, a, b, types, make, settings=settings, scales=scales, prog=prog, throws=throws
    ).append(prog)


def matmul_grouped(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    prog: Steps,
    *,
    output_type: ElementType | str | None = None,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    like: Tensor | None = None,
    scales: Scales = None,
    throws: bool = True,
    in_halves: bool = False,
    name: str = "matmul_grouped",
) -> Tensor:
    """The products ``a[i] @ b[i]`` of [g, m, k] and [g, k, n]: [g, m, n].

    Other arguments and errors as of :func:`matmul`.
    """
    _check_matrices(name, a, b, ("g", "m", "k"), ("g", "k", "n"))
    settings = read_settings(name, options, partials_type, available_memory_proportion)
    types = resolve_types(name, {f"a {a.name!r}": a.dtype, f"b {b.name!r}": b.dtype}, output_type, settings.partials)

    def make(graph: Graph, a: Tensor, b: Tensor, types: Types) -> ContractionCall:
        function, planning = "poplin.matmul_grouped", settings.planning
        call = product_of(graph, function, name, a=a, b=b, types=types, planning=planning, like=like)
        return replace(call, in_halves=in_halves)

    return scaled_call(
        graph, name, a, b, types, make, settings=settings, scales=scales, prog=prog, throws=throws
    ).append(prog)


def product_of(
    graph: Graph,
    function: str,
    name: str,
    a: Tensor,
    b: Tensor,
    types: Types,
    planning: Planning,
    like: Tensor | None,
) -> ContractionCall:
    """The call of a product of matrices, or of as many pairs of them, of checked shapes."""
    groups = a.shape[0] if a.ndim == 3 else 1
    problem = problems.matmul(
        groups,
        a.shape[-2],
        a.shape[-1],
        columns=b.shape[-1],
        dtype=types.dtype,
        partials=types.partials,
        output=types.output,
    )
    together = planned_together(graph.system, a.shape, b.shape, types, planning)
    return product_call(graph, function, name, problem=problem, a=a, b=b, planning=together, like=like)


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
