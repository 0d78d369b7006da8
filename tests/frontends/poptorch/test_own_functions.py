"""PopTorch's own functions in models: loops and branches on the device, host calls, prints, marks, decoders, points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.frontends.poptorch.capture import capture
from abele.frontends.poptorch.program.recording import recording


def run(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Result of a function on the device."""
    return poptorch.inferenceModel(function)(*inputs)


def both(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Hold a function on the device against itself on the host."""
    expected, got = function(*inputs), run(function, *inputs)
    for one, other in zip(expected, got, strict=True):
        assert torch.allclose(one.to(other.dtype), other, atol=1e-6)


# --- loops and branches -----------------------------------------------------------------------------------------------


def test_for_loop__in_a_model__runs_on_the_device() -> None:
    outside = torch.tensor([1.0, 2.0, 3.0])

    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        def body(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
            a += 1  # Seen by nobody else.
            return [a * outside, b + a.sum()]

        return [*poptorch.for_loop(4, body, [x, y]), x]

    both(function, torch.tensor([0.5, 1.0, -1.0]), torch.tensor([2.0]))
    with recording():
        net = capture(poptorch.inferenceModel(function).model, (torch.zeros(3), torch.zeros(1)), training=False).net
    assert [op.kind for op in net.ops].count("loop") == 1


def test_for_loop__nested__runs_on_the_device() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        def outer(a: torch.Tensor) -> list[torch.Tensor]:
            (b,) = poptorch.for_loop(2, lambda c: c * 2, [a + 1])
            return [b - a]

        return poptorch.for_loop(3, outer, [x])

    both(function, torch.tensor([1.0, 2.0]))


class Counting(nn.Module):
    """Buffers that bodies of loops and branches change: in place, one element of them, and by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(2))
        self.register_buffer("trips", torch.tensor(0))
        self.register_buffer("unread", torch.ones(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def inner(t: torch.Tensor) -> torch.Tensor:
            self.sums[0] += t[0]
            return t + 1

        def body(t: torch.Tensor) -> list[torch.Tensor]:
            self.sums.copy_(self.sums * 0.5 + t)
            self.trips = self.trips + 1
            return poptorch.for_loop(2, inner, [t])

        def larger(t: torch.Tensor) -> torch.Tensor:
            self.sums.mul_(0.25)
            return t * 2

        def smaller(t: torch.Tensor) -> torch.Tensor:
            self.trips.sub_(1)
            return t * 3 + self.sums

        self.sums.add_(1.0)
        (made,) = poptorch.for_loop(3, body, [x])
        (chosen,) = poptorch.cond(self.sums.sum() > 20, larger, [made], smaller, [made])
        self.sums.sub_(0.5)
        return made + self.sums, chosen, self.trips * 1


def test_buffers__changed_in_bodies__go_from_trip_to_trip_and_from_call_to_call() -> None:
    model, twin = Counting(), Counting()
    wrapped = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(2))
    x = torch.tensor([1.0, 2.0, -3.0, 0.5])
    for _ in range(3):
        expected = [twin(part) for part in x.split(2)]
        got = wrapped(x)
        for place, one in enumerate(got):
            parts = [e[place].reshape(-1) for e in expected]
            torch.testing.assert_close(one.reshape(-1), torch.cat(parts), check_dtype=False)
    for name, buffer in twin.named_buffers():
        torch.testing.assert_close(model.get_buffer(name), buffer, check_dtype=False)


def test_cond__in_a_model__takes_either_branch() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return poptorch.cond(x.sum() > 0, lambda a: [a * y, a], [x], lambda a: (a - y, -a), [x])

    model = poptorch.inferenceModel(function)
    for x in (torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -2.0])):
        y = torch.tensor([3.0, 4.0])
        for one, other in zip(function(x, y), model(x, y), strict=True):
            assert torch.equal(one, other)


