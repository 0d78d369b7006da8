"""Indexing, scattering, orders and running operations: meaning and gradients beside PyTorch, and runs on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch
from torch import nn

from abele import poptorch
from abele.errors import TensorIndexError, UnsupportedOpError

INDEX = torch.tensor([[3, 0, 3, 5, 1], [1, 1, 6, 3, 0]])
MASK = torch.tensor([True, False, True, True, False, False, True])
TIMES = torch.tensor([1, 0, 2, 1, 0, 0, 3])
X = torch.arange(49.0).reshape(7, 7).sin().double()

DIFFERENTIATED: dict[str, Callable[..., torch.Tensor]] = {
    "two_indices": lambda x, i: x[i[0], i[1] - 7],
    "apart": lambda x, i: torch.stack([x, 2 * x])[i[0] % 2, :, i[1]],
    "known_mask": lambda x, i: x[MASK] * 2,
    "take": lambda x, i: torch.take(x, i - 20),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i[:1] - 7, 1),
    "gather": lambda x, i: x.gather(1, i),
    "gather_repeated": lambda x, i: x.gather(0, i[0][:, None].expand(-1, 7)),
    "scatter": lambda x, i: x.scatter(0, INDEX[:, [0, 1, 3, 4]], 2 * x[:2, :4]),
    "scatter_number": lambda x, i: x.scatter(1, i, 3.0),
    "scatter_add_smaller": lambda x, i: x.scatter_add(1, i, x[:2, :5]),
    "scatter_mean": lambda x, i: x.scatter_reduce(0, i, x[:2, :5], "mean"),
    "scatter_prod": lambda x, i: x.scatter_reduce(0, i, x[:2, :5], "prod", include_self=False),
    "scatter_prod_with_zeros": lambda x, i: x.scatter_reduce(1, i, (x * (x > 0.2))[:2, :5], "prod"),
    "scatter_amin": lambda x, i: x.scatter_reduce(1, i, 2 * x[:2, :5], "amin", include_self=False),
    "scatter_amax_of_equals": lambda x, i: x.scatter_reduce(1, i, x.gather(1, i), "amax"),
    "index_add": lambda x, i: x.index_add(1, i[0], x[:, :5], alpha=0.5),
    "index_copy": lambda x, i: x.index_copy(0, torch.tensor([4, 0]), x[:2] * 2),
    "index_fill": lambda x, i: x.index_fill(1, i[0], 2.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i[0], x[:5], "amax"),
    "index_put": lambda x, i: x.index_put((i[0], i[1]), x[0, :5], accumulate=True),
    "index_put_mask": lambda x, i: x.index_put((x.detach() > 0.3,), torch.tensor(0.5, dtype=x.dtype)),
    "put": lambda x, i: x.put(i, x[:2, :5], accumulate=True),
    "masked_scatter": lambda x, i: x.masked_scatter(x.detach() > 0.1, 2 * x),
    "slice_with_steps": lambda x, i: torch.slice_scatter(x, x[:, :3], 1, 0, 7, 3),
    "select": lambda x, i: torch.select_scatter(x, x[0], 1, -2),
    "diagonal": lambda x, i: torch.diagonal_scatter(x, x[0, :5], -2),
    "sort": lambda x, i: torch.sort(x, 0, descending=True).values,
    "topk": lambda x, i: x.topk(3, 0, largest=False).values,
    "kthvalue": lambda x, i: x.kthvalue(2, 1, keepdim=True).values,
    "median": lambda x, i: x.median(0).values + x.median(),
    "mode": lambda x, i: x.mode(1).values,
    "quantile": lambda x, i: x.quantile(0.3, 1) + x.nanquantile(0.9),
    "max_dim": lambda x, i: x.round().max(1).values + x.min(1, keepdim=True).values,
    "cumsum": lambda x, i: x.cumsum(0).cumsum(1),
    "cumprod_with_zeros": lambda x, i: (x * (x > -0.5)).cumprod(1),
    "logcumsumexp": lambda x, i: (30 * x).logcumsumexp(1),
    "cummax": lambda x, i: x.cummax(1).values + x.cummin(0).values,
    "diff": lambda x, i: x.diff(n=2, dim=0, prepend=x[:1]),
    "trapezoid": lambda x, i: torch.cumulative_trapezoid(x, x[0].detach(), dim=1),
    "renorm": lambda x, i: x.renorm(2, 0, 1.5),
    "repeats": lambda x, i: x.repeat_interleave(2, 1).repeat_interleave(TIMES, 0, output_size=7),
    "repeats_of_the_device": lambda x, i: x[:, :5].repeat_interleave(i[0], 1, output_size=12),
    "bags_mean": lambda x, i: functional.embedding_bag(i.flatten(), x, torch.tensor([0, 3, 3, 8])),
    "bags_max": lambda x, i: functional.embedding_bag(i, x, mode="max", padding_idx=3),
    "bags_weighted": lambda x, i: functional.embedding_bag(i, x, mode="sum", per_sample_weights=x[:2, :5]),
    "by_frequency": lambda x, i: functional.embedding(i, x, scale_grad_by_freq=True),
    "segments": lambda x, i: torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 4, 1]), axis=0),
    "segments_max": lambda x, i: torch.segment_reduce(x, "max", lengths=torch.tensor([2, 4, 1]), axis=0, initial=0.0),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_indexing__values_and_gradients__equal_pytorch(name: str) -> None:
    check_against_torch(Lossy(Apply(DIFFERENTIATED[name], (7, 7))).double(), (X, INDEX), rtol=1e-5)


def everything(x: torch.Tensor, i: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Results of all kinds of ops, integers and truth values among them."""
    whole = (x * 10).int()
    return [
        *x.sort(1, descending=True),
        *whole.sort(0),
        *x.topk(4, 1),
        *x.max(0),
        x.argmin(1),
        x.argmax(),
        *x.cummin(1),
        whole.cumsum(0),
        b.cumsum(1),
        whole.cumprod(1),
        x.logcumsumexp(1),
        torch.searchsorted(x.sort(1).values, x[:, :5].contiguous(), right=True),
        torch.bucketize(x, torch.linspace(-1, 1, 9)),
        torch.histc(x, 10, -1, 1),
        torch.nonzero_static(x > 0.5, size=30),
        functional.one_hot(i, 8),
        whole.gather(1, i),
        b[:, i[0]],
        whole.index_put((i[0],), whole[:5]),
        whole.scatter_reduce(0, i, whole[:2, :5], "amin"),
        whole.scatter_reduce(0, i, whole[:2, :5], "mean", include_self=False),
        b.index_fill(0, i[0], True),
        x.half().index_add(0, i[0], x[:5].half()),
        x.half().scatter_reduce(0, i, x[:2, :5].half(), "amax"),
        x.nanmedian(0).values,
        whole.mode(1).values,
        torch.zeros(500, 40).index_put((i[0] * 70,), x[:5].repeat(1, 6)[:, :40]),
        torch.zeros(700, 64).index_copy(0, torch.arange(700).flip(0), x.reshape(-1)[:1].expand(700, 64) * 2),
    ]


