"""Disagreements of model and references by more than a few per cent, and the likely reasons."""

from __future__ import annotations

from collections.abc import Iterable

from abele.validation.figures import Comparison

REASONS = {
    "cholesky": """Cycles of the vertices are PopLibs' published polynomials. One is not published, the inverse of a
        lower block, and is calibrated. The published memory is mostly compiled code, some 16 KB on each tile that runs
        a vertex, so it counts tiles.""",
    "matrix solver": """Cycles of the vertices are PopLibs' published polynomials. That systems with many right-hand
        sides are cut down to single rows, and that blocks share a program, is inferred from the published cycles and
        memory; how operands are spread is not known. The published memory counts tiles, as for Cholesky: products
        between blocks of 256 rows take a thousand tiles here and at most two hundred there.""",
    "oct conv": """The four convolutions of a layer run at the same time here, as a multi-convolution. That is inferred
        from the published cycles. Those of 1×1 convolutions with stride 1 are a constant and a part that grows with
        the products, to 2 % at the median; by that law four in a row would take 1.4 to 1.6 times the published layer,
        which pools and sums besides, and all at once 0.7 to 0.8 times. In our model, too, the convolutions in a row
        alone take longer than the layer in 25 of 26 rows. How backward pass and weight update are grouped is not known.
        Ours are most too many where the stride is 2 on a large field: likely sums, pooling and its gradient, whose
        layouts are not public.""",
    "pooling": """Channels of a group are chosen as PopLibs does. The slots of the vertices' loop over channel
        vectors, which the public formula does not tell, were calibrated on the layers with stride 1. The layer of 768
        channels likely took 4 at a time, at least on GC2: the costs of the two plans are within a tenth of where
        the preference for more changes.""",
    "reduction": """Memory of eight figures in twelve agrees within 6 %, so their steps, and how workers share them, are
        likely the published ones. Maxima are likely shared by fewer workers, and the row of 4 × 12,544 × 8 likely lies
        so that no tile begins with a whole row of eight. In cycles the published first step along inner dimensions is
        some 620 shorter, and short sums of rows are some 75 a step longer; which terms of the vertices' formulas that
        is, is not known. It is not what steps cost beside their vertices: those of solvers agree within 5 cycles a
        step over 541 steps.""",
    "conv": """In cycles depthwise convolutions differ most. The estimates of the vertices that can do them lie close to
        each other, so the two planners likely take different ones. In memory kernels of 7 x 1 do: their weight update
        is expanded whole here, while the published program needs two thirds of that for them and not for 1 x 7. First
        layers are too small, as the published backward pass pads three or four out-channels to eight.""",
    "fc": """Layers of 1,000 outputs and few samples in f16 are too fast: what is missing fits copies of a slice of
        weights in pieces of two bytes, of which side is not known. Layers of five outputs hold half of the published
        bytes, as the published program spreads them over nearly all tiles.""",
    "gemm": """Wide products on GC2 differ most, where memory is short and the product runs in serial parts. The
        published planner likely cuts them otherwise.""",
    "ctc loss": """The published program is spread otherwise. With one sequence, its fullest tile is all but 0.9 kB
        explained by one label on a tile and half of the steps, with data and gradients of all classes and two numbers
        a step (both sizes, both chips). So likely half of the tiles sweep each half of the time, gradients are made on
        the way, and those of all labels are summed afterwards, as logarithms. Here workers share a tile and a sweep
        covers all steps; steps cost about the same, but what comes before and after them grows with the labels, and
        there likely with the classes.""",
    "lstm": """Memory of training in f16. In ours a step's gradient of the weights is there in f32, as partial sums, and
        in f16; the published program has room for no more than the latter, and f32 layers agree. Without the cast to
        f16, cycles of training would agree as well, to 3 %.""",
    "gru": """Memory of training in f16, as that of LSTMs.""",
    "blur": """Vertices and copies of the measured program are not ours, as said above.""",
    "dense products": """The largest products reach a plateau, which lies somewhat higher on the machine. In the model
        every serial part waits for its exchange.""",
}
"""Sentences by name of the kind, as tables show it. Likely causes have not been verified."""


def notes_text(comparisons: Iterable[Comparison]) -> str:
    """Markdown: the reasons for what ``comparisons`` contain."""
    found: dict[str, None] = {}
    for comparison in comparisons:
        found |= {"dense products" if comparison.key == "gemm" else comparison.key: None}
        found |= {f.kind.replace("_", " "): None for f in comparison.figures}
    lines = [f"- **{kind}.** {' '.join(REASONS[kind].split())}" for kind in found if kind in REASONS]
    return "\n".join(["## Where they disagree, and why\n", *lines, ""]) if lines else ""
