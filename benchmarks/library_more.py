"""Further library functions that are measured: maps, random numbers, pools, slices, sorts, factorisations, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from library_cases import KINDS, Array, Case, Data

from abele.graph import Copy, Graph, Sequence, Tensor
from abele.numerics import f16, f32
from abele.poplibs import poplin, popnn, popops, poprand
from abele.poplibs.popnn import ctc, gru

Call = Callable[[], Any]
Shapes = dict[str, tuple[int, ...]]
ATEN = torch.ops.aten
SIDE = (4096, 1024)


def all_more() -> Iterator[Case]:
    """Every case, related ones side by side."""
    yield from non_linearities()
    yield from random_numbers()
    yield from moves()
    yield from pools()
    yield from orders()
    yield from slices()
    yield from factorisations()
    yield from losses()
    yield adam()
    yield from grouped_gradients(32, 128, 64, 128)
    yield gated(32, 64, 256)


def case(
    name: str,
    shapes: Shapes,
    ours: Callable[..., Tensor | list[Tensor]],
    theirs: Callable[..., Any],
    *,
    kind: str = "f32",
    work: float | None = None,
    unit: str = "GB/s",
    make: Callable[[Data], Data] | None = None,
    allocate: Callable[[Graph, tuple[int, ...], str], Tensor] | None = None,
) -> Case:
    """A function of variables of ``shapes``; by default its work is to read each once and to write one like the first.

    ``ours`` takes the graph, the program and the variables by name; ``theirs`` the arrays by name.
    """
    label = " ".join([name, kind, str(list(next(iter(shapes.values()))))])
    sizes = [math.prod(s) for s in shapes.values()]
    bytes_ = (sum(sizes) + sizes[0]) * KINDS[kind].itemsize
    types = {} if make is None else {n: "u32" for n in ("index", "labels") if n in shapes}

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        made = {
            n: allocate(graph, s, n) if allocate else graph.variable(types.get(n, kind), s, name=n).map_linear()
            for n, s in shapes.items()
        }
        out = ours(graph, prog, **made)
        return made, out if isinstance(out, list) else [out]

    def data() -> Data:
        arrays = {n: torch.randn(s).to(KINDS[kind]) for n, s in shapes.items()}
        return arrays if make is None else arrays | make(arrays)

    return Case(label, unit, work or float(bytes_), data, build, lambda d: lambda: theirs(**d))


def non_linearities() -> Iterator[Case]:
    """Activations and their gradients, and softmax's."""
    theirs: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "relu": (torch.relu, lambda x, g: ATEN.threshold_backward(g, x, 0)),
        "gelu": (
            lambda x: F.gelu(x, approximate="tanh"),
            lambda x, g: ATEN.gelu_backward(g, x, approximate="tanh"),
        ),
        "tanh": (torch.tanh, lambda x, g: ATEN.tanh_backward(g, x)),
        "sigmoid": (torch.sigmoid, lambda x, g: ATEN.sigmoid_backward(g, x)),
    }
    for kind in ("f32", "f16"):
        for name, (forward, backward) in theirs.items():
            yield case(name, {"x": SIDE}, _activation(name), forward, kind=kind)
            yield case(f"{name} gradient", {"x": SIDE, "g": SIDE}, _activation_gradient(name), backward, kind=kind)
        yield case(
            "softmax gradient",
            {"x": SIDE, "g": SIDE},
            _activation_gradient("softmax"),
            lambda x, g, kind=kind: ATEN._softmax_backward_data(g, x, -1, KINDS[kind]),
            kind=kind,
        )


def _activation(name: str) -> Callable[..., Tensor]:
    return lambda graph, prog, x: popnn.non_linearity(graph, name, x, prog)


def _activation_gradient(name: str) -> Callable[..., Tensor]:
    return lambda graph, prog, x, g: popnn.non_linearity_input_gradient(graph, name, x, g, prog)


