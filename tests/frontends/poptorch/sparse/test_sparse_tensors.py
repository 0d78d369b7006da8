"""PyTorch's own sparse tensors in models: every layout and product, what is trained, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from abele import poptorch
from abele.errors import SparsePatternError, UnsupportedOpError

Product = Callable[[Any, torch.Tensor], torch.Tensor]

PRODUCTS: dict[str, Product] = {
    "sparse_mm": lambda a, x: torch.sparse.mm(a, x),
    "operator": lambda a, x: a @ x,
    "matmul": lambda a, x: torch.matmul(a, x),
    "linear": lambda a, x: functional.linear(x.T, a, x[0, :1]),
    "mv": lambda a, x: torch.mv(a, x[:, 0]),
    "addmm": lambda a, x: torch.addmm(torch.ones(8, 5), a, x, beta=0.5, alpha=2),
    "sparse_addmm": lambda a, x: torch.sparse.addmm(torch.ones(8, 5), a, x),
    "from_the_right": lambda a, x: x.T @ a.t(),
    "transposed": lambda a, x: a.transpose(0, 1) @ (a @ x),
    "dense": lambda a, x: a.to_dense().relu() @ x,
}
KINDS = ("coo", "csr", "bsr", "csc")


def matrix() -> torch.Tensor:
    dense = torch.where(torch.rand(8, 12) < 0.3, torch.randn(8, 12), 0.0)
    dense[2] = 0
    return dense


def sparse_of(dense: torch.Tensor, kind: str) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Compressed layouts are said to be in beta.
        makers: dict[str, Callable[[], Any]] = {
            "coo": dense.to_sparse_coo,
            "csr": dense.to_sparse_csr,
            "bsr": lambda: dense.to_sparse_bsr((4, 4)),
            "csc": dense.to_sparse_csc,
        }
        made: torch.Tensor = makers[kind]()
    return made


class Holds(nn.Module):
    """A sparse matrix as an attribute, a buffer or a parameter, and a function of it."""

    def __init__(self, tensor: torch.Tensor, how: str, function: Product) -> None:
        super().__init__()
        if how == "attribute":
            self.a = tensor
        elif how == "buffer":
            self.register_buffer("a", tensor)
        else:
            self.a = nn.Parameter(tensor)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.a, x)


@pytest.mark.parametrize("how", ["attribute", "buffer", "parameter"])
@pytest.mark.parametrize("kind", KINDS)
def test_products__of_a_sparse_matrix__are_those_of_the_dense_one(kind: str, how: str) -> None:
    dense, x = matrix(), torch.randn(12, 5)
    some = [p for name, p in PRODUCTS.items() if "sparse" not in name]

    def every(a: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([product(a, x).reshape(-1) for product in some])

    model = Holds(sparse_of(dense, kind), how, every)
    wrapped = poptorch.inferenceModel(model)
    torch.testing.assert_close(wrapped(x), every(dense, x), rtol=1e-4, atol=1e-5)
    assert wrapped._compiled is not None
    kinds = [op.kind for op in wrapped._compiled.captured.net.ops]
    assert kinds.count("sparse_matmul") >= len(some) - 1
    assert model.a.layout == sparse_of(dense, kind).layout


@pytest.mark.parametrize("name", ["sparse_mm", "sparse_addmm"])
def test_products__of_torch_sparse__are_pytorch(name: str) -> None:
    dense, x = matrix(), torch.randn(12, 5)
    sparse = sparse_of(dense, "coo")
    made = poptorch.inferenceModel(Holds(sparse, "buffer", PRODUCTS[name]))(x)
    torch.testing.assert_close(made, PRODUCTS[name](sparse, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_sampled_product__of_trained_factors__is_the_dense_one_at_the_places(turned: bool) -> None:
    dense = torch.where(torch.rand(8, 12) < 0.4, torch.randn(8, 12), 0.0)

    class Sampled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            held = dense.T.contiguous() if turned else dense
            self.register_buffer("a", sparse_of(held, "csr"))
            self.left, self.right = nn.Parameter(torch.ones(8, 3)), nn.Parameter(torch.full((3, 12), 0.5))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            held: Any = self.a
            scores = torch.sparse.sampled_addmm(held.t() if turned else held, self.left, self.right, beta=0.5, alpha=2)
            made = scores @ x
            return made, poptorch.identity_loss(made.square(), "mean")

    model, x = Sampled(), torch.randn(12, 5)
    left, right = (p.detach().clone().requires_grad_() for p in (model.left, model.right))
    training = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        expected = (2 * left @ right * (dense != 0) + 0.5 * dense) @ x
        torch.testing.assert_close(training(x)[0], expected.detach(), rtol=1e-4, atol=1e-5)
        grads = torch.autograd.grad(expected.square().mean(), (left, right))
        with torch.no_grad():
            for factor, grad in zip((left, right), grads, strict=True):
                factor -= 0.1 * grad


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_parameter__trained__is_the_dense_one_at_its_places(kind: str) -> None:
    dense, x, target = matrix(), torch.randn(6, 12), torch.randn(6, 8)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(sparse_of(dense, kind))

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return functional.mse_loss(functional.linear(x, self.weight), target)

    model, twin = Model(), dense.clone().requires_grad_()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    training = poptorch.trainingModel(model, None, optimizer)
    other = torch.optim.Adam([twin], lr=0.1)
    mask = (dense != 0).float()
    if kind == "bsr":  # Blocks are trained whole.
        mask = mask.reshape(2, 4, 3, 4).amax((1, 3), keepdim=True).expand(2, 4, 3, 4).reshape(8, 12)
    for _ in range(3):
        loss = training(x, target)
        other.zero_grad()
        expected = functional.mse_loss(x @ twin.T, target)
        expected.backward()  # type: ignore[no-untyped-call]
        assert twin.grad is not None
        twin.grad *= mask
        other.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.weight.detach().to_dense(), twin.detach(), rtol=1e-3, atol=1e-4)
    assert training.state_dict()["weight"].layout == model.weight.layout


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda a, x: x.to_sparse() @ x.T, "to_sparse in forward"),
        (lambda a, x: torch.sparse_coo_tensor(torch.tensor([[0], [1]]), x[0, :1], (8, 12)) @ x, "depends on data"),
        (lambda a, x: a @ a.t(), "two sparse matrices"),
        (lambda a, x: functional.linear(a, a), "two sparse matrices"),
        (lambda a, x: torch.relu(a) @ x, "relu of a sparse tensor"),
        (lambda a, x: a.sum() + x, "sum of a sparse tensor"),
        (lambda a, x: a.values() + x[0, 0], "values of a sparse tensor"),
        (lambda a, x: torch.addmm(a, a, x), "sparse addend"),
        (lambda a, x: torch.sparse.sampled_addmm(a, a, x), "sampled_addmm of sparse factors"),
    ],
)
def test_calls__without_a_meaning_for_sparse_tensors__are_refused(function: Product, text: str) -> None:
    with pytest.raises(UnsupportedOpError, match=text):
        poptorch.inferenceModel(Holds(sparse_of(matrix(), "csr"), "attribute", function))(torch.randn(12, 5))


def test_sparse_tensors__that_are_no_ordered_matrices__are_refused() -> None:
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.ones(2), (8, 12), check_invariants=True)
    stacked = sparse_of(torch.randn(2, 8, 12), "coo")
    for tensor, text in ((twice, "there twice"), (stacked, "take matrices")):
        with pytest.raises(SparsePatternError, match=text):
            poptorch.inferenceModel(Holds(tensor, "buffer", PRODUCTS["operator"]))(torch.randn(12, 5))


def test_sparse_argument__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="a is a tensor of layout"):
        poptorch.inferenceModel(lambda x, a: a @ x)(torch.randn(12, 5), sparse_of(matrix(), "coo"))


def test_sparse_matrix__from_outside_of_the_model__is_a_constant() -> None:
    dense, x = matrix(), torch.randn(12, 5)
    sparse = sparse_of(dense, "csr")
    torch.testing.assert_close(poptorch.inferenceModel(lambda x: sparse @ x)(x), dense @ x, rtol=1e-4, atol=1e-5)
