"""Inputs changed by the model, integers outside the device's range, labels without a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Classifier
from test_executor import LABELS, X, options
from torch import nn

from abele.errors import ApplicationRuntimeError, ElementRangeError, TensorIndexError, UnsupportedOpError
from abele.frontends import poptorch


def in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    x[0] = 5
    return x * 2


def into_argument(x: torch.Tensor) -> torch.Tensor:
    torch.mul(x.clone(), 3, out=x)
    return x + 1


def batched_product(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(2, 2, 2)
    torch.bmm(x.view(2, 2, 3), x.view(2, 3, 2), out=out)
    return out


@pytest.mark.parametrize("function", [in_place, into_argument, batched_product])
def test_call__that_changes_its_input__changes_the_callers_tensor_as_pytorch_does(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = torch.arange(12.0).reshape(4, 3)
    changed = x.clone()
    expected = function(changed)
    got = poptorch.inferenceModel(function, options())(x)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(x, changed)


def test_call__that_takes_a_dim_away_from_its_input__changes_the_callers_elements() -> None:
    x = torch.arange(3.0).reshape(1, 3)
    torch.testing.assert_close(poptorch.inferenceModel(lambda x: x.squeeze_().add_(1))(x), torch.tensor([1.0, 2, 3]))
    torch.testing.assert_close(x, torch.tensor([[1.0, 2, 3]]))


def test_call__that_changes_its_input__does_so_for_every_micro_batch() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sum()

    x = torch.arange(12)
    model = poptorch.inferenceModel(doubled, options(3).outputMode(poptorch.OutputMode.Final))
    for factor in (2, 4):
        total = model(x)
        assert torch.equal(x, torch.arange(12) * factor)
        assert total == x[8:].sum()


WIDE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[int], str]] = {
    "input": (lambda x: x + 1, [2**40, 3], f"the input x is {2**40}"),
    "product": (lambda x: x * x, [2**20, 3], f"a result of mul is {2**40}"),
    "sum": (lambda x: x.sum(), [2**30, 2**30], f"a result of sum is {2**31}"),
    "constant": (lambda x: x + torch.tensor([2**40, 3]), [1, 3], f"the constant {2**40} does not fit in i32"),
    "filled": (lambda x: x + torch.full_like(x, 2**33), [1, 3], "the constant 8589934592.* does not fit in i32"),
}


@pytest.mark.parametrize("name", WIDE)
def test_int64__that_leaves_32_bits__is_refused(name: str) -> None:
    function, numbers, text = WIDE[name]
    with pytest.raises(ElementRangeError, match=text):
        poptorch.inferenceModel(function, options())(torch.tensor(numbers))


def test_int64__number_that_leaves_32_bits__is_refused_with_its_line() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 2**40

    with pytest.raises(UnsupportedOpError, match=r"with the number 1099511627776, which does not fit in 32") as caught:
        poptorch.inferenceModel(Adds(), options())(torch.tensor([1, 3]))
    assert __file__ in str(caught.value)


def test_int64__results_that_fit__are_right() -> None:
    got = poptorch.inferenceModel(lambda x: (x * 2 + 1)[1:].sum(), options())(torch.tensor([5, 2**29, -(2**29)]))
    assert got == 2


def test_int32__wraps_as_in_pytorch() -> None:
    x = torch.tensor([2**20, 3], dtype=torch.int32)
    assert torch.equal(poptorch.inferenceModel(lambda x: x * x, options())(x), x * x)


class Shifted(nn.Module):
    """Labels that the model makes from what it is given."""

    def __init__(self, labels: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.last = nn.Linear(12, 4)
        self.labels = labels

    def forward(self, x: torch.Tensor, given: torch.Tensor) -> Any:
        return functional.cross_entropy(self.last(x), self.labels(given))


def test_labels__out_of_range__are_refused_and_the_weights_stay() -> None:
    model = Classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, LABELS)
    before = model.last.weight.detach().clone()
    wrong = LABELS.clone()
    wrong[3] = 7
    with pytest.raises(TensorIndexError, match="label 7 of cross_entropy_loss is out of bounds: there are 4") as caught:
        training(X, wrong)
    assert caught.value.because == "element [3] of [24]"
    assert isinstance(caught.value, IndexError)
    assert torch.equal(model.last.weight, before)
    wrong[3] = -100
    training(X, wrong)


def test_labels__made_from_inputs__are_checked_too() -> None:
    training = poptorch.trainingModel(Shifted(lambda given: given + 1), options(2, 3))
    training(X, LABELS.clamp(max=2))
    with pytest.raises(TensorIndexError, match="label 4 of cross_entropy_loss"):
        training(X, torch.where(torch.arange(24) == 20, 3, LABELS.clamp(max=2)))


def test_labels__that_only_the_device_knows__leave_the_loss_without_a_number() -> None:
    training = poptorch.trainingModel(Shifted(lambda given: given.long()), options())
    assert training(X, LABELS.float()).isfinite()
    assert training(X, LABELS.float() + 1).isnan()


@pytest.mark.parametrize(
    ("function", "kind"),
    [(lambda x: torch.log(x), "an invalid operation"), (lambda x: 1 / (x + 1), "division by zero")],
)
def test_exceptions__switched_on__end_the_call(function: Callable[[torch.Tensor], torch.Tensor], kind: str) -> None:
    opts = options()
    opts.Precision.enableFloatingPointExceptions(True)
    model = poptorch.inferenceModel(function, opts)
    assert model(torch.ones(4)).isfinite().all()
    with pytest.raises(ApplicationRuntimeError, match=f"floating-point exception: .*{kind}"):
        model(-torch.ones(4))


COMPARISONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "less": lambda x: x < 1,
    "half": lambda x: x.half() >= x[:1].half(),
    "equal": lambda x: x == 2 * x,
    "where": lambda x: torch.where(x > 0, x, 0),
}
QUIET: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "isnan": torch.isnan,
    "itself": lambda x: x != x,
    "isfinite": torch.isfinite,
    "truth": lambda x: x.bool(),
    "passed on": lambda x: torch.relu(x + 1),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison__of_nan_under_exceptions__ends_the_call(name: str) -> None:
    opts = options()
    opts.Precision.enableFloatingPointExceptions(True)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    model = poptorch.inferenceModel(COMPARISONS[name], opts)
    assert torch.equal(model(x), COMPARISONS[name](x))
    with pytest.raises(ApplicationRuntimeError, match="floating-point exception: an invalid operation"):
        model(x * torch.tensor([1, 1, torch.nan, 1]))


@pytest.mark.parametrize("name", QUIET)
def test_question_for_nan__under_exceptions__is_answered(name: str) -> None:
    opts = options()
    opts.Precision.enableFloatingPointExceptions(True)
    x = torch.tensor([1.0, torch.nan, -torch.inf, 0.0])
    torch.testing.assert_close(poptorch.inferenceModel(QUIET[name], opts)(x), QUIET[name](x), equal_nan=True)


def test_exceptions__switched_off__give_what_pytorch_gives() -> None:
    got = poptorch.inferenceModel(torch.log, options())(torch.tensor([-1.0, 0.0]))
    assert got[0].isnan()
    assert got[1] == -torch.inf


DEVICE = torch.device("cpu")
CONSTANT = torch.tensor([1.0, 2.0])
ON_THE_HOST: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "factory": (lambda x: x + torch.tensor([1, 2], device="cpu"), r"shape=\[2\], dtype=Long"),
    "device": (lambda x: x + torch.zeros(1, 2, device=DEVICE), r"shape=\[1, 2\], dtype=Float"),
    "derived": (lambda x: x * (torch.arange(2, device="cpu") > 0), r"shape=\[2\], dtype=Bool"),
    "like": (lambda x: torch.cat([x, torch.ones_like(x, device="cpu")]), r"shape=\[2\], dtype=Float"),
    "other": (
        lambda x: x + torch.ones(2, device=torch.ones(2, dtype=torch.half, device="cpu").device),
        r"shape=\[2\], dtype=Float",
    ),
}
IN_FORWARD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "factory": lambda x: x + torch.tensor([1, 2]),
    "device of another": lambda x: x + torch.tensor([1, 2], device=x.device),
    "moved": lambda x: x + torch.tensor([1, 2], device="cpu").to(x.device),
    "as another": lambda x: x + torch.tensor([1, 2], device="cpu").to(x),
    "number": lambda x: x + torch.tensor(2.0, device="cpu"),
    "Python's number": lambda x: x * torch.tensor([1, 2], device="cpu").sum().item(),
    "copied": lambda x: torch.zeros_like(x).copy_(torch.tensor([1, 2], device="cpu")) + x,
    "from outside": lambda x: x + CONSTANT + torch.zeros(2, device=CONSTANT.device),
    "list": lambda x: x + torch.LongTensor([1, 2]),
    "back and forth": lambda x: x.cpu() + x.to("cpu") + x,
}


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_tensor_on_the_host__among_those_of_the_device__is_refused_with_the_line(name: str) -> None:
    function, text = ON_THE_HOST[name]
    with pytest.raises(
        poptorch.Error, match=rf"Expected an IPU tensor but got tensor\(device=cpu, {text}\)\n  at .*test_inputs.py:\d+"
    ):
        poptorch.inferenceModel(function, options())(torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("name", IN_FORWARD)
def test_tensor_of_forward__without_a_device_or_moved__is_a_constant(name: str) -> None:
    x = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(poptorch.inferenceModel(IN_FORWARD[name], options())(x), IN_FORWARD[name](x))


def test_result_on_the_host__warns() -> None:
    model = poptorch.inferenceModel(lambda x: [x, torch.ones(2, device="cpu")], options())
    with pytest.warns(UserWarning, match="Output expected to be on the IPU but is on cpu"):
        _, made = model(torch.ones(2))
    assert torch.equal(made, torch.ones(2))


WRONG: dict[str, tuple[Any, str]] = {
    "numpy": (X.numpy(), r"x is a NumPy array of shape \[24, 12\](.|\n)*from_numpy"),
    "sparse": (X.to_sparse(), r"x is a tensor of layout torch\.sparse_coo(.|\n)*to_dense"),
    "meta": (X.to("meta"), "x is on the device 'meta'"),
    "list": (X.tolist(), r"linear\(\): argument 'input' .*must be Tensor, not list"),
    "none": (None, "must be Tensor, not NoneType"),
    "shape": (X[:, :5], r"mat1 and mat2 shapes cannot be multiplied \(24x5 and 12x16\)(.|\n)*poptorch_kit.py"),
    "empty": (X[:0], "Zero-sized tensors are unsupported"),
}


@pytest.mark.parametrize("name", WRONG)
def test_call__with_what_is_no_input__is_refused_in_words(name: str, caplog: pytest.LogCaptureFixture) -> None:
    value, text = WRONG[name]
    with pytest.raises(poptorch.Error, match=text):
        poptorch.inferenceModel(Classifier(), options())(value)
    assert not [r for r in caplog.records if r.levelname == "ERROR"]


def test_call__array_later__is_refused_as_another_type() -> None:
    model = poptorch.inferenceModel(Classifier(), options())
    model(X)
    with pytest.raises(poptorch.Error, match="Type mismatch for x"):
        model(X.numpy())


def test_call__error_of_the_models_own_code__is_the_models() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        poptorch.inferenceModel(Fails(), options())(X)


def test_wrapping__lazy_layer_without_a_shape__is_refused() -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(poptorch.Error, match=r"'0\.weight' belongs to a lazy layer"):
        poptorch.inferenceModel(model, options())(X)
    with pytest.raises(poptorch.Error, match=r"'0\.weight' belongs to a lazy layer"):
        poptorch.trainingModel(model, options())


def test_call__function_written_in_c__is_wrapped() -> None:
    assert torch.equal(poptorch.inferenceModel(torch.neg, options())(X), -X)
