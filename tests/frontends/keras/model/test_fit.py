"""``fit``, ``evaluate`` and ``predict``: steps, callbacks, data, weights on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from abele.errors import InvalidOptionError
from abele.frontends.keras.ipu import config, utils
from abele.frontends.keras.model.data import DroppedDataWarning

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 6))
Y = np.tanh(X.sum(1, keepdims=True))
Ipus = Callable[..., Any]


def net(steps: int = 4, optimiser: Any = None, **given: Any) -> Any:
    """A compiled model with the same weights each time."""
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    made.compile(optimiser or keras.optimizers.SGD(0.1), "mse", metrics=["mae"], steps_per_execution=steps, **given)
    return made


class Calls(keras.callbacks.Callback):
    """Notes when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.logs: list[dict[str, float]] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begins.append(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(batch)
        self.logs.append(dict(logs))


def close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert set(found) == set(wanted)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=2e-6, err_msg=name)


def test_fit__executions__callbacks_and_history_are_those_of_keras(ipus: Ipus) -> None:
    theirs, ours, calls = net(), None, Calls()
    arguments = {"batch_size": 4, "epochs": 2, "verbose": 0, "validation_data": (X[:16], Y[:16])}
    wanted = theirs.fit(X, Y, **arguments)
    with ipus():
        ours = net()
    found = ours.fit(X, Y, **arguments, callbacks=[calls])
    close(found.history, wanted.history)
    assert calls.begins == [0, 4, 0, 4]
    assert calls.ends == [3, 7, 3, 7]
    assert calls.logs[-1]["loss"] == found.history["loss"][-1]
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(
        ours.predict(X, batch_size=4, verbose=0), theirs.predict(X, verbose=0), rtol=1e-5, atol=1e-6
    )
    close(
        ours.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True),
        theirs.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True),
    )


def test_fit__asynchronous_callbacks__come_for_every_step(ipus: Ipus) -> None:
    calls, plain = Calls(), Calls()
    with ipus():
        ours = net()
    ours.set_asynchronous_callbacks(True)
    found = ours.fit(X, Y, batch_size=4, verbose=0, shuffle=False, callbacks=[calls])
    net(1).fit(X, Y, batch_size=4, verbose=0, shuffle=False, callbacks=[plain])
    assert calls.ends == list(range(8)) == plain.ends
    np.testing.assert_allclose([log["loss"] for log in calls.logs], [log["loss"] for log in plain.logs], rtol=1e-5)
    assert found.history["loss"][0] == calls.logs[-1]["loss"]


def test_fit__learning_rate_of_a_callback__acts_at_the_next_execution(ipus: Ipus) -> None:
    class Freeze(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.0

    def schedule(epoch: int) -> float:
        return 0.1 / (epoch + 1)

    with ipus():
        ours, frozen = net(), net()
    theirs = net()
    arguments = {"batch_size": 4, "epochs": 3, "verbose": 0, "shuffle": False}
    wanted = theirs.fit(X, Y, **arguments, callbacks=[keras.callbacks.LearningRateScheduler(schedule)])
    found = ours.fit(X, Y, **arguments, callbacks=[keras.callbacks.LearningRateScheduler(schedule)])
    close(found.history, wanted.history)
    after = []
    frozen.fit(
        X,
        Y,
        batch_size=4,
        verbose=0,
        callbacks=[
            Freeze(),
            keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: after.append(frozen.get_weights())),
        ],
    )
    np.testing.assert_array_equal(after[0][0], after[1][0])


def test_fit__stop_training__acts_after_the_execution(ipus: Ipus) -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    calls = Calls()
    with ipus():
        ours = net()
    ours.fit(X, Y, batch_size=4, epochs=3, verbose=0, callbacks=[calls, Stop()])
    assert calls.ends == [3]


@pytest.mark.parametrize(
    "more",
    [
        {"class_weight": {0: 1.0, 1: 3.0}},
        pytest.param({"sample_weight": np.arange(32.0)}, marks=pytest.mark.slow),
    ],
    ids=["classes", "samples"],
)
def test_fit__class_and_sample_weights__as_in_keras(ipus: Ipus, more: dict[str, Any]) -> None:
    labels = (Y[:, 0] > 0).astype(np.int64)

    def classifier() -> Any:
        keras.utils.set_random_seed(2)
        made = keras.Sequential([keras.Input((6,)), layers.Dense(2, activation="softmax")])
        made.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"], steps_per_execution=2)
        return made

    arguments = {"batch_size": 8, "verbose": 0}
    with ipus():
        ours = classifier()
    close(ours.fit(X, labels, **arguments, **more).history, classifier().fit(X, labels, **arguments, **more).history)


