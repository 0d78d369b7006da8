"""Capture: structure, weights, losses, source lines, and what cannot be captured."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Classifier, check_against_torch, feeds_of
from torch import nn

from abele.errors import TypeMismatchError, UnsupportedOpError
from abele.frontends.poptorch import Error, identity_loss
from abele.frontends.poptorch.capture import capture, decomposition
from abele.frontends.poptorch.capture.registry import HANDLERS, handler_of
from abele.network import differentiate, evaluate


class Digits(nn.Module):
    """A convolutional classifier with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(256, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        scores = functional.log_softmax(self.fc2(torch.relu(self.fc1(x.flatten(1)))), 1)
        return scores, functional.nll_loss(scores, labels)


class NonLocal(nn.Module):
    """Attention over positions, with a residual."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Conv2d(channels, inner, 1) for _ in range(3))
        self.out = nn.Conv2d(inner, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta, phi, g = (f(x).flatten(2) for f in (self.theta, self.phi, self.g))
        weights = torch.softmax(theta.transpose(1, 2) @ phi, -1)
        return self.out((weights @ g.transpose(1, 2)).transpose(1, 2).reshape(x.shape[0], -1, *x.shape[2:])) + x


def bragg() -> nn.Module:
    leaky = nn.LeakyReLU(0.01)
    body = nn.Sequential(nn.Conv2d(1, 64, 3), NonLocal(64, 32), leaky, nn.Conv2d(64, 32, 3), leaky)
    head = nn.Sequential(nn.Conv2d(32, 8, 3), leaky, nn.Flatten(), nn.Linear(200, 64), leaky, nn.Linear(64, 2))
    return nn.Sequential(body, head)


class WithMse(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.body(x)
        return out, functional.mse_loss(out, y)


def num_compute_ops(model: nn.Module, args: tuple[Any, ...]) -> int:
    """Ops of a captured forward pass that are no views."""
    net = capture(model, args, training=True).net
    return sum(
        op.kind not in ("constant", "reshape", "permute", "expand", "slice", "concat", "detach") for op in net.ops
    )


# --- whole models -----------------------------------------------------------------------------------------------------


def test_capture__digits_network__equals_pytorch() -> None:
    torch.manual_seed(0)
    check_against_torch(Digits(), (torch.randn(4, 1, 8, 8), torch.randint(0, 10, (4,))))


def test_capture__bragg_network__equals_pytorch() -> None:
    torch.manual_seed(0)
    check_against_torch(WithMse(bragg()), (torch.randn(2, 1, 11, 11), torch.randn(2, 2)))


def test_capture__known_models__keep_their_high_level_ops() -> None:
    digits = (torch.randn(4, 1, 8, 8), torch.randint(0, 10, (4,)))
    assert num_compute_ops(Digits(), digits) == 15
    assert num_compute_ops(WithMse(bragg()), (torch.randn(2, 1, 11, 11), torch.randn(2, 2))) == 19


def test_capture__gradients__equal_the_joint_graph_of_aotautograd() -> None:
    from torch.export.experimental import _export_forward_backward

    torch.manual_seed(1)
    model, args = Digits(), (torch.randn(4, 1, 8, 8), torch.randint(0, 10, (4,)))
    captured = capture(model, args, training=True)
    made = differentiate(captured.net, captured.net.parameters)
    grads, values = made.gradients, evaluate(made, feeds_of(captured, args), precise=False)

    class OnlyLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.model(x, y)[1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint = _export_forward_backward(torch.export.export(OnlyLoss(), args, strict=False))
    names = {spec.arg.name: spec.target for spec in joint.graph_signature.output_specs if "GRADIENT" in spec.kind.name}
    results = dict(zip(_output_names(joint), _run_joint(joint, args), strict=True))
    assert len(names) == len(captured.net.parameters)
    for parameter, gradient in grads.items():
        (output,) = (n for n, target in names.items() if target == f"model.{parameter.name}")
        np.testing.assert_allclose(values[gradient], results[output].detach().numpy(), rtol=2e-4, atol=2e-6)


def _output_names(program: Any) -> list[str]:
    return [spec.arg.name for spec in program.graph_signature.output_specs]


def _run_joint(program: Any, args: tuple[torch.Tensor, ...]) -> Any:
    state = [
        program.state_dict[s.target] for s in program.graph_signature.input_specs if s.target in program.state_dict
    ]
    return program.graph_module(*state, *args)


# --- structure --------------------------------------------------------------------------------------------------------


class Nested(nn.Module):
    def forward(self, x: torch.Tensor, flag: bool, extra: dict[str, torch.Tensor]) -> dict[str, Any]:
        y = x + 1 if flag else x - 1
        return {"sum": (y + extra["a"], None), "flag": flag, "count": 3}


def test_capture__nested_arguments_and_results__keep_their_structure() -> None:
    captured = capture(Nested(), (torch.zeros(2), True, {"a": torch.zeros(2)}), training=False)
    assert [v.name for v in captured.net.inputs] == ["x", "extra_a"]
    marker = torch.tensor([5.0])
    assert captured.rebuild([marker]) == {"sum": (marker, None), "flag": True, "count": 3}


def test_capture__wide_types__are_narrowed() -> None:
    class Wide(nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, i + 1

    captured = capture(Wide(), (torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)), training=False)
    assert [str(v.dtype) for v in captured.net.inputs] == ["f32", "i32"]
    assert [leaf.dtype for leaf in captured.outputs] == [torch.float32, torch.int32]


def test_capture__half_model__is_a_half_network() -> None:
    captured = capture(Classifier().half(), (torch.zeros(2, 12).half(), torch.zeros(2).long()), training=True)
    assert {str(p.dtype) for p in captured.net.parameters} == {"f16"}
    assert all(str(op.output.dtype) == "f16" for op in captured.net.ops if op.kind == "linear")


def test_capture__complex_input__has_no_type_on_the_device() -> None:
    with pytest.raises(TypeMismatchError, match="complex64 does not exist on the device"):
        capture(nn.Identity(), (torch.zeros(2, dtype=torch.complex64),), training=False)


def test_capture__tied_weights__are_one_parameter() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return identity_loss(self.b(torch.tanh(self.a(x))), "sum")

    captured = check_against_torch(Tied(), (torch.randn(2, 3),))
    assert len(captured.net.parameters) == 1


def test_capture__batch_norm_when_training__updates_its_buffers() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.BatchNorm1d(3))
    x = torch.randn(6, 3)
    captured = capture(model, (x,), training=False)
    values = evaluate(captured.net, feeds_of(captured, (x,)))
    updates = {b.name: values[v] for b, v in captured.net.updates.items()}
    model(x)
    for name, expected in model.named_buffers():
        np.testing.assert_allclose(updates[name], expected.numpy(), rtol=1e-6)


# --- losses -----------------------------------------------------------------------------------------------------------


class Losses(nn.Module):
    """Any function of the model's output as a training step."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.fc(x), x)


@pytest.mark.parametrize("marked", [False, True])
def test_loss__not_returned__is_found_in_the_graph(marked: bool) -> None:
    def only_output(y: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
        identity_loss(y, "sum") if marked else functional.mse_loss(y, x)
        return {"y": y}

    model = Losses(only_output)
    captured = capture(model, (torch.zeros(2, 3),), training=True)
    assert captured.net.loss is not None
    assert len(captured.net.outputs) == 1
    assert captured.rebuild([torch.ones(1)]) == {"y": torch.ones(1)}
    assert "forward" not in vars(model)


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_identity_loss__every_reduction__gives_pytorchs_gradient(reduction: str) -> None:
    def marked(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return identity_loss(y * y, reduction)

    model, x = Losses(marked), torch.randn(2, 3)
    captured = capture(model, (x,), training=True)
    made = differentiate(captured.net, captured.net.parameters)
    grads, values = made.gradients, evaluate(made, feeds_of(captured, (x,)))
    model(x).sum().backward()
    got = {p.name: values[g] for p, g in grads.items()}
    np.testing.assert_allclose(got["fc.weight"], model.fc.weight.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_loss__marked_among_several__is_the_marked_one() -> None:
    captured = capture(
        Losses(lambda y, x: identity_loss(functional.mse_loss(y, x) + functional.l1_loss(y, x), "none")),
        (torch.zeros(2, 3),),
        training=True,
    )
    assert captured.net.outputs == (captured.net.loss,)


def test_loss__none__is_refused() -> None:
    with pytest.raises(Error, match="Couldn't find a loss in graph"):
        capture(Losses(lambda y, x: y), (torch.zeros(2, 3),), training=True)


def test_loss__several__are_refused() -> None:
    with pytest.raises(Error, match="Multiple independent losses found in graph"):
        capture(
            Losses(lambda y, x: functional.mse_loss(y, x) + functional.l1_loss(y, x)),
            (torch.zeros(2, 3),),
            training=True,
        )


def test_identity_loss__unknown_reduction__is_refused() -> None:
    with pytest.raises(Error, match="Unsupported reduction type 'average'"):
        identity_loss(torch.zeros(1), "average")


# --- places -----------------------------------------------------------------------------------------------------------


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as source:
        return next(number for number, line in enumerate(source, 1) if text in line and "line_of" not in line)


def test_origin__every_op__names_module_and_the_users_line() -> None:
    net = capture(Digits(), (torch.randn(4, 1, 8, 8), torch.randint(0, 10, (4,))), training=True).net
    (conv2,) = (op for op in net.ops if op.debug.path == "conv2")
    assert conv2.debug.file == __file__
    assert conv2.debug.line == line_of("x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)")
    assert conv2.debug.text == "conv2 (Conv2d)"


class Exotic(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).real  # an exotic operator


def test_unsupported__operator__names_operator_module_and_line() -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        capture(nn.Sequential(nn.Linear(4, 4), Exotic()), (torch.zeros(2, 4),), training=False)
    text = str(caught.value)
    assert "aten.fft_fft in 1 (Exotic) has no lowering" in text
    assert f"{__file__}:{line_of('# an exotic operator')}" in text


def test_unsupported__several_operators__are_named_at_once_with_modules_and_lines() -> None:
    class Phase(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft(x).imag  # another one

    with pytest.raises(UnsupportedOpError) as caught:
        capture(nn.Sequential(Exotic(), nn.Tanh(), Phase()), (torch.zeros(2, 4),), training=False)
    text = str(caught.value)
    assert text.startswith("4 calls of the model have no lowering")
    assert f"aten.fft_fft in 0 (Exotic) has no lowering, {__file__}:{line_of('# an exotic operator')}" in text
    assert f"aten.fft_rfft in 2 (Phase) has no lowering, {__file__}:{line_of('# another one')}" in text
    assert "docs/operators.md" in text


def test_decomposition__same_call_again__is_recorded_once() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.kron(x, x) * torch.kron(x * 2, x)

    kept = set(decomposition._KEPT)
    capture(Twice(), (torch.zeros(2, 4, 7, 5),), training=False)
    assert sum("kron" in str(key[0]) for key in set(decomposition._KEPT) - kept) == 1


def test_unsupported__misspelt_neighbour__is_offered() -> None:
    class Sorts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.ihfft(x, dim=1)

    with pytest.raises(UnsupportedOpError, match=r"aten\.fft_ihfft"):
        capture(Sorts(), (torch.zeros(2, 4),), training=False)


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # depends on a value
            return x
        return -x


def test_capture__python_condition_on_a_value__is_explained() -> None:
    with pytest.raises(Error) as caught:
        capture(Branching(), (torch.zeros(2),), training=False)
    text = str(caught.value)
    assert "depends on the value of a tensor" in text
    assert "torch.cond or torch.where" in text
    assert f":{line_of('# depends on a value')}" in text


# --- overloads --------------------------------------------------------------------------------------------------------


def test_handlers__overload_with_other_arguments__is_not_taken_for_the_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(HANDLERS, "aten.fft_fft.other", lambda call, value: value)
    with pytest.raises(UnsupportedOpError, match=r"aten\.fft_fft\.default in model \(Exotic\) has no lowering"):
        capture(Exotic(), (torch.zeros(2, 4),), training=False)


def test_handlers__every_overload_of_a_registered_operator__binds_or_is_refused() -> None:
    """No handler is given arguments that it would take for something else: ``out=``, a type, a name."""
    wrong = []
    for name in {".".join(key.split(".")[:2]) for key in HANDLERS if key.startswith("aten.")}:
        packet = getattr(torch.ops.aten, name.removeprefix("aten."))
        for overload in packet.overloads():
            schema = getattr(packet, overload)._schema
            taken = HANDLERS.get(f"{name}.{overload}") or HANDLERS.get(name)
            changes = schema.is_mutable or any(argument.is_out for argument in schema.arguments)
            reinterprets = any(a.name in ("out_dtype", "decimals") for a in schema.arguments)
            if taken and changes and handler_of(_call(getattr(packet, overload))):
                wrong.append(str(schema))
            if f"{name}.{overload}" not in HANDLERS and name in HANDLERS and reinterprets:
                wrong += [str(schema)] if handler_of(_call(getattr(packet, overload))) else []
    assert not wrong


def _call(overload: torch._ops.OpOverload) -> torch.fx.Node:
    """A call of an overload with something for every argument."""
    graph = torch.fx.Graph()
    arguments = overload._schema.arguments
    args = tuple(0 for a in arguments if not a.kwarg_only)
    return graph.call_function(overload, args, {a.name: 0 for a in arguments if a.kwarg_only})