@pytest.fixture(scope="module")
def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.sin(torch.arange(77.0) * 3).reshape(7, 11)
    return x, INDEX, x > 0.2


class Calls(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*args)


def test_indexing__on_the_device__equals_pytorch(data: tuple[torch.Tensor, ...]) -> None:
    got = poptorch.inferenceModel(Calls(everything))(*data)
    for number, (ours, theirs) in enumerate(zip(got, everything(*data), strict=True)):
        wanted = theirs.to(ours.dtype) if theirs.dtype == torch.int64 else theirs
        near = {"rtol": 4e-3, "atol": 1e-3} if wanted.dtype == torch.float16 else {}
        torch.testing.assert_close(ours, wanted, **near, msg=lambda text, n=number: f"result {n}: {text}")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x, i: x[i, i], r"index 9 of .*there are 7(.|\n)*-7 to 6"),
        (lambda x, i: x.gather(0, i[:, None]), r"index 9 of .*there are 7(.|\n)*0 to 6"),
        (lambda x, i: x.index_add(0, i, x[:2]), r"index 9 of "),
        (lambda x, i: functional.one_hot(i, 4), r"class 9 of .*there are 4"),
    ],
)
def test_indexing__index_of_an_input_out_of_range__is_refused_before_the_run(
    function: Callable[..., object], said: str
) -> None:
    with pytest.raises(TensorIndexError, match=said):
        poptorch.inferenceModel(Calls(function))(torch.randn(7, 7), torch.tensor([0, 9]))


def test_indexing__known_index_out_of_range__is_refused_when_captured() -> None:
    with pytest.raises(UnsupportedOpError, match=r"has an index 9 that is out of bounds: there are 7"):
        poptorch.inferenceModel(Calls(lambda x: x.index_select(0, torch.tensor([0, 9]))))(torch.randn(7, 7))


def test_indexing__mask_of_the_device__is_refused_with_a_remedy() -> None:
    with pytest.raises(UnsupportedOpError, match=r"shape depends on values(.|\n)*torch.where\(mask, x, 0\)"):
        poptorch.inferenceModel(Calls(lambda x: x[x > 0].sum()))(torch.randn(7, 7))