def test_fit__replicas__one_step_takes_a_batch_for_each(ipus: Ipus) -> None:
    with ipus(2):
        ours = net(2)
    found = ours.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False)
    theirs = net(1)
    theirs.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-6)
    assert ours.ipu_report.target["num_replicas"] == 2
    every = ours.predict(X, batch_size=4, verbose=0)
    np.testing.assert_allclose(every, theirs.predict(X, verbose=0), rtol=1e-4, atol=1e-5)
    with pytest.warns(DroppedDataWarning, match="1 batch of 5"):
        ours.fit(X[:20], Y[:20], batch_size=4, verbose=0)
    assert set(found.history) == {"loss", "mae"}


def normed() -> Any:
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=1)
    return made


def test_fit__batch_norms_of_two_replicas__have_the_statistics_of_both(ipus: Ipus) -> None:
    with ipus(2):
        ours = normed()
        shared = config.get_ipu_config()
    shared.norms.experimental.distributed_batch_norm_replica_group_size = 2
    config.reset_ipu_configuration()
    shared.configure_ipu_system()
    ours.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False)
    theirs = normed()
    theirs.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-6)


def test_fit__replicas_that_do_not_divide_into_groups_of_statistics__are_refused(ipus: Ipus) -> None:
    with ipus(2):
        ours = normed()
        shared = config.get_ipu_config()
    shared.auto_select_ipus = 4
    shared.norms.experimental.distributed_batch_norm_replica_group_size = 3
    config.reset_ipu_configuration()
    shared.configure_ipu_system()
    with pytest.raises(InvalidOptionError, match="is 3, and the program has 4 replicas"):
        ours.fit(X, Y, batch_size=4, verbose=0)


