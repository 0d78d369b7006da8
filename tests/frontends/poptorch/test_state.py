"""Changes by models of their parameters and buffers while they run."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from abele import poptorch


class Stateful(nn.Module):
    """A layer and a buffer, and what ``change`` does with them."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change
        self.register_buffer("seen", torch.tensor([1.0, 2.0]))
        self.register_buffer("other", torch.tensor([5.0, 6.0]))
        self.layer = nn.Linear(2, 2)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[0.5, -0.25], [1.0, 0.75]]))
            self.layer.bias.fill_(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.change(self, x)
        y = self.layer(x)
        if getattr(self, "seen", None) is not None:
            y = y + self.seen
        return poptorch.identity_loss((y**2).mean(), reduction="none")


def reassigned_buffer(model: Any, x: torch.Tensor) -> None:
    model.seen = (model.seen + x[0]).double()


def reassigned_parameter(model: Any, x: torch.Tensor) -> None:
    model.layer.weight = nn.Parameter(torch.ones(2, 2))


def deleted_buffer(model: Any, x: torch.Tensor) -> None:
    del model.seen


def emptied_buffer(model: Any, x: torch.Tensor) -> None:
    model.seen = None


def without_bias(model: Any, x: torch.Tensor) -> None:
    model.layer.bias = None


@pytest.mark.parametrize(("change", "what"), [(reassigned_buffer, "Buffer seen"), (reassigned_parameter, "Parameter")])
def test_state__assigned_anew__is_refused_with_a_remedy(change: Any, what: str) -> None:
    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(Stateful(change))(torch.ones(1, 2))
    name = "seen" if what.startswith("Buffer") else "layer.weight"
    text = "is reassigned within the model when calling the forward method. This is not supported. "
    text += f"Consider using self.{name}.copy_(src)"
    assert what in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [(deleted_buffer, "Buffer seen"), (emptied_buffer, "Buffer seen"), (without_bias, "Parameter layer.bias")],
)
def test_state__removed__is_refused(change: Any, what: str) -> None:
    with pytest.raises(poptorch.Error, match=f"{what} is removed from the model when calling the forward method."):
        poptorch.inferenceModel(Stateful(change))(torch.ones(1, 2))


def test_state__buffer_that_is_no_tensor__is_refused() -> None:
    model = Stateful(lambda *_: None)
    model._buffers["seen"] = 5  # type: ignore[assignment]
    with pytest.raises(poptorch.Error, match=r"All buffers must be an instance of torch.Tensor \(Got <class 'int'>\)"):
        poptorch.inferenceModel(model)(torch.ones(1, 2))


def doubled(model: Any, x: torch.Tensor) -> None:
    with torch.no_grad():
        model.layer.weight.mul_(1.25)


def clipped(model: Any, x: torch.Tensor) -> None:
    model.layer.weight.data.clamp_(-0.5, 0.5)


def new_data(model: Any, x: torch.Tensor) -> None:
    model.layer.bias.data = model.layer.bias.data * 0.5
    model.seen.data[1] += 1


def averaged(model: Any, x: torch.Tensor) -> None:
    model.seen.mul_(0.5).add_(model.layer.weight.data[0] * 0.5)
    with torch.no_grad():
        model.layer.bias.copy_(model.layer.weight[0])


def exchanged(model: Any, x: torch.Tensor) -> None:
    kept = model.seen.clone()
    model.seen.copy_(model.other)
    model.other.copy_(kept)


def turned(model: Any, x: torch.Tensor) -> None:
    model.seen.copy_(model.seen.flip(0))


CHANGES = [doubled, clipped, new_data, averaged, exchanged, turned]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("accumulation", [2, 1])
def test_state__changed_in_place__trains_as_on_the_host(change: Any, accumulation: int) -> None:
    """Changes last, come before the optimiser's step, and have no derivative."""
    model, reference = Stateful(change), Stateful(change)
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    options = poptorch.Options()
    options.Training.gradientAccumulation(accumulation)
    host = torch.optim.SGD(reference.parameters(), lr=0.01, momentum=0.5)
    device = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    trained = poptorch.trainingModel(model, options, device)
    for _ in range(2):
        trained(x)
        host.zero_grad()
        for part in x.chunk(accumulation):
            (reference(part) / accumulation).backward()
        host.step()
    trained.copyWeightsToHost()
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("change", CHANGES)
def test_state__changed_in_place_by_inference__lasts(change: Any) -> None:
    model, reference = Stateful(change), Stateful(change)
    run = poptorch.inferenceModel(model)
    x = torch.tensor([[1.0, -2.0]])
    for _ in range(3):
        torch.testing.assert_close(run(x), reference(x).detach())
    run.copyWeightsToHost()
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)