def random_numbers() -> Iterator[Case]:
    """Numbers written only; dropout reads as much. Generators differ, which is part of the comparison."""
    written = 4.0 * math.prod(SIDE)

    def drawn(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda graph, prog, x: function(graph, poprand.create_seed(graph, 7), 1, x, prog)

    yield case("uniform", {"x": SIDE}, drawn(poprand.uniform), lambda x: torch.rand(x.shape), work=written)
    yield case("normal", {"x": SIDE}, drawn(poprand.normal), lambda x: torch.randn(x.shape), work=written)

    def dropped(graph: Graph, prog: Sequence, x: Tensor) -> Tensor:
        return poprand.dropout(graph, poprand.create_seed(graph, 7), 1, x, 0.9, prog)

    yield case("dropout", {"x": SIDE}, dropped, lambda x: F.dropout(x, 0.1, training=True))


def moves() -> Iterator[Case]:
    """Casts, and a copy that exchanges the dimensions of a matrix."""
    work = 6.0 * math.prod(SIDE)
    yield case("cast to f16", {"x": SIDE}, lambda g, p, x: popops.cast(g, x, f16, p), lambda x: x.half(), work=work)
    yield case(
        "cast to f32",
        {"x": SIDE},
        lambda g, p, x: popops.cast(g, x, f32, p),
        lambda x: x.float(),
        kind="f16",
        work=work,
    )

    def transposed(graph: Graph, prog: Sequence, x: Tensor) -> Tensor:
        out = graph.variable("f32", x.shape[::-1], name="out").map_linear()
        prog.add(Copy(x.T, out))
        return out

    yield case("transpose", {"x": SIDE}, transposed, lambda x: x.T.contiguous())


def in_groups(graph: Graph, shape: tuple[int, ...], name: str) -> Tensor:
    """Activations [batch, channels, height, width] with 16 channels innermost, as convolutions leave them."""
    batch, channels, *field = shape
    variable = graph.variable("f32", (batch, channels // 16, *field, 16), name=name).map_linear()
    return variable.transpose((0, 1, 4, 2, 3)).reshape(shape)


def pools() -> Iterator[Case]:
    """3x3 windows two apart, forward and backward."""
    shape, out = (16, 64, 112, 112), (16, 64, 56, 56)
    window = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}
    work = 4.0 * (math.prod(shape) + math.prod(out))
    for kind in ("max", "avg"):
        params = popnn.PoolParams(kind, shape[2:], (3, 3), (2, 2), (1, 1), (0, 0), 64, 16)

        def ours(graph: Graph, prog: Sequence, x: Tensor, params: popnn.PoolParams = params) -> Tensor:
            return popnn.pool(graph, x, params, prog)

        def gradient(
            graph: Graph,
            prog: Sequence,
            x: Tensor,
            g: Tensor,
            y: Tensor | None = None,
            params: popnn.PoolParams = params,
        ) -> Tensor:
            operands = (x, y) if params.kind == "max" else ()
            return popnn.pool_input_gradient(graph, params, g, *operands, prog=prog)

        if kind == "max":
            yield case(
                "max pool 3x3/2", {"x": shape}, ours, lambda x: F.max_pool2d(x, **window), work=work, allocate=in_groups
            )
            places: dict[int, Array] = {}

            def backward(x: Array, g: Array, y: Array, places: dict[int, Array] = places) -> Any:
                if not places:
                    places[0] = F.max_pool2d(x, **window, return_indices=True)[1]
                return ATEN.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places[0])

            shapes = {"x": shape, "g": out, "y": out}
            made = case(
                "max pool 3x3/2 gradient",
                shapes,
                gradient,
                backward,
                work=work + 4.0 * math.prod(shape),
                allocate=in_groups,
                make=lambda d: {"y": F.max_pool2d(d["x"], **window)},
            )
            yield made
        else:
            yield case(
                "avg pool 3x3/2",
                {"x": shape},
                ours,
                lambda x: F.avg_pool2d(x, **window, count_include_pad=False),
                work=work,
                allocate=in_groups,
            )
            yield case(
                "avg pool 3x3/2 gradient",
                {"x": shape, "g": out},
                gradient,
                lambda x, g: ATEN.avg_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1], False, False, None),
                work=work,
                allocate=in_groups,
            )


