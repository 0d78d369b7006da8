"""Misuse, row by row of the table of it: errors, and their words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from abele.errors import BatchSizeError, InvalidOptionError, SessionError
from abele.frontends.keras import ipu
from abele.frontends.keras.ipu.ipu_strategy import IPUStrategy
from abele.frontends.keras.model.data import Batches

X, Y = np.ones((32, 3), np.float32), np.ones((32, 1), np.float32)
Ipus = Callable[..., Any]


def net(kind: type = keras.Model, steps: int = 4, **given: Any) -> Any:
    x = keras.Input((3,))
    made = kind(x, layers.Dense(1)(layers.Dense(4)(x)))
    made.compile("sgd", "mse", steps_per_execution=steps, **given)
    return made


class Dataset:
    """A dataset as ``tf.data`` makes them."""

    def __init__(self, batches: list[Any], count: int | None = None) -> None:
        self.batches, self.count, self.element_spec = batches, len(batches) if count is None else count, None

    def cardinality(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


@pytest.fixture
def model(ipus: Ipus) -> Any:
    with ipus():
        return net()


def test_steps__that_executions_do_not_divide__names_both(model: Any) -> None:
    with pytest.raises(ValueError, match=r"steps_per_execution, 4, does not divide the 6 steps"):
        model.fit(X[:24], Y[:24], batch_size=4, verbose=0)


def test_steps__fewer_than_an_execution__warns_and_runs(model: Any) -> None:
    with pytest.warns(UserWarning, match="steps_per_execution is 4, and an epoch has 2 steps"):
        model.fit(X[:8], Y[:8], batch_size=4, verbose=0)


def test_steps__validation__divides_too(model: Any) -> None:
    with pytest.raises(ValueError, match="does not divide the 6 steps"):
        model.fit(X, Y, batch_size=4, verbose=0, validation_data=(X[:24], Y[:24]))


def test_accumulation__that_does_not_divide_an_execution__is_a_runtime_error(model: Any) -> None:
    model.set_gradient_accumulation_options(3)
    with pytest.raises(RuntimeError, match="no multiple of the 3") as error:
        model.fit(X, Y, batch_size=4, verbose=0)
    assert "change steps_per_execution, or gradient_accumulation" in str(error.value)


def test_pipeline__trained_without_accumulation__points_at_the_option(ipus: Ipus) -> None:
    with ipus(2):
        made = net()
    made.set_pipeline_stage_assignment([0, 1])
    with pytest.raises(ValueError, match="gradients are not accumulated") as error:
        made.fit(X, Y, batch_size=4, verbose=0)
    assert "set_pipelining_options" in str(error.value)


@pytest.mark.parametrize(
    ("method", "name", "said"),
    [
        ("set_gradient_accumulation_options", "opt", "compile"),
        ("set_gradient_accumulation_options", "num_mini_batches", "gradient_accumulation_steps_per_replica"),
        ("set_gradient_accumulation_options", "experimental_normalize_gradients", "removed"),
        ("set_pipelining_options", "gradient_accumulation_count", "gradient_accumulation_steps_per_replica"),
        ("set_pipelining_options", "inputs", "the model sets it"),
        ("set_pipelining_options", "infeed_queue", "the model sets it"),
        ("set_pipelining_options", "outfeed_mask", "the model sets it"),
        ("set_pipelining_options", "pipelin_schedule", "did you mean 'pipeline_schedule'"),
        ("set_infeed_queue_options", "dataset", "the data of fit"),
        ("set_outfeed_queue_options", "outfeed_mode", "the model sets it"),
        ("set_outfeed_queue_options", "device_ordinal", "the strategy sets it"),
    ],
)
def test_options__arguments_of_others__are_refused(model: Any, method: str, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=name) as error:
        getattr(model, method)(**{name: 1})
    assert said in str(error.value)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_accumulation__no_positive_whole_number__is_refused(model: Any, count: Any) -> None:
    with pytest.raises(ValueError, match="is a whole number from 1 on"):
        model.set_gradient_accumulation_options(count)
    with pytest.raises(ValueError, match="is a whole number from 1 on"):
        model.set_pipelining_options(count)


def test_options__unknown_members__are_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="SUM, MEAN, RUNNING_MEAN"):
        model.set_gradient_accumulation_options(4, "median")
    with pytest.raises(ValueError, match="Grouped, Interleaved, Sequential"):
        model.set_pipelining_options(4, pipeline_schedule="random")
    with pytest.raises(ValueError, match="NONE, LIST, SUM, MEAN"):
        model.set_replication_options("most")
    with pytest.raises(ValueError, match="device_mapping is a list"):
        model.set_pipelining_options(4, device_mapping=["a"])


@pytest.mark.parametrize("depth", [0, -1, 256])
def test_queues__depth_out_of_range__is_refused(model: Any, depth: int) -> None:
    with pytest.raises(ValueError, match="1 to 255"):
        model.set_infeed_queue_options(prefetch_depth=depth)
    with pytest.raises(ValueError, match="1 to 255"):
        model.set_outfeed_queue_options(buffer_depth=depth)
    with pytest.raises(ValueError, match="1 to 255"):
        ipu.ipu_outfeed_queue.IPUOutfeedQueue(buffer_depth=depth)


def test_data__partial_batch__is_refused_with_what_to_do(model: Any) -> None:
    with pytest.raises(ValueError, match="the last batch has 2 samples, the others have 5") as error:
        model.fit(X, Y, batch_size=5, verbose=0)
    assert "drop_remainder" in str(error.value)
    assert isinstance(error.value, BatchSizeError)
    ragged = Dataset([(X[:4], Y[:4])] * 3 + [(X[:2], Y[:2])])
    with pytest.raises(ValueError, match=r"a batch has arrays float32\[2, 3\]"):
        model.fit(ragged, verbose=0)


def test_data__without_shapes_or_sizes__is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="generator cannot be sent") as error:
        model.fit(((X[:4], Y[:4]) for _ in range(8)), verbose=0)
    assert "from_generator" in str(error.value)
    for count, said in ((-1, "is infinite"), (-2, "has an unknown size")):
        with pytest.raises(ValueError, match=said):
            model.fit(Dataset([(X[:4], Y[:4])] * 4, count), verbose=0)
    with pytest.raises(ValueError, match="the data has 4") as error:
        model.fit(Dataset([(X[:4], Y[:4])] * 4), verbose=0, steps_per_epoch=8)
    assert "repeat()" in str(error.value)
    with pytest.raises(ValueError, match="ended after 4 of 8"):
        model.fit(Dataset([(X[:4], Y[:4])] * 4, -2), verbose=0, steps_per_epoch=8)


def test_data__numbers__are_narrowed_and_words_refused() -> None:
    kind = Batches(np.ones((4, 2)), np.ones(4, np.int64), batch_size=2).type
    assert [str(t.dtype) for t in kind.tree] == ["float32", "int32"]
    with pytest.raises(OverflowError, match="does not fit in int32"):
        Batches(Dataset([np.array([2**40])])).type  # noqa: B018
    with pytest.raises(TypeError, match="encode it as numbers"):
        Batches(Dataset([np.array(["word"])])).type  # noqa: B018


def test_stages__more_than_ipus__says_how_many_it_takes(ipus: Ipus) -> None:
    with ipus(1):
        made = net()
    made.set_pipeline_stage_assignment([0, 1])
    made.set_pipelining_options(4)
    with pytest.raises(ValueError, match="2 stages on 2 IPUs, and there are 1") as error:
        made.fit(X, Y, batch_size=4, verbose=0)
    assert "auto_select_ipus = 2" in str(error.value)


def test_eager__is_a_runtime_error(ipus: Ipus) -> None:
    with ipus():
        made = net(run_eagerly=True)
    with pytest.raises(RuntimeError, match="run_eagerly"):
        made.fit(X, Y, batch_size=4, verbose=0)


def test_optimiser__that_overrides_minimize__cannot_accumulate(ipus: Ipus) -> None:
    class Own(keras.optimizers.SGD):
        def minimize(self, loss: Any, var_list: Any) -> None: ...

    with ipus():
        made = net()
    made.compile(Own(), "mse", steps_per_execution=4)
    made.fit(X, Y, batch_size=4, verbose=0)
    made.set_gradient_accumulation_options(4)
    with pytest.raises(ValueError, match=r"Own overrides minimize\(\)"):
        made.fit(X, Y, batch_size=4, verbose=0)


def test_optimiser__that_accumulates_itself__is_refused(ipus: Ipus) -> None:
    with ipus():
        made = net()
    made.compile(keras.optimizers.SGD(gradient_accumulation_steps=2), "mse", steps_per_execution=4)
    with pytest.raises(ValueError, match="accumulates gradients itself"):
        made.fit(X, Y, batch_size=4, verbose=0)


@pytest.mark.parametrize("name", ["train_step", "make_train_function", "make_test_function", "make_predict_function"])
def test_model__that_overrides_a_step__is_a_runtime_error(ipus: Ipus, name: str) -> None:
    own = type("Own", (keras.Model,), {name: lambda self, *args, **kwargs: None})
    with ipus():
        made = net(own)
    run = {"test": made.evaluate, "predict": made.predict}.get(name.split("_")[1], made.fit)
    data = (X,) if run == made.predict else (X, Y)
    with pytest.raises(RuntimeError, match=rf"overrides {name}\(\)") as error:
        run(*data, batch_size=4, verbose=0)
    assert "enable_keras_extensions=False" in str(error.value)


def test_model__own_test_step__runs_unless_it_is_a_pipeline(ipus: Ipus) -> None:
    class Own(keras.Model):
        def test_step(self, state: Any, data: Any) -> Any:
            logs, state = super().test_step(state, data)
            return logs | {"seven": keras.ops.convert_to_tensor(7.0)}, state

    with ipus(2):
        made = net(Own)
    found = made.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True)
    assert found["seven"] == 7
    made.set_pipeline_stage_assignment([0, 1])
    made.set_pipelining_options(4)
    with pytest.raises(RuntimeError, match=r"overrides test_step\(\)"):
        made.evaluate(X, Y, batch_size=4, verbose=0)


def test_stages__lists_that_do_not_fit__name_the_layer(model: Any) -> None:
    with pytest.raises(ValueError, match="has 2 layers, and the list 1 stage"):
        model.set_pipeline_stage_assignment([0])
    with pytest.raises(ValueError, match=r"stage 1 of .* has no layer"):
        model.set_pipeline_stage_assignment([0, 2])
    with pytest.raises(ValueError, match="reads what stage 1 makes"):
        model.set_pipeline_stage_assignment([1, 0])
    with pytest.raises(ValueError, match=r"is for dense.*and the model calls"):
        model.set_pipeline_stage_assignment(model.get_pipeline_stage_assignment()[::-1])


def test_stages__of_an_unbuilt_model__is_a_runtime_error(ipus: Ipus) -> None:
    class Own(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    with ipus():
        made = Own()
    with pytest.raises(RuntimeError, match="is not built"):
        made.get_pipeline_stage_assignment()


def test_stage_scope__negative_outside_or_nested__is_refused(ipus: Ipus) -> None:
    with pytest.raises(ValueError, match="from 0 on, not -1"):
        ipu.PipelineStage(-1)
    with pytest.raises(RuntimeError, match="in no scope of an IPUStrategy"), ipu.PipelineStage(0):
        pass
    with ipus(2), ipu.PipelineStage(0), pytest.raises(RuntimeError, match="inside of PipelineStage"):  # noqa: SIM117
        with ipu.PipelineStage(1):
            pass


def test_run__plain_functions_and_wide_floats__are_refused() -> None:
    strategy = IPUStrategy()
    with pytest.raises(ValueError, match="takes a function under"):
        strategy.run(lambda x: x, [np.float32(1)])
    with pytest.raises(TypeError, match="no float64"):
        strategy.run(keras.ops.sum, [np.ones(2)])


def test_queues__misuse__is_refused() -> None:
    outfeed, infeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(), ipu.ipu_infeed_queue.IPUInfeedQueue(Dataset([X[:4]]))
    with pytest.raises(ValueError, match="before any program sends"):
        outfeed.dequeue()
    with pytest.raises(ValueError, match="outside of a program"):
        outfeed.enqueue(1.0)
    with pytest.raises(RuntimeError, match="read by programs"):
        iter(infeed)
    infeed.initializer  # noqa: B018
    with pytest.raises(ValueError, match="initialised already"):
        infeed.initializer  # noqa: B018


def test_report__before_anything_ran__is_refused(model: Any) -> None:
    with pytest.raises(SessionError, match="no program yet"):
        model.ipu_report  # noqa: B018
    model.compile(None, "mse")
    with pytest.raises(InvalidOptionError, match="without an optimizer"):
        model.fit(X, Y, batch_size=4, verbose=0)