class Remembering(nn.Module):
    """Sets attributes of its own when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.calls = 0
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.shape = x.shape
        self.last = self.body(x)
        self._hidden = [self.last]
        return poptorch.identity_loss(self.last * self.calls, "sum")


@pytest.mark.parametrize("wrap", [poptorch.trainingModel, poptorch.inferenceModel])
def test_attributes__that_forward_sets__stay_unless_they_are_recorded_tensors(wrap: Callable[..., Any]) -> None:
    model = Remembering()
    wrapped = wrap(model, poptorch.Options().deviceIterations(2))
    wrapped(torch.ones(6, 4))
    wrapped(torch.ones(6, 4))
    assert (model.calls, model.shape, model.last) == (1, (3, 4), None)
    assert not hasattr(model, "_hidden")
    pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("device", ["ipu", "ipu:0", torch.device("ipu", 0)])
def test_device_ipu__while_recording__is_where_tensors_are(device: Any) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        made = torch.ones(4, device=device) + torch.tensor([1.0, 2.0, 3.0, 4.0], device=device)
        with torch.device(device):
            made = made + torch.zeros(4)
        return x.to(device) + made.to(device=device) + torch.arange(4).to(device, torch.float32)

    result = poptorch.inferenceModel(forward)(torch.zeros(2, 4))
    assert result.tolist() == [[2.0, 4.0, 6.0, 8.0]] * 2


class Neuron(nn.Module):
    """A leaky neuron whose ``forward`` assigns a buffer of state anew."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(shape))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("last", torch.zeros(2))
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        if self.state.shape != x.shape:
            self.state = torch.zeros_like(x)
        before = self.state
        self.calls, self.last = self.calls + 1, x[0]
        for _ in range(2):
            self.state = 0.5 * self.state + self.layer(x).detach()
        self.state[0] -= 0.25
        made = self.layer(x) + self.state
        return before, made, poptorch.identity_loss((made**2).mean(), reduction="none")


@pytest.mark.parametrize("shape", [(2, 2), (0,)], ids=["of_its_shape", "empty"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_buffer__assigned_anew__has_the_last_value(shape: tuple[int, ...], training: bool) -> None:
    model = Neuron(shape)
    twin = copy.deepcopy(model)
    options = poptorch.Options()
    if training:
        options.Training.gradientAccumulation(2)
        optimiser = poptorch.optim.SGD(model.parameters(), lr=0.0)
        wrapped = poptorch.trainingModel(model, options, optimizer=optimiser)
    else:
        wrapped = poptorch.inferenceModel(model, options.deviceIterations(2))
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0], [0.25, 4.0], [-1.0, 1.0]])
    for _ in range(3):
        got = wrapped(x)
        expected = [twin(part)[:2] for part in x.split(2)]
        joined = [torch.cat(part) for part in zip(*expected, strict=True)]
        for one, other in zip(got, expected[-1] if training else joined, strict=False):
            torch.testing.assert_close(one, other.detach(), rtol=1e-5, atol=1e-6)
    for name, buffer in twin.named_buffers():
        torch.testing.assert_close(wrapped.state_dict()[name], buffer, check_dtype=False, rtol=1e-5, atol=1e-6)


def test_buffers__that_change_places__keep_their_values() -> None:
    class Swapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("first", torch.zeros(2))
            self.register_buffer("second", torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.first, self.second = self.second, self.first
            return x + self.first

    model = poptorch.inferenceModel(Swapping())
    for wanted in (1.0, 0.0, 1.0):
        assert torch.equal(model(torch.zeros(2)), torch.full((2,), wanted))


def test_buffer__registered_in_forward__is_the_models() -> None:
    def lazily(model: Any, x: torch.Tensor) -> None:
        if not hasattr(model, "made"):
            model.register_buffer("made", torch.zeros(2))
        model.made = model.made + x[0]

    model = Stateful(lazily)
    wrapped = poptorch.inferenceModel(model)
    for _ in range(3):
        wrapped(torch.ones(1, 2))
    assert torch.equal(model.made, torch.full((2,), 3.0))


def test_buffer__that_begins_with_what_inputs_say__is_refused() -> None:
    def lazily(model: Any, x: torch.Tensor) -> None:
        if not hasattr(model, "made"):
            model.register_buffer("made", x * 2)

    model = Stateful(lazily)
    with pytest.raises(poptorch.Error, match="Buffer made is registered when calling the forward method"):
        poptorch.inferenceModel(model)(torch.ones(1, 2))
    assert not hasattr(model, "made")


OUTSIDE = torch.ones(2)


def in_place(model: Any, x: torch.Tensor) -> None:
    model.plain += x[0]


def one_element(model: Any, x: torch.Tensor) -> None:
    model.plain[0] = 2.0


def in_list(model: Any, x: torch.Tensor) -> None:
    model.parts.append(x)
    model.plain = model.plain + len(model.parts)


def of_the_program(model: Any, x: torch.Tensor) -> None:
    OUTSIDE.add_(1.0)
    model.plain = OUTSIDE


@pytest.mark.parametrize("change", [in_place, one_element, in_list, of_the_program])
def test_constant__that_forward_changes__begins_anew_with_every_call(change: Any) -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain, self.parts = torch.ones(2), [torch.zeros(2)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            change(self, x)
            return x * self.plain

    x = torch.tensor([[1.0, 2.0]])
    model = Constant()
    wrapped = poptorch.inferenceModel(model)
    got = [wrapped(x) for _ in range(2)]
    assert torch.equal(model.plain, torch.ones(2))
    assert len(model.parts) == 1
    assert torch.equal(OUTSIDE, torch.ones(2))
    expected = Constant()(x)
    OUTSIDE.fill_(1.0)
    assert torch.equal(got[0], expected)
    assert torch.equal(got[1], expected)