def orders() -> Iterator[Case]:
    """Rows sorted, and the largest of rows."""
    shape = (64, 1024)
    count = float(math.prod(shape))
    yield case(
        "sort", {"x": shape}, lambda g, p, x: popops.sort(g, x, 1, p), lambda x: x.sort(1), work=count, unit="G/s"
    )
    yield case(
        "top 10",
        {"x": shape},
        lambda g, p, x: popnn.top_k(g, x, 10, p)[0],
        lambda x: x.topk(10),
        work=count,
        unit="G/s",
    )


def slices() -> Iterator[Case]:
    """Rows by their numbers, read and added to."""
    rows, width, count = 16384, 256, 8192
    shapes = {"x": (rows, width), "index": (count,)}
    work = 8.0 * count * width

    def numbers(_: Data) -> Data:
        return {"index": torch.randint(rows, (count,)).to(torch.uint32)}

    yield case(
        "gather",
        shapes,
        lambda g, p, x, index: popops.gather(g, x, index, axis=0, prog=p),
        lambda x, index: x.index_select(0, index.to(torch.int32)),
        work=work,
        make=numbers,
    )

    def update(graph: Graph, prog: Sequence, x: Tensor, index: Tensor, d: Tensor) -> Tensor:
        scale = graph.constant("f32", (), 1.0)
        popops.multi_update_add(graph, x, d.expand_dims(1), index.expand_dims(1), scale, [0], [1], prog)
        return x

    yield case(
        "multi_update_add",
        shapes | {"d": (count, width)},
        update,
        lambda x, index, d: x.index_add_(0, index.to(torch.int32), d),
        work=1.5 * work,
        make=numbers,
    )


def factorisations() -> Iterator[Case]:
    """Cholesky's factor and a triangular system."""
    n, right = 256, 64

    def positive(d: Data) -> Data:
        return {"a": d["a"] @ d["a"].T + n * torch.eye(n)}

    yield case(
        "cholesky",
        {"a": (n, n)},
        lambda g, p, a: poplin.cholesky(g, a, True, p),
        lambda a: torch.linalg.cholesky(a),
        work=n**3 / 3,
        unit="GFLOP/s",
        make=positive,
    )
    yield case(
        "triangular solve",
        {"a": (n, n), "b": (n, right)},
        lambda g, p, a, b: poplin.triangular_solve(g, a, b, True, True, False, p),
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        work=float(n * n * right),
        unit="GFLOP/s",
        make=lambda d: {"a": d["a"].tril() + n * torch.eye(n)},
    )


def losses() -> Iterator[Case]:
    """Cross entropy and its gradient, and connectionist temporal classification."""
    batch, classes = 1024, 1000

    def labels(_: Data) -> Data:
        return {"labels": torch.randint(classes, (batch,)).to(torch.uint32)}

    def entropy(graph: Graph, prog: Sequence, x: Tensor, labels: Tensor) -> list[Tensor]:
        loss, logs = popnn.cross_entropy_loss(graph, x, labels, prog)
        return [loss, popnn.cross_entropy_loss_gradient(graph, logs, labels, prog)]

    def torch_entropy(x: Array, labels: Array) -> Any:
        where = labels.long()
        logs = torch.log_softmax(x, -1)
        total = F.nll_loss(logs, where)
        ones = ATEN.nll_loss_backward(torch.ones(()), logs, where, None, 1, -100, torch.tensor(float(batch)))
        return total, ATEN._log_softmax_backward_data(ones, logs, -1, torch.float32)

    shapes = {"x": (batch, classes), "labels": (batch,)}
    yield case("cross entropy and gradient", shapes, entropy, torch_entropy, make=labels)
    yield _ctc(16, 128, 20, 32)


