"""Dropout."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popops.expr import PlaceHolder, random_bits, select
from abele.poplibs.poprand.distributions import happens
from abele.poplibs.poprand.draw import check_seed, generate, generator_cycles
from abele.poplibs.poputil.layout import create_output_like


def dropout(
    graph: Graph,
    seed: Tensor,
    modifier: int,
    tensor: Tensor,
    keep_probability: float,
    prog: Sequence,
    *,
    scale: float | None = None,
    name: str = "dropout",
) -> Tensor:
    """``tensor`` with each element kept with ``keep_probability`` and scaled, or else 0.

    The same seed and modifier keep the same elements, whatever the layout: the gradient is dropout of the output
    gradient with the same arguments.

    Args:
        graph: Where vertices and the result are made.
        seed: u32[2].
        modifier: Chooses among independent streams of one seed.
        tensor: Floating point.
        keep_probability: Share of elements that are kept.
        prog: Sequence that the step is appended to.
        scale: Multiplies kept elements; 1 / ``keep_probability`` by default.
        name: Name of the step.

    Raises:
        TensorError: A seed of another shape.
        TypeMismatchError: A seed of another type.
        InvalidOptionError: A probability outside [0, 1].
    """
    check_seed(seed, name)
    keeps = happens(random_bits(2, modifier), keep_probability, name)
    factor = scale if scale is not None else 1.0 / keep_probability if keep_probability else 0.0
    out = create_output_like(graph, [tensor], tensor.shape, tensor.dtype, f"{name}/out")
    kept = select(PlaceHolder(1) * factor, 0.0, keeps)
    # Source: machine reference §4.11 (Dropout): 6 + 6·24 + 2·n/v.
    generate(graph, kept, [tensor, seed], out, prog, name, generator_cycles(6, 24, 2.0, out))
    return out
