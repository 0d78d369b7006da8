"""Products that are added onto present values: accumulating matmuls and weight updates."""

from __future__ import annotations

from dataclasses import replace

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType, as_element_type
from abele.poplibs import popops
from abele.poplibs.poplin.contraction.host_kernel import Onto
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.operations.convolution import calculate_weight_deltas
from abele.poplibs.poplin.operations.matmul import matmul, matmul_grouped, product_of
from abele.poplibs.poplin.options import read_settings, resolve_types
from abele.poplibs.poputil.options import Options


def matmul_acc(
    graph: Graph,
    c: Tensor,
    scale: float | Tensor,
    a: Tensor,
    b: Tensor,
    prog: Steps,
    *,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    product_type: ElementType | str | None = None,
    in_place: bool = False,
    in_halves: bool = False,
    name: str = "matmul_acc",
) -> None:
    """c ← c + scale · (a @ b), in place; matrices, or stacks of them.

    Args:
        graph: The graph.
        c: [m, n] or [g, m, n]; overwritten.
        scale: A number, or a tensor of one element.
        a: [m, k] or [g, m, k].
        b: [k, n] or [g, k, n].
        prog: Program that the calls are appended to.
        partials_type: Type of partial sums; by default f32.
        available_memory_proportion: Share of a tile's memory that slices and partials may take; by default 0.6.
        options: PopLibs' options, by name.
        product_type: Type that the product is rounded to before it is added; by default that of ``c``.
        in_place: True to add partial sums where they are summed, so that the product has no tensor of its own, if the
            vertices can write in the order of ``c`` and the scale is a number. PopLibs' ``matMulAcc`` makes the product
            first; its reductions can do either (``update``).
        in_halves: True to let operands arrive in halves, as of :func:`~abele.poplibs.poplin.matmul`.
        name: Name of the calls.

    Raises:
        TensorError: Shapes that do not fit each other.
        TypeMismatchError: ``a`` and ``b`` differ in type.
    """
    wanted = (*a.shape[:-1], *b.shape[-1:])
    if c.shape != wanted:
        raise TensorError(f"{name}: c {c!r} has shape {list(c.shape)}, the product has {list(wanted)}")
    product_type = c.dtype if product_type is None else as_element_type(product_type)
    if in_place and not isinstance(scale, Tensor) and not a.dtype.is_quarter:
        settings = read_settings(name, options, partials_type, available_memory_proportion)
        types = resolve_types(name, {"a": a.dtype, "b": b.dtype}, product_type, settings.partials)
        call = product_of(graph, "poplin.matmul_acc", name, a=a, b=b, types=types, planning=settings.planning, like=c)
        if call.is_direct:
            replace(call, onto=Onto(c, float(scale), types.output), in_halves=in_halves).append(prog)
            return
    multiply = matmul_grouped if a.ndim == 3 else matmul
    product = multiply(
        graph,
        a,
        b,
        prog,
        output_type=product_type,
        partials_type=partials_type,
        available_memory_proportion=available_memory_proportion,
        options=options,
        like=c,
        in_halves=in_halves,
        name=f"{name}_product",
    )
    popops.scaled_add_to(graph, c, product, scale, prog, name=name)


def convolution_weight_update(
    graph: Graph,
    z_deltas: Tensor,
    weights: Tensor,
    activations: Tensor,
    params: ConvParams,
    scale: float | Tensor,
    prog: Steps,
    *,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    name: str = "convolution_weight_update",
) -> None:
    """weights ← weights + scale · their gradient, in place.

    Args:
        graph: The graph.
        z_deltas: Gradients of the output, [batch, out_channels, *field].
        weights: [out_channels, in_channels / groups, *kernel]; the gradient is made in their type and layout.
        activations: The input of the forward pass, [batch, in_channels, *field].
        params: The forward convolution.
        scale: A number, or a tensor of one element: minus the learning rate.
        prog: Program that the calls are appended to.
        partials_type: Type of partial sums; by default f32.
        available_memory_proportion: Share of a tile's memory that slices and partials may take; by default 0.6.
        options: PopLibs' options, by name.
        name: Name of the calls.

    Raises:
        TensorError: Operands that do not have the shapes of the convolution.
        TypeMismatchError: Operands of different types, or a type that the matrix units do not take.
        InvalidOptionError: An unknown option, or a value that it does not take.
        OutOfMemoryError: No split fits the tiles.
    """
    gradient = calculate_weight_deltas(
        graph,
        z_deltas,
        activations,
        params,
        prog,
        output_type=weights.dtype,
        partials_type=partials_type,
        available_memory_proportion=available_memory_proportion,
        options=options,
        like=weights,
        name=f"{name}_deltas",
    )
    popops.scaled_add_to(graph, weights, gradient, scale, prog, name=name)