def _ctc(batch: int, steps: int, length: int, classes: int) -> Case:
    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        plan = ctc.plan(graph, f32, f32, batch, steps, length, classes)
        x = ctc.create_data_input(graph, f32, batch, steps, classes, plan)
        labels = ctc.create_labels_input(graph, "u32", batch, length, plan)
        lengths = [graph.variable("u32", (batch,), name=n).map_linear() for n in ("steps", "lengths")]
        loss = ctc.calc_ctc_loss_log_probabilities(graph, f32, x, labels, *lengths, prog, 0, plan)
        return {"x": x, "labels": labels, "steps": lengths[0], "lengths": lengths[1]}, [loss]

    def data() -> Data:
        given = {"labels": torch.randint(1, classes, (batch, length))}
        given |= {"steps": torch.full((batch,), steps), "lengths": torch.full((batch,), length)}
        return {"x": torch.randn(steps, batch, classes).log_softmax(-1)} | {
            n: t.to(torch.uint32) for n, t in given.items()
        }

    def reference(d: Data) -> Call:
        labels, *lengths = (d[n].long() for n in ("labels", "steps", "lengths"))
        return lambda: F.ctc_loss(d["x"], labels, *lengths, reduction="none")

    cells = 1.0 * batch * steps * (2 * length + 1)
    return Case(f"ctc loss b{batch} [{steps} steps, {length} labels]", "G/s", cells, data, build, reference)


def adam() -> Case:
    """A step of Adam; PyTorch's takes all operations over the whole tensor, one after the other."""

    def ours(graph: Graph, prog: Sequence, p: Tensor, g: Tensor, m: Tensor, s: Tensor) -> Tensor:
        popnn.adam_update(graph, p, g, m, s, prog, lr=1e-3)
        return p

    def theirs(p: Array, g: Array, m: Array, s: Array) -> Any:
        if "step" not in state:
            state["step"] = torch.optim.Adam([torch.nn.Parameter(p.clone())], lr=1e-3)
            state["step"].param_groups[0]["params"][0].grad = g
        state["step"].step()

    state: dict[str, Any] = {}
    shapes = dict.fromkeys("pgms", SIDE)
    return case("adam", shapes, ours, theirs, work=7 * 4.0 * math.prod(SIDE), make=lambda d: {"s": d["s"].square()})


def grouped_gradients(groups: int, m: int, k: int, n: int) -> Iterator[Case]:
    """Both gradients of products in groups."""
    shapes = {"a": (groups, m, k), "b": (groups, k, n), "g": (groups, m, n)}

    def ours(graph: Graph, prog: Sequence, a: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        left = poplin.matmul_grouped(graph, g, b.transpose((0, 2, 1)), prog)
        return [left, poplin.matmul_grouped(graph, a.transpose((0, 2, 1)), g, prog)]

    def theirs(a: Array, b: Array, g: Array) -> Any:
        return g @ b.transpose(1, 2), a.transpose(1, 2) @ g

    yield case("grouped matmul gradients", shapes, ours, theirs, work=4.0 * groups * m * k * n, unit="GFLOP/s")


def gated(batch: int, steps: int, hidden: int) -> Case:
    """The forward pass of a layer of gated recurrent units for inference, as wide as its input."""
    params = gru.GruParams(f32, batch, steps, (hidden, hidden))

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        x, state = gru.create_input(graph, params), gru.create_initial_state(graph, params)
        weights = gru.create_weights(graph, params)
        made = gru.gru_fwd(graph, params, state, x, weights, prog, options={"inferenceOnly": "true"})
        given = {"x": x, "h": state, "w": weights.output, "b": weights.biases}
        return given | ({"u": weights.input} if weights.input is not None else {}), [made.output]

    def data() -> Data:
        kernel = (3, hidden, hidden)
        shapes = {"x": (steps, batch, hidden), "h": (batch, hidden), "b": (3, hidden), "w": kernel, "u": kernel}
        return {name: torch.randn(shape) / math.sqrt(hidden) for name, shape in shapes.items()}

    def reference(d: Data) -> Call:
        layer = torch.nn.GRU(hidden, hidden)
        return lambda: layer(d["x"], d["h"][None])

    work = 2.0 * steps * batch * 3 * hidden * 2 * hidden
    return Case(f"gru b{batch} [{steps} steps, {hidden}]", "GFLOP/s", work, data, build, reference)