@pytest.mark.parametrize(
    "method", ["NONE", "LIST", *(pytest.param(m, marks=pytest.mark.slow) for m in ("SUM", "MEAN"))]
)
def test_fit__metrics_of_replicas__are_reduced_as_asked(ipus: Ipus, method: str) -> None:
    with ipus(2):
        ours = net(4, keras.optimizers.SGD(0.0))
    ours.set_replication_options(method)
    logs = ours.fit(X, Y, batch_size=4, verbose=0, shuffle=False).history["loss"][0]
    predicted = net(1).predict(X, verbose=0)
    squares = ((predicted - Y) ** 2).reshape(4, 2, 4).mean((0, 2))
    wanted = {"NONE": squares[1], "LIST": squares, "SUM": squares.sum(), "MEAN": squares.mean()}[method]
    np.testing.assert_allclose(logs, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "method", ["sum", *(pytest.param(m, marks=pytest.mark.slow) for m in ("mean", "running_mean"))]
)
def test_fit__accumulation__takes_the_step_of_a_larger_batch(ipus: Ipus, method: str) -> None:
    with ipus():
        ours = net(4, keras.optimizers.SGD(0.1 / (4 if method == "sum" else 1), momentum=0.5))
    ours.set_gradient_accumulation_options(4, method)
    ours.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False)
    theirs = net(1, keras.optimizers.SGD(0.1, momentum=0.5))
    theirs.fit(X, Y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    assert int(ours.optimizer.iterations.numpy()) == 4
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_fit__weights__stay_on_the_device_until_somebody_looks(ipus: Ipus) -> None:
    with ipus():
        ours = net()
    ours.fit(X, Y, batch_size=4, verbose=0)
    told: list[str] = []
    ours.ipu_session.on_weights_copied(told.append)
    ours.fit(X, Y, batch_size=4, verbose=0)
    assert told == ["device"], "the metrics that an epoch resets"
    ours.get_weights()
    assert told == ["device", "host"]
    ours.set_weights([np.zeros_like(w) for w in ours.get_weights()])
    np.testing.assert_array_equal(ours.predict(X, batch_size=4, verbose=0), 0)


def test_fit__weights_and_optimiser_of_a_file__go_on(ipus: Ipus, tmp_path: Any) -> None:
    arguments = {"batch_size": 4, "verbose": 0, "shuffle": False}
    with ipus():
        ours = net(4, keras.optimizers.SGD(0.1, momentum=0.9))
    ours.fit(X, Y, **arguments)
    ours.save(tmp_path / "model.keras")
    with ipus():
        again = keras.models.load_model(tmp_path / "model.keras")
    assert hasattr(again, "set_pipelining_options")
    close(again.fit(X, Y, **arguments).history, ours.fit(X, Y, **arguments).history)


def test_fit__steps_per_epoch__epochs_go_on_where_the_last_one_ended(ipus: Ipus) -> None:
    with ipus():
        ours = net(2)
    theirs = net(1)
    arguments = {"batch_size": 4, "epochs": 4, "verbose": 0, "shuffle": False, "steps_per_epoch": 4}
    close(ours.fit(X, Y, **arguments).history, theirs.fit(X, Y, **arguments).history)


def test_on_batch__train_test_predict__one_step(ipus: Ipus) -> None:
    with ipus():
        ours = net()
    theirs = net()
    for _ in range(2):
        np.testing.assert_allclose(ours.train_on_batch(X[:4], Y[:4]), theirs.train_on_batch(X[:4], Y[:4]), rtol=1e-5)
    np.testing.assert_allclose(ours.test_on_batch(X[:4], Y[:4]), theirs.test_on_batch(X[:4], Y[:4]), rtol=1e-5)
    np.testing.assert_allclose(ours.predict_on_batch(X[:4]), theirs.predict_on_batch(X[:4]), rtol=1e-5, atol=1e-6)
    assert ours.steps_per_execution == 4


def test_models__made_outside_of_a_scope__are_keras_own(ipus: Ipus) -> None:
    with ipus():
        inside = net()
    outside = net()
    assert isinstance(inside, keras.Sequential)
    assert type(inside).__name__ == type(outside).__name__ == "Sequential"
    assert hasattr(inside, "set_pipelining_options")
    assert not hasattr(outside, "set_pipelining_options")
    assert keras.models.clone_model(inside).count_params() == inside.count_params()


def test_strategy__without_extensions__leaves_models_to_keras() -> None:
    from abele.frontends.keras.ipu.ipu_strategy import IPUStrategy

    strategy = IPUStrategy(enable_keras_extensions=False)
    with strategy.scope():
        made = net()
    assert not hasattr(made, "set_pipelining_options")
    assert strategy.num_replicas_in_sync == 1


def test_fit__synthetic_data__runs_without_the_hosts(ipus: Ipus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    with ipus():
        ours = net()
    assert set(ours.fit(X, Y, batch_size=4, verbose=0).history) == {"loss", "mae"}


def test_fit__metric_that_is_a_dict__gives_each_by_its_name(ipus: Ipus) -> None:
    class Range(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="range")
            self.ends = self.add_weight(name="ends", initializer="zeros", shape=(2,))

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.ends.assign(keras.ops.stack([keras.ops.min(y_pred), keras.ops.max(y_pred)]))

        def result(self) -> dict[str, Any]:
            return {"least": self.ends[0], "most": self.ends[1]}

    def made() -> Any:
        model = net()
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[Range()], steps_per_execution=4)
        return model

    with ipus():
        ours = made()
    found = ours.fit(X, Y, batch_size=4, verbose=0, shuffle=False).history
    last = made().predict(X[-4:], verbose=0)
    assert found["least"] == pytest.approx([last.min()], rel=1e-5)
    assert found["most"] == pytest.approx([last.max()], rel=1e-5)


def test_fit__dropout_on_replicas__has_a_mask_for_each(ipus: Any) -> None:
    def losses(*, identical: bool) -> list[float]:
        with ipus(2):
            utils.reset_ipu_seed(3, experimental_identical_replicas=identical)
            inputs = keras.Input((16,))
            model = keras.Model(inputs, keras.layers.Dropout(0.5, seed=1)(inputs))
        model.set_replication_options("LIST")
        weights = 2.0 ** -np.arange(16, dtype=np.float32)
        model.compile("sgd", lambda _, masked: keras.ops.sum(keras.ops.cast(masked > 0, "float32") * weights))
        ones = np.ones((2, 16), np.float32)
        history = model.fit(ones, ones, batch_size=1, verbose=0)
        return list(np.ravel(history.history["loss"]))

    try:
        first, second = losses(identical=False)
        assert first != second
        assert losses(identical=True) == [first, first]
    finally:
        utils.reset_ipu_seed(1)
