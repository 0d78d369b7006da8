"""Sessions: training and running on NumPy arrays, against NumPy; sharing, states and errors."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_front_end import ONE, Trainer, mlp, mlp_batch, mlp_trained, mlp_weights, trace

import abele
from abele.errors import InvalidOptionError, OutOfMemoryError, SessionError, SignatureError, UnknownArrayError
from abele.expr.derivative import arg
from abele.machine import systems
from abele.network import Adam, Group, NetworkBuilder, Sgd
from abele.network.ops import build
from abele.session import OutputMode, Schedule, Session, Settings, SharedArrays, Signature, compile_network
from abele.session.arrays import SharedArray

RATE = 0.1


def session(schedule: Schedule = ONE, optimiser: Sgd | Adam | None = None, batch: int = 4, **more: Any) -> Session:
    """A session of the two layers; one that trains if there is an optimiser."""
    weights = more.pop("weights", None)
    weights = SharedArrays(mlp_weights()) if weights is None else weights
    signature = Signature.of(mlp_batch(batch * schedule.micro_batches))
    net = trace(mlp, weights, signature, schedule)
    groups = None if optimiser is None else [Group(optimiser, tuple(net.parameters))]
    return Session.of(net, schedule, groups=groups, weights=weights, **more)


# --- against NumPy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize(("iterations", "accumulation"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_training__any_schedule__is_what_numpy_computes(iterations: int, accumulation: int, mean: bool) -> None:
    schedule = Schedule(iterations, accumulation, mean)
    x, target = mlp_batch(4 * schedule.micro_batches)
    training = session(schedule, Sgd(lr=RATE, momentum=0.9))
    losses, scores = training(x, target)
    expected, expected_losses = mlp_trained(mlp_weights(), x, target, schedule, lr=RATE, momentum=0.9)
    np.testing.assert_allclose(np.atleast_1d(losses), expected_losses, rtol=1e-5)
    assert scores.shape == (len(x), 2)
    for name, weight in expected.items():
        np.testing.assert_allclose(training.weights[name], weight, rtol=1e-4, atol=1e-6)


def test_training__several_runs__go_on_with_weights_and_momentum() -> None:
    once, twice = (session(Schedule(n), Sgd(lr=RATE, momentum=0.9)) for n in (4, 2))
    x, target = mlp_batch(16)
    once(x, target)
    for part in (slice(0, 8), slice(8, 16)):
        twice(x[part], target[part])
    for name in once.weights:
        np.testing.assert_array_equal(once.weights[name], twice.weights[name])


def test_front_end__steps_per_execution_changed__goes_on_from_weights_and_state() -> None:
    x, target = mlp_batch(24)
    expected, _ = mlp_trained(mlp_weights(), x, target, Schedule(6), lr=RATE, momentum=0.9)
    trainer = Trainer(mlp, mlp_weights(), Sgd(lr=RATE, momentum=0.9))
    trainer.train(x[:8], target[:8], schedule=Schedule(2))
    trainer.train(x[8:12], target[8:12], schedule=Schedule(1))
    trainer.train(x[12:20], target[12:20], schedule=Schedule(2))
    trainer.train(x[20:24], target[20:24])
    assert (trainer.sessions.hits, trainer.sessions.misses) == (2, 2)
    for name, weight in expected.items():
        np.testing.assert_allclose(trainer.weights[name], weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "period", "picked"),
    [(OutputMode.ALL, 1, [0, 1, 2, 3]), (OutputMode.FINAL, 1, [3]), (OutputMode.EVERY_N, 2, [1, 3])],
)
def test_outputs__of_each_mode__are_the_micro_batches_asked_for(
    mode: OutputMode, period: int, picked: list[int]
) -> None:
    x, target = mlp_batch(16)
    _, whole = session(Schedule(4))(x, target)
    _, scores = session(Schedule(4, outputs=mode, period=period))(x, target)
    np.testing.assert_array_equal(scores, np.concatenate([whole[4 * i : 4 * i + 4] for i in picked]))


def test_outputs__summed__are_the_sum_over_micro_batches() -> None:
    x, target = mlp_batch(16)
    _, whole = session(Schedule(4))(x, target)
    loss, scores = session(Schedule(4, outputs=OutputMode.SUM))(x, target)
    np.testing.assert_allclose(scores, whole.reshape(4, 4, 2).sum(0), rtol=1e-5, atol=1e-6)
    assert loss.shape == ()


# --- sharing ---------------------------------------------------------------------------------------------------------


def test_weights__trained_in_one_session__are_used_by_another() -> None:
    weights = SharedArrays(mlp_weights())
    training, inference = session(optimiser=Sgd(lr=RATE), weights=weights), session(weights=weights)
    x, target = mlp_batch(4)
    (before, _), (trained_on, _) = inference(x, target), training(x, target)
    after, _ = inference(x, target)
    assert before == trained_on
    assert after < before


def test_weights__two_training_sessions__train_the_same_weights() -> None:
    weights = SharedArrays(mlp_weights())
    first, second = (session(optimiser=Sgd(lr=RATE), weights=weights) for _ in range(2))
    x, target = mlp_batch(8)
    for part, each in ((slice(0, 4), first), (slice(4, 8), second), (slice(0, 4), first)):
        each(x[part], target[part])
    twelve = np.concatenate([x, x[:4]]), np.concatenate([target, target[:4]])
    expected, _ = mlp_trained(mlp_weights(), *twelve, Schedule(3), lr=RATE)
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, rtol=1e-4, atol=1e-6)


def test_weights__written_on_the_host__reach_the_next_run_and_leave_the_others() -> None:
    training = session(optimiser=Sgd(lr=RATE))
    x, target = mlp_batch(4)
    training(x, target)
    trained = training.weights["in.weight"]
    training(x, target)
    training.weights["out.bias"] = [5.0, 5.0]
    assert not np.array_equal(training.weights["in.weight"], trained)
    np.testing.assert_array_equal(training.weights["out.bias"], [5.0, 5.0])
    loss, _ = training(x, target)
    assert loss > 4.0


def test_run__nothing_changed_since_the_last__looks_at_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    training = session(optimiser=Sgd(lr=RATE, momentum=0.9))
    x, target = mlp_batch(4)
    losses = [training(x, target)[0] for _ in range(3)]
    looked_at: list[str] = []
    find = SharedArrays.cell
    monkeypatch.setattr(SharedArrays, "cell", lambda self, name: (looked_at.append(name), find(self, name))[1])
    losses.append(training(x, target)[0])
    assert not looked_at
    assert losses == sorted(losses, reverse=True)
    training.weights["out.bias"] = [5.0, 5.0]
    assert training(x, target)[0] > 4.0
    assert {"in.weight", "out.bias"} < set(looked_at)


def test_run__state_written_between_runs__is_used_by_the_next() -> None:
    training, other = (session(optimiser=Sgd(lr=RATE, momentum=0.9)) for _ in range(2))
    x, target = mlp_batch(4)
    for _ in range(3):
        training(x, target)
        other(x, target)
    for name in other.state:
        other.state[name] = np.zeros_like(other.state[name])
    training(x, target)
    other(x, target)
    assert not np.array_equal(training.weights["in.weight"], other.weights["in.weight"])


def test_run__cells_that_note_no_writes__are_looked_at_each_time() -> None:
    class Memory(SharedArray):
        """An array that others write too, without a word."""

        @property
        def version(self) -> int:
            return hash(self._array.tobytes())

    cells = {name: Memory(values) for name, values in mlp_weights().items()}
    inference = session(weights=SharedArrays(cells))
    x, target = mlp_batch(4)
    for _ in range(3):
        inference(x, target)
    cells["out.bias"].values()[:] = 5.0
    assert inference(x, target)[0] > 4.0


def test_weights__trained_elsewhere_after_many_quiet_runs__are_used() -> None:
    weights = SharedArrays(mlp_weights())
    first, second = (session(optimiser=Sgd(lr=RATE), weights=weights) for _ in range(2))
    x, target = mlp_batch(4)
    for each in (first, first, first, second, second, second, first):
        each(x, target)
    expected, _ = mlp_trained(mlp_weights(), np.tile(x, (7, 1)), np.tile(target, (7, 1)), Schedule(7), lr=RATE)
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, rtol=1e-4, atol=1e-6)


def test_weights__read__are_copies() -> None:
    training = session(optimiser=Sgd(lr=RATE))
    training.weights["in.bias"][:] = 0
    assert training.weights["in.bias"].any()


def test_weights__of_a_dropped_session__are_on_the_host() -> None:
    weights = SharedArrays(mlp_weights())
    training = session(optimiser=Sgd(lr=RATE), weights=weights)
    training(*mlp_batch(4))
    del training
    gc.collect()
    assert not np.array_equal(weights["in.weight"], mlp_weights()["in.weight"])


def test_state__of_adam__has_names_and_can_be_set() -> None:
    training = session(optimiser=Adam(lr=RATE))
    x, target = mlp_batch(4)
    training(x, target)
    kept, weights = {n: training.state[n] for n in training.state}, {n: training.weights[n] for n in training.weights}
    assert kept["optimiser0/step"] == 1
    assert {"in.weight/moment1", "in.weight/moment2", "out.bias/moment1"} <= set(kept)
    training(x, target)
    further = {n: training.weights[n] for n in training.weights}
    training.state.update(kept)
    training.weights.update(weights)
    training(x, target)
    for name in further:
        np.testing.assert_array_equal(training.weights[name], further[name])


def test_optimisers__replaced__take_effect_at_the_next_run_also_before_the_first() -> None:
    x, target = mlp_batch(4)
    for runs_before in (0, 1):
        training = session(optimiser=Sgd(lr=RATE))
        for _ in range(runs_before):
            training(x, target)
        before = training.weights["in.weight"]
        training.replace_optimisers([Sgd(lr=0.0)])
        training(x, target)
        np.testing.assert_array_equal(training.weights["in.weight"], before)


def test_optimisers__that_cannot_be_replaced__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="momentum was compiled as the constant 0"):
        session(optimiser=Sgd(lr=RATE)).replace_optimisers([Sgd(lr=RATE, momentum=0.5)])
    with pytest.raises(InvalidOptionError, match="2 optimisers for a network that was compiled with 1 group"):
        session(optimiser=Sgd(lr=RATE)).replace_optimisers([Sgd(), Sgd()])
    with pytest.raises(SessionError, match="compiled for inference"):
        session().replace_optimisers([Sgd()])


# --- states ----------------------------------------------------------------------------------------------------------


def test_status__through_its_life__goes_from_compiled_to_closed() -> None:
    made = session(optimiser=Sgd(lr=RATE))
    found = [made.status]
    made(*mlp_batch(4))
    found.append(made.status)
    made.detach()
    found.append(made.status)
    with pytest.raises(SessionError, match="cannot be detached: it is not on the device"):
        made.detach()
    with made:
        made.attach()
    found.append(made.status)
    assert found == ["compiled", "attached", "compiled", "closed"]
    made.close()
    with pytest.raises(SessionError, match="cannot be attached: it is closed"):
        made(*mlp_batch(4))


def test_detach__while_training__keeps_momentum() -> None:
    x, target = mlp_batch(8)
    plain, parted = (session(optimiser=Sgd(lr=RATE, momentum=0.9)) for _ in range(2))
    for part in (slice(0, 4), slice(4, 8)):
        plain(x[part], target[part])
        parted(x[part], target[part])
        parted.detach()
    np.testing.assert_array_equal(plain.weights["in.weight"], parted.weights["in.weight"])


def test_attach__weight_that_is_missing_or_of_another_shape__is_named() -> None:
    weights = mlp_weights()
    compiled = session().compiled
    given = {name: weights[name] for name in weights if name != "out.bias"}
    with pytest.raises(UnknownArrayError, match=r"there is no array 'out.bias'"):
        Session(compiled, weights=given).attach()
    with pytest.raises(SignatureError, match=r"'in.bias' has shape \[2\], not \[5\]"):
        Session(compiled, weights=weights | {"in.bias": np.zeros(2)}).attach()


def test_sessions__of_one_compiled_network__have_weights_of_their_own() -> None:
    compiled = session(optimiser=Sgd(lr=RATE)).compiled
    first, second = (Session(compiled, weights=mlp_weights()) for _ in range(2))
    first(*mlp_batch(4))
    np.testing.assert_array_equal(second.weights["in.weight"], mlp_weights()["in.weight"])
    second(*mlp_batch(4))
    np.testing.assert_array_equal(second.weights["in.weight"], first.weights["in.weight"])


def test_run__from_several_threads__waits_for_each_other() -> None:
    training, parts = session(optimiser=Sgd(lr=RATE)), [mlp_batch(4)] * 6
    threads = [threading.Thread(target=training, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x, target = (np.concatenate([p[i] for p in parts]) for i in range(2))
    expected, _ = mlp_trained(mlp_weights(), x, target, Schedule(6), lr=RATE)
    np.testing.assert_allclose(training.weights["in.weight"], expected["in.weight"], rtol=1e-4, atol=1e-6)


def test_seed__of_dropout__repeats_and_advances() -> None:
    def dropped(seed: int) -> list[Any]:
        weights = SharedArrays(mlp_weights())
        net = NetworkBuilder.of(trace(mlp, weights, Signature.of(mlp_batch(4)), Schedule()))
        net.outputs[:] = [build.dropout(net, net.inputs[0], 0.5)]
        made = Session.of(net.finish(), weights=weights, seed=seed)
        found = [made(*mlp_batch(4))[0] for _ in range(2)]
        assert made.random_state == [seed, 2]
        return found

    first, again, other = dropped(7), dropped(7), dropped(8)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])


# --- reports and memory ----------------------------------------------------------------------------------------------


def test_report__of_a_session__names_the_model_and_counts_its_samples() -> None:
    made = session(Schedule(2, 3), Sgd(lr=RATE), settings=Settings(name="two layers"))
    made(*mlp_batch(24))
    report = made.report
    assert (report.meta["name"], report.meta["samples_per_run"], report.meta["steps_per_run"]) == ("two layers", 24, 2)
    assert report.total_cycles > 0
    assert len(report.runs) == 1


def test_compile__too_little_memory__says_what_settings_can_do() -> None:
    small, net = systems.bow_2000().evolve(ipu={"num_tiles": 2}), NetworkBuilder()
    net.output(build.map_(net, arg(0) * 2.0, [net.input((4, 200_000), "f32", "x")]))
    with pytest.raises(OutOfMemoryError) as caught:
        compile_network(net.finish(), settings=Settings(system=small))
    assert "half precision" not in str(caught.value), "half of the data is too much as well"
    assert "a smaller micro-batch than 4" in str(caught.value)
    assert "Settings(allow_out_of_memory=True)" in str(caught.value)
    reported = compile_network(
        net.finish(), settings=Settings(system=small, allow_out_of_memory=True)
    ).executable.report
    assert reported.total_cycles > 0


def test_compile__without_a_network_that_trains__is_inference() -> None:
    weights = SharedArrays(mlp_weights())
    compiled = compile_network(trace(mlp, weights, Signature.of(mlp_batch(4)), Schedule()))
    assert not compiled.training
    assert compiled.updated == frozenset()


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from toy_front_end import Trainer, mlp, mlp_batch, mlp_weights
from abele.network import Sgd
trainer = Trainer(mlp, mlp_weights(), Sgd(lr=0.1))
assert trainer.train(*mlp_batch(4))[0] > trainer.evaluate(*mlp_batch(4))[0]
"""


def test_session__where_torch_cannot_be_imported__trains() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("room", ["session", "network", "distribution"])
def test_rooms_under_the_front_ends__have_no_word_of_a_framework(room: str) -> None:
    sources = list((Path(abele.__file__).parent / room).rglob("*.py"))
    assert len(sources) > 5
    words = re.compile(r"torch|keras|\bjax\b|tensorflow|state_dict|nn\.Module|DataLoader", re.IGNORECASE)
    assert [f"{s.name}: {m[0]}" for s in sources for m in words.finditer(s.read_text(encoding="utf-8"))] == []
