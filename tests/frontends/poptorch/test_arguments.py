"""Arguments of the user's own classes, and what is said of tensors that are not taken as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_executor import options

from abele import poptorch

X = torch.arange(12.0).reshape(6, 2)


@dataclasses.dataclass
class Pair:
    """Two tensors and a name."""

    first: torch.Tensor
    second: torch.Tensor
    name: str = "pair"


class PairParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct: Pair) -> Iterator[torch.Tensor]:
        yield struct.first
        yield struct.second

    def reconstruct(self, original_structure: Pair, tensor_iterator: Iterator[torch.Tensor]) -> Pair:
        return Pair(next(tensor_iterator), next(tensor_iterator), original_structure.name)


@pytest.fixture
def registered() -> Iterator[None]:
    poptorch.registerCustomArgParser(Pair, PairParser())
    yield
    poptorch.registerCustomArgParser(Pair, None)


def swapped(pair: Pair, more: Any = None) -> Pair:
    assert pair.first.shape[0] == 3
    return Pair(pair.second * 2, pair.first + 1, pair.name + "s")


@pytest.mark.usefixtures("registered")
def test_parser__of_a_class__takes_its_objects_in_and_gives_them_back() -> None:
    model = poptorch.inferenceModel(swapped, options(2))
    for factor in (1, 3):
        got = model(Pair(X * factor, X + 7), {"inside": [Pair(X, X)]})
        assert isinstance(got, Pair)
        assert got.name == "pairs"
        assert torch.equal(got.first, (X + 7) * 2)
        assert torch.equal(got.second, X * factor + 1)


@pytest.mark.usefixtures("registered")
def test_parser__later_object_with_other_tensors__is_refused_in_words() -> None:
    model = poptorch.inferenceModel(swapped, options(2))
    model(Pair(X, X))
    with pytest.raises(poptorch.Error, match=r"Shape mismatch for pair.1: expected torch.Size\(\[6, 2\]\)"):
        model(Pair(X, X[:4]))
    with pytest.raises(poptorch.Error, match=r"Type mismatch for pair: expected .*Pair.* but got .*Tensor"):
        model(X)


def test_parser__that_is_none__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="arg_parser must inherit from ICustomArgParser"):
        poptorch.registerCustomArgParser(Pair, swapped)
    with pytest.raises(NotImplementedError, match="does not define yieldTensors"):
        poptorch.ICustomArgParser().yieldTensors(Pair(X, X))


def test_input__that_wants_a_gradient__is_detached_with_one_warning() -> None:
    model = poptorch.inferenceModel(lambda x: x * 2, options())
    x = X.clone().requires_grad_()
    with pytest.warns(UserWarning, match=r"requires_grad=True.*will be detached") as caught:
        got = [model(x) for _ in range(2)]
    assert all(torch.equal(result, X * 2) for result in got)
    assert len(caught) == 1


def test_input__that_is_not_contiguous__is_converted_with_one_warning() -> None:
    model = poptorch.inferenceModel(lambda x: x * 2, options())
    with pytest.warns(UserWarning, match="not contiguous: non-contiguous tensors will be converted") as caught:
        got = [model(X.t()) for _ in range(2)]
    assert all(torch.equal(result, X.t() * 2) for result in got)
    assert len(caught) == 1


def test_positional_arguments__of_another_number__are_refused_with_both() -> None:
    model = poptorch.inferenceModel(lambda *args: sum(args), options())
    assert torch.equal(model(X, X, X), X * 3)
    with pytest.raises(poptorch.Error, match="arguments mismatch: expected 3 arguments but got 2") as caught:
        model(X, X)
    assert "don't match the inputs used to compile the model" in str(caught.value)


def test_none__and_order_of_keys__are_part_of_the_signature_and_not() -> None:
    def forward(x: torch.Tensor, table: dict[str, torch.Tensor], y: torch.Tensor | None = None) -> torch.Tensor:
        return x + table["a"] - table["b"] if y is None else x

    model = poptorch.inferenceModel(forward, options())
    assert torch.equal(model(X, {"a": X, "b": X * 2}), X * 0)
    assert torch.equal(model(X, {"b": X, "a": X * 2}, None), X * 2)
    with pytest.raises(poptorch.Error, match="Type mismatch for y: expected <class 'NoneType'>"):
        model(X, {"a": X, "b": X}, X)


def test_keyword_arguments__that_are_missing_or_new__are_named() -> None:
    class Keyed(torch.nn.Module):
        def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
            return x + others["y"]

    wrapped, x = poptorch.inferenceModel(Keyed()), torch.ones(2)
    wrapped(x, y=x)
    with pytest.raises(poptorch.Error, match=r"Keys mismatch for others: Missing arguments: y\."):
        wrapped(x)
    text = r"Keys mismatch for others: Unexpected arguments: z\. Missing arguments: y\.\s+because\s+This error occurred"
    with pytest.raises(poptorch.Error, match=text):
        wrapped(x, z=x)