def test_for_loop__wrong_inputs__are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(inputs\) to be a list of tensors. \(Object is not list\)"):
        poptorch.for_loop(3, lambda x: x, torch.zeros(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Object contained in list at index 1 is not torch\.tensor"):
        poptorch.for_loop(3, lambda x, y: [x, y], [torch.zeros(2), 3])  # type: ignore[list-item]
    with pytest.raises(poptorch.Error, match=r"result 0 is torch\.float32 of"):
        run(lambda x: poptorch.for_loop(3, lambda a: a.sum(), [x]), torch.zeros(2))


@pytest.mark.parametrize("name", ["for_loop", "cond"])
def test_loops_and_branches__when_training__are_refused(name: str) -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.fc(x)
            made = (
                poptorch.for_loop(2, lambda a: [a + 1], [y])
                if name == "for_loop"
                else poptorch.cond(y.sum() > 0, lambda a: [a], [y], lambda a: [-a], [y])
            )
            return poptorch.identity_loss(made[0], "sum")

    with pytest.raises(poptorch.Error, match=rf"poptorch.{name}\(\) is only supported in inference"):
        poptorch.trainingModel(Trained())(torch.zeros(2, 2))


# --- the host ---------------------------------------------------------------------------------------------------------


def test_cpu__in_a_model__runs_its_function_with_the_values() -> None:
    seen: list[torch.Tensor] = []

    def on_host(x: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
        seen.append(x.clone())
        return {"sorted": torch.sort(x).values * scale, "count": torch.tensor([x.numel()])}

    call = poptorch.CPU(on_host, "sorting")

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = call(x * 2, scale=10.0)
        return made["sorted"] + 1, made["count"]

    model = poptorch.inferenceModel(function)
    for x in (torch.tensor([3.0, 1.0, 2.0]), torch.tensor([5.0, 7.0, 6.0])):
        ordered, count = model(x)
        assert torch.equal(ordered, torch.sort(x * 2).values * 10 + 1)
        assert int(count) == 3
    assert torch.equal(seen[-1], torch.tensor([10.0, 14.0, 12.0]))


def test_cpu__when_training__is_refused() -> None:
    call = poptorch.CPU(torch.sin, "sine")

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss(call(self.fc(x)), "sum")

    with pytest.raises(poptorch.Error, match=r"poptorch.CPU is only supported in inference"):
        poptorch.trainingModel(Trained())(torch.zeros(2, 2))


def test_print_tensor__when_training__prints_value_and_gradient(capfd: pytest.CaptureFixture[str]) -> None:
    class Printed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([2.0, 4.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = poptorch.ipu_print_tensor(self.w * x, "scaled", digits=3, open_bracket="[", close_bracket="]")
            return poptorch.identity_loss(y * y, "sum")

    poptorch.trainingModel(Printed())(torch.tensor([1.0, 0.5]))
    out, error = capfd.readouterr()
    assert not out
    assert error == "scaled: [2.00, 2.00]\nGradient___scaled: [4.00, 4.00]\n"


# --- marks and products -----------------------------------------------------------------------------------------------


def test_marks__in_a_model__change_no_value() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        a, (b, c) = poptorch.recomputationCheckpoint(x + 1, [x * 2, x])
        d = poptorch.set_overlap_for_input([x], poptorch.OverlapMode.NoOverlap)[0]
        return [poptorch.nop(a) * b, c, poptorch.set_overlap_for_output(d - 1, poptorch.OverlapMode.NoOverlap)]

    both(function, torch.tensor([1.0, 2.0]))


LOOP = poptorch.OverlapMode.OverlapAccumulationLoop
OVERLAPS: dict[str, tuple[Any, int, str]] = {
    "no tiles for an input": (
        lambda x: poptorch.set_overlap_for_input(x, LOOP) + 1,
        0,
        r"No IO tiles allocated\. You must allocate at least 32 IO tiles using poptorch\.Options\(\)\.TensorLocations"
        r"\.numIOTiles\.",
    ),
    "no tiles for an output": (
        lambda x: {"y": poptorch.set_overlap_for_output([x + 1], LOOP)},
        0,
        r"No IO tiles allocated[^\n]*",
    ),
    "no input": (
        lambda x: poptorch.set_overlap_for_input([x, x + 1], LOOP),
        32,
        r"poptorch\.set_overlap_for_input applied on a node which is not a tensor input to the model\.",
    ),
    "no output": (
        lambda x: poptorch.set_overlap_for_output(x + 1, poptorch.OverlapMode.NoOverlap) * 2,
        32,
        r"poptorch\.set_overlap_for_output applied on a node which is not a tensor output to the model\.",
    ),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_overlap__of_what_cannot_overlap__is_refused_with_the_line(name: str) -> None:
    function, tiles, text = OVERLAPS[name]
    opts = poptorch.Options()
    if tiles:
        opts.TensorLocations.numIOTiles(tiles)
    with pytest.raises(poptorch.Error, match=rf"{text}\n  at .*test_own_functions.py:\d+"):
        poptorch.inferenceModel(function, opts)(torch.ones(2))


@pytest.mark.parametrize("mode", list(poptorch.MatMulSerializationMode))
def test_serialized_matmul__every_mode__equals_one_product(mode: Any) -> None:
    torch.manual_seed(0)
    lhs, rhs = torch.randn(2, 4, 6), torch.randn(6, 8)
    (got,) = run(lambda a, b: [poptorch.serializedMatMul(a, b, mode, 2)], lhs, rhs)
    assert torch.allclose(got, lhs @ rhs, atol=1e-5)


def test_serialized_matmul__factor_that_does_not_divide__is_refused() -> None:
    with pytest.raises(AssertionError, match=r"cannot split the columns \(8\) into 3 equal parts"):
        poptorch.serializedMatMul(
            torch.zeros(2, 6), torch.zeros(6, 8), poptorch.MatMulSerializationMode.OutputChannels, 3
        )


# --- points and labels ------------------------------------------------------------------------------------------------


def test_fps__two_sets__takes_points_far_apart() -> None:
    points = torch.tensor([[0.0], [1.0], [10.0], [4.0], [0.0], [5.0], [1.0], [2.0]])
    (got,) = run(lambda x: [poptorch.fps(x, [0, 4, 8], 0.5)], points)
    assert got.tolist() == [0, 2, 4, 5]


def test_nearest__with_sets__stays_within_them() -> None:
    x, y = torch.tensor([[0.0], [9.0], [1.0]]), torch.tensor([[0.5], [8.0], [1.1]])
    (got,) = run(lambda a, b: [poptorch.nearest(a, b)], x, y)
    assert got.tolist() == [0, 1, 2]
    (apart,) = run(lambda a, b: [poptorch.nearest(a, b, [0, 0, 0], [0, 0, 1])], x, y)
    assert apart.tolist() == [0, 1, 0]


def test_ctc_decoder__clear_probabilities__gives_their_labels() -> None:
    labels = [1, 1, 0, 2, 0, 2]
    probs = torch.full((6, 1, 3), 0.01)
    for step, label in enumerate(labels):
        probs[step, 0, label] = 0.98
    scores, lengths, paths = run(
        lambda p, n: poptorch.ctc_beam_search_decoder(p, n, beam_width=4, top_paths=2), probs.log(), torch.tensor([6])
    )
    assert scores.shape == (1, 2)
    assert int(lengths[0, 0]) == 3
    assert paths[0, 0, :3].tolist() == [1, 2, 2]
