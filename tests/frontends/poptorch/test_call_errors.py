"""Refused calls, and code that depends on values: PyTorch's text, with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from abele import poptorch
from abele.errors import AbeleError
from abele.frontends.poptorch.capture import capture

X = torch.arange(12.0).reshape(3, 4)
PARTS = torch.tensor([0, 1, 1, 2])


class Applied(nn.Module):
    """A function, which may be looked at as the model's own code."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def refused(function: Callable[..., Any], *args: Any) -> AbeleError:
    """Error of recording a function."""
    with pytest.raises(AbeleError) as caught:
        capture(Applied(function), args, training=False)
    return caught.value


WRONG: dict[str, Callable[..., Any]] = {
    "matmul": lambda x: x @ x,
    "linear": lambda x: nn.functional.linear(x, torch.ones(2, 3)),
    "bmm": lambda x: torch.bmm(x, x),
    "convolution": lambda x: nn.functional.conv1d(x, torch.ones(2, 5, 2)),
    "cat": lambda x: torch.cat([x, x[:, :2]]),
    "cat_dim": lambda x: torch.cat([x, x], 5),
    "stack": lambda x: torch.stack([x, x[0]]),
    "view": lambda x: x.view(5, -1),
    "broadcast": lambda x: x + torch.ones(3),
    "dim": lambda x: x.sum(3),
    "transpose": lambda x: x.transpose(0, 2),
    "index": lambda x: x[5],
    "many_indices": lambda x: x[0, 0, 0],
    "float_index": lambda x: x[x],
    "embedding": lambda x: nn.functional.embedding(x, x),
    "gather": lambda x: x.gather(0, x),
    "masks": lambda x: x.masked_fill(x, 0),
    "argument": lambda x: torch.softmax(x, axis=1, wrong=2),  # type: ignore[call-arg]
    "type": lambda x: nn.functional.conv2d(x, "w"),  # type: ignore[call-overload]
    "cross_entropy": lambda x: nn.functional.cross_entropy(x, torch.zeros(2, dtype=torch.long)),
    "chunk": lambda x: x.chunk(0),
    "reshape": lambda x: x.expand(2, 4),
    "norm": lambda x: nn.functional.layer_norm(x, (5,)),
    "permute": lambda x: x.permute(0, 0),
    "long_float": lambda x: torch.mm(x, torch.ones(4, 2, dtype=torch.long)),
}


@pytest.mark.parametrize("name", WRONG)
def test_call__that_pytorch_refuses__has_its_text_and_the_users_line(name: str) -> None:
    function = WRONG[name]
    with pytest.raises(Exception) as expected:  # noqa: PT011  # of any kind
        function(X)
    error = refused(function, X)
    assert str(expected.value).strip() == error.message
    assert isinstance(error, poptorch.Error)
    assert isinstance(error, type(expected.value))
    assert "test_call_errors.py" in str(error.at)
    assert "Fake" not in str(error)


def test_call__with_text_as_operand__names_no_stand_in() -> None:
    error = refused(lambda x: x + "a", X)
    assert "unsupported operand type(s) for +: 'Tensor' and 'str'" in str(error)
    assert isinstance(error, TypeError)


def test_call__that_is_refused__may_be_caught_by_the_model() -> None:
    def function(x: Tensor) -> Tensor:
        try:
            return x.view(5, -1)
        except RuntimeError:
            return x * 2

    assert torch.equal(poptorch.inferenceModel(Applied(function))(X), X * 2)


OF_SIZES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "ones": (lambda i: torch.ones(i.max().item()), (PARTS,)),
    "ones_of_mask": (lambda x: torch.ones(x[x > 2].size(0)), (X,)),
    "unique": (lambda i: torch.zeros(i.unique().numel()), (PARTS,)),
    "slice": (lambda x, n: x[:n], (X, torch.tensor(2))),
    "slice_item": (lambda x, n: x[: n.item()], (X, torch.tensor(2))),
    "int": (lambda x, n: x.view(int(n), -1), (X, torch.tensor(2))),
    "sum": (lambda i: torch.arange(int(i.max()) + 1), (PARTS,)),
    "range": (lambda x, n: sum(x[i] for i in range(n)), (X, torch.tensor(2))),
    "split": (lambda x, n: x.split(n.tolist()), (X, torch.tensor([1, 2]))),
    "expand": (lambda x, n: x[:1].expand(n.item(), -1), (X, torch.tensor(2))),
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_size__that_depends_on_values__is_refused_with_what_to_pass(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    function, args = OF_SIZES[name]
    error = refused(function, *args)
    text = str(error)
    assert "depends on the values of a tensor" in text or "depends on values" in text
    assert "num_graphs=, num_nodes=" in text or "static" in text
    assert "test_call_errors.py" in str(error.at)
    assert capfd.readouterr().err == ""


OF_RESULTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "nonzero": (torch.nonzero, (X,), "nonzero_static"),
    "masked_select": (lambda x: x.masked_select(x > 2), (X,), "torch.where"),
    "mask": (lambda x: x[x > 2], (X,), "torch.where"),
    "repeat_interleave": (lambda x, i: x.repeat_interleave(i, 1), (X, PARTS), "output_size"),
    "unique": (lambda i: torch.unique(i, return_inverse=True)[1], (PARTS,), "num_graphs"),
    "where": (lambda x: torch.where(x > 2)[0], (X,), "three arguments"),
    "bincount": (torch.bincount, (PARTS,), "minlength"),
}


@pytest.mark.parametrize("name", OF_RESULTS)
def test_result__whose_size_depends_on_values__is_refused_with_a_remedy(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    function, args, remedy = OF_RESULTS[name]
    error = refused(function, *args)
    assert "depends on" in str(error)
    assert remedy in str(error.remedy)
    assert "test_call_errors.py" in str(error.at)
    assert capfd.readouterr().err == ""


def groups_of(parts: Tensor) -> Tensor:
    return parts.unique()


def test_error__in_a_function_that_forward_calls__names_the_line_of_the_function() -> None:
    line = groups_of.__code__.co_firstlineno + 1
    assert str(refused(groups_of, PARTS).at).endswith(f"test_call_errors.py:{line}")


def doubled(x: Tensor) -> Tensor:
    while x.max() < 100:
        x = x * 2
    return x


OF_CONDITIONS: dict[str, Callable[[Tensor], Any]] = {
    "if": lambda x: x if x.sum() > 0 else -x,
    "while": doubled,
    "item": lambda x: x if x.sum().item() > 0 else -x,
    "equal": lambda x: x if torch.equal(x, x + 1) else -x,
    "min": lambda x: x * min(x.sum().item(), 1.0),
}


@pytest.mark.parametrize("name", OF_CONDITIONS)
def test_condition__on_data__is_refused_with_what_to_use(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    error = refused(OF_CONDITIONS[name], X)
    assert "Python code depends on the value of a tensor" in error.message
    assert "torch.cond or torch.where" in str(error.remedy)
    assert "test_call_errors.py" in str(error.at)
    assert "u0" not in str(error)
    assert capfd.readouterr().err == ""


def test_numbers__that_the_device_knows__are_computed_with() -> None:
    def function(x: Tensor, n: Tensor) -> Tensor:
        return x * (x.sum().item() * 2 + 1) / -x.max().item() + x[n.item()]  # type: ignore[index]

    expected = function(X, torch.tensor(1))
    torch.testing.assert_close(poptorch.inferenceModel(Applied(function))(X, torch.tensor(1)), expected)
