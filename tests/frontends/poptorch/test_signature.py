"""Arguments: binding, and checks of later calls against the compiled one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from abele.frontends.poptorch.errors import CheckError, Error
from abele.frontends.poptorch.values.signature import ForwardSignature


def forward(x: torch.Tensor, y: Any = None, *, scale: float = 1.0) -> torch.Tensor:
    return x


def compiled(*args: Any, **kwargs: Any) -> ForwardSignature:
    signature = ForwardSignature(forward)
    signature.record(*signature.bind(args, kwargs))
    return signature


def match(signature: ForwardSignature, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    return signature.match(*signature.bind(args, kwargs))


X, Y = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)


def test_match__positional_or_keyword__are_the_same() -> None:
    signature = compiled(X, Y)
    assert [t.shape for t in match(signature, y=Y, x=X)] == [X.shape, Y.shape]


def test_match__order_of_dict_keys__does_not_matter() -> None:
    signature = compiled(X, {"a": X, "b": Y})
    tensors = match(signature, X, {"b": Y, "a": X})
    assert [t.dtype for t in tensors] == [torch.float32, torch.float32, torch.int64]


BIND_ERRORS = {
    "missing": ((), {"y": Y}, "Mandatory parameter x missing"),
    "many": ((X, Y, 3), {}, r"Too many arguments provided: expected \['x', 'y'\] \(2\) but got 3"),
    "unknown": ((X,), {"z": 1}, "z is not a valid parameter."),
}


@pytest.mark.parametrize("name", BIND_ERRORS)
def test_bind__wrong_arguments__are_named(name: str) -> None:
    args, kwargs, text = BIND_ERRORS[name]
    with pytest.raises((Error, CheckError), match=text):
        ForwardSignature(forward).bind(args, kwargs)


MISMATCHES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], str]] = {
    "shape": (
        (X,),
        (torch.zeros(4, 3),),
        r"Shape mismatch for x: expected torch.Size\(\[2, 3\]\) but got torch.Size\(",
    ),
    "dtype": ((X, Y), (X, Y.int()), "Data type mismatch for y: expected torch.int64 but got torch.int32"),
    "type": ((X,), (X, Y), "Type mismatch for y: expected <class 'NoneType'> but got <class 'torch.Tensor'>"),
    "tensor": ((X, Y), (X, 3), "Type mismatch for y: expected <class 'torch.Tensor'> but got <class 'int'>"),
    "value": ((X, 5), (X, 3), "Value mismatch for y: expected 5 but got 3"),
    "keys": ((X, {"x": X}), (X, {"z": X}), "Keys mismatch for y: Unexpected arguments: z. Missing arguments: x"),
    "length": ((X, [X]), (X, [X, X]), "Length mismatch for y: expected 1 elements but got 2"),
    "inside": ((X, [X]), (X, [Y]), r"Data type mismatch for y\[0\]"),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_match__another_signature__is_refused_with_what_differs(name: str) -> None:
    first, later, text = MISMATCHES[name]
    with pytest.raises(Error, match=text) as caught:
        match(compiled(*first), *later)
    assert "This error occurred because the inputs passed at runtime don't match" in str(caught.value)
    assert str(caught.value).startswith("'poptorch_py_error': ")


def test_match__constant_keyword__is_compared() -> None:
    with pytest.raises(Error, match=r"Value mismatch for scale: expected 2\.0 but got 3\.0"):
        match(compiled(X, scale=2.0), X, scale=3.0)


def test_record__tensor_without_elements__is_refused() -> None:
    with pytest.raises(Error, match=r"Zero-sized tensors are unsupported \(Got shape \[0, 3\]\)"):
        compiled(torch.zeros(0, 3))