def test_indexing__computed_out_of_range__gives_zeros_and_writes_nothing() -> None:
    def beyond(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        place = x[0, :2].round().long() + 100
        return x.index_select(0, place), x.index_add(0, place, x[:2])

    x = torch.randn(7, 7)
    taken, added = poptorch.inferenceModel(Calls(beyond))(x)
    torch.testing.assert_close(taken, torch.zeros(2, 7))
    torch.testing.assert_close(added, x)


# --- places that are data ----


class Sliced(nn.Module):
    """Slices and updates of which only the run knows where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 35).reshape(5, 7))

    def forward(self, x: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scaled = x * self.scale
        part = poptorch.dynamic_slice(scaled, 1, start, 7, 2)
        made = poptorch.dynamic_update(scaled, part.repeat(1, 1)[:2, :1].expand(2, 7) * 2, 0, start, 2)
        out = made[start] + part.sum()
        return out, poptorch.identity_loss((out * out).sum(), "sum")


def test_dynamic_slice_and_update__wherever_they_begin__equal_pytorch() -> None:
    x = torch.arange(35.0).reshape(5, 7).cos()
    model = Sliced()
    twin = copy.deepcopy(model)
    training = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for start in (0, 3, 4):
        out, loss = training(x, torch.tensor(start))
        optimizer.zero_grad()
        wanted, wanted_loss = twin(x, torch.tensor(start))
        wanted_loss.backward()
        optimizer.step()
        torch.testing.assert_close(out, wanted.detach())
        torch.testing.assert_close(loss, wanted_loss.detach())
        torch.testing.assert_close(model.scale.detach(), twin.scale.detach())


def test_narrow__from_a_start_that_is_data__equals_pytorch() -> None:
    x = torch.arange(35.0).reshape(5, 7)
    narrowed = poptorch.inferenceModel(Calls(lambda x, start: x.narrow(-1, start, 3) + torch.narrow(x, 1, 4, 3)))
    torch.testing.assert_close(narrowed(x, torch.tensor(2)), x[:, 2:5] + x[:, 4:])


def test_dynamic_slice__past_the_end__goes_on_at_the_begin() -> None:
    def both(x: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return poptorch.dynamic_slice(x, 0, start, 3, 1), poptorch.dynamic_update(x, -x[:3], 0, start, 3)

    x = torch.arange(6.0)
    taken, updated = poptorch.inferenceModel(Calls(both))(x, torch.tensor([5]))
    torch.testing.assert_close(taken, torch.tensor([5.0, 0.0, 1.0]))
    torch.testing.assert_close(updated, torch.tensor([-1.0, -2.0, 2.0, 3.0, 4.0, -0.0]))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, i: poptorch.dynamic_slice(3, 0, i, 2, 1), "takes a tensor, got int"),
        (lambda x, i: poptorch.dynamic_slice(x, 0, 1, 2, 1), "start must be a tensor, not int"),
        (lambda x, i: poptorch.dynamic_slice(x, 0, i.float(), 2, 1), r"one integer, not of \[\] and torch.float32"),
        (lambda x, i: poptorch.dynamic_slice(x, 2, i, 2, 1), "2 dimensions has no dimension 2"),
        (lambda x, i: poptorch.dynamic_slice(x, 0, i, 9, 1), "size 9 of a dimension of 5"),
        (lambda x, i: poptorch.dynamic_slice(x, 0, i, 5, 0), "the step 0"),
        (lambda x, i: poptorch.dynamic_update(x, x[:2].half(), 0, i, 2), "same dtype: input.dtype=torch.float32"),
        (
            lambda x, i: poptorch.dynamic_slice(x, 1, i, 3, 1),
            r"The size of the slice \(3\) must be a factor of the slicing dimension \(7\)\.",
        ),
        (lambda x, i: poptorch.dynamic_slice(x, 0, i, 0, 1), r"The start and end of a slice must be different\."),
        (
            lambda x, i: poptorch.dynamic_slice(x, 0, i, -2, 1),
            "Taking a slice of a tensor with the end less than the start is not supported",
        ),
        (
            lambda x, i: poptorch.dynamic_slice(x, 0, i, i, 1),
            "size of the sliced tensor must be a constant .* on the IPU, got Tensor",
        ),
        (lambda x, i: poptorch.dynamic_slice(x, 0, torch.ones(2, 1).int(), 1, 1), r"one integer, not of \[2, 1\]"),
        (lambda x, i: poptorch.dynamic_update(x, x[:0], 0, i, 0), r"The start and end of a slice must be different\."),
        (lambda x, i: poptorch.dynamic_update(x, x[:1], 0, i, -1), "with the end less than the start"),
        (lambda x, i: poptorch.dynamic_update(x, 3.0, 0, i, 1), "src must be a tensor, not float"),
        (lambda x, i: poptorch.dynamic_update(x, x[0], 0, i, 1), r"same rank: input.dim\(\)=2, src.dim\(\)=1"),
        (lambda x, i: poptorch.dynamic_update(x, x[:2], 0, i, 1), r"src has shape \[2, 7\], it must have \[1, 7\]"),
    ],
)
def test_dynamic_slice__wrong_arguments__are_refused(call: Callable[..., object], said: str) -> None:
    with pytest.raises(poptorch.Error, match=said) as caught:
        call(torch.zeros(5, 7), torch.tensor(1))
    assert isinstance(caught.value, ValueError)


def test_one_hot__without_classes__is_refused_where_they_are_not_known() -> None:
    with pytest.raises(poptorch.Error, match="OneHot num classes must be specified and must be constant") as caught:
        poptorch.inferenceModel(Calls(functional.one_hot))(torch.arange(4))
    assert "torch.nn.functional.one_hot(tensor, num_classes)" in str(caught.value)
    model = poptorch.inferenceModel(Calls(lambda x: x + functional.one_hot(torch.arange(3))))
    torch.testing.assert_close(model(torch.zeros(3, 3)), torch.eye(3))


# --- message passing ----


class GraphLayer(nn.Module):
    """A layer of a graph network: GCN's norms, GIN's sums with an epsilon, or GAT's softmax over edges."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(width, width)
        self.ends = nn.Parameter(torch.randn(2, width) / 3)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        h, nodes = self.linear(x), x.shape[0]
        if self.kind == "gin":
            return self.linear(1.1 * x + torch.zeros_like(x).index_add(0, target, x.index_select(0, source)))
        if self.kind == "gcn":
            degree = torch.zeros(nodes).index_add(0, target, torch.ones(target.shape[0])) + 1
            norm = degree.rsqrt()[source] * degree.rsqrt()[target]
            return torch.zeros_like(h).index_add(0, target, h[source] * norm[:, None]) + h / degree[:, None]
        logits = functional.leaky_relu((h @ self.ends[0])[source] + (h @ self.ends[1])[target], 0.2)
        top = torch.full((nodes,), -1e9).scatter_reduce(0, target, logits.detach(), "amax")
        share = (logits - top[target]).exp()
        total = torch.zeros(nodes).scatter_add(0, target, share)
        return torch.zeros_like(h).scatter_add(
            0, target[:, None].expand(-1, h.shape[1]), h[source] * (share / (total[target] + 1e-9))[:, None]
        )


class GraphNetwork(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GraphLayer(kind, 6) for _ in range(2 if kind == "gin" else 1)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = torch.tanh(layer(x, edges[0], edges[1]))
        return x, functional.cross_entropy(x, y)


@pytest.mark.parametrize("kind", ["gcn", "gin", "gat"])
def test_message_passing__trained__keeps_step_with_pytorch(kind: str) -> None:
    torch.manual_seed(0)
    x, edges, y = torch.randn(20, 6), torch.randint(0, 20, (2, 70)), torch.randint(0, 6, (20,))
    ours = GraphNetwork(kind)
    theirs = copy.deepcopy(ours)
    training = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.3))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.3)
    for _ in range(3):
        out, loss = training(x, edges, y)
        optimizer.zero_grad()
        wanted, wanted_loss = theirs(x, edges, y)
        wanted_loss.backward()
        optimizer.step()
        torch.testing.assert_close(loss, wanted_loss.detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(out, wanted.detach(), rtol=1e-4, atol=1e-5)


# --- tiles ----


@pytest.mark.usefixtures("whole_machine")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.max(1),
        lambda x, i: x.logcumsumexp(1),
        lambda x, i: torch.bucketize(x, torch.linspace(-3, 3, 300)),
        # The rest have an evenness of their own elsewhere.
        pytest.param(lambda x, i: x.sort(1), marks=pytest.mark.slow),
        pytest.param(lambda x, i: x.topk(5, 1), marks=pytest.mark.slow),
        pytest.param(lambda x, i: x.flatten().cumsum(0), marks=pytest.mark.slow),
        pytest.param(lambda x, i: x.gather(1, i), marks=pytest.mark.slow),
        pytest.param(lambda x, i: x.index_add(0, i[:, 0], x), marks=pytest.mark.slow),
        pytest.param(lambda x, i: x.index_put((i[:, 0],), x), marks=pytest.mark.slow),
        pytest.param(lambda x, i: torch.histc(x, 50, -3.0, 3.0), marks=pytest.mark.slow),
    ],
)
def test_indexing__at_a_real_size__is_work_for_all_tiles(function: Callable[..., object]) -> None:
    model = poptorch.inferenceModel(Calls(function))
    model.compile(torch.randn(800, 256), torch.randint(0, 256, (800, 64)))
    report = model.report()
    busy = report.compute_cycles_by_tile > 0.25 * report.compute_cycles_by_tile.max()
    assert busy.mean() > 0.5
