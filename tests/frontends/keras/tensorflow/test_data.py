"""Datasets beside what TensorFlow's documents say of them, and beside NumPy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

from abele.errors import AbeleError


def listed(dataset: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in dataset.as_numpy_iterator()]


def test_from_tensor_slices__arrays__gives_rows_and_their_spec(tf: Any) -> None:
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    dataset = tf.data.Dataset.from_tensor_slices({"x": x, "y": (y, ["a", "b", "c", "d"])})
    assert dataset.element_spec == {
        "x": tf.TensorSpec((3,), tf.float64),
        "y": (tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.string)),
    }
    first = next(dataset.as_numpy_iterator())
    assert first["x"].tolist() == [0.0, 1.0, 2.0]
    assert first["y"] == (0, b"a")
    assert len(dataset) == int(dataset.cardinality()) == 4


def test_from_tensor_slices__array_written_later__keeps_its_values(tf: Any) -> None:
    x = np.arange(3)
    dataset = tf.data.Dataset.from_tensor_slices(x)
    x[:] = 0
    assert listed(dataset) == [0, 1, 2]


def test_from_tensor_slices__python_numbers__have_32_bits(tf: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(([1, 2], [0.5, 1.5]))
    assert dataset.element_spec == (tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.float32))


def test_iteration__of_tensors__has_numpy_shape_and_dtype(tf: Any) -> None:
    (x, name) = next(iter(tf.data.Dataset.from_tensor_slices((np.ones((2, 3), np.float32), ["a", "b"]))))
    assert isinstance(x, tf.Tensor)
    assert x.numpy().tolist() == [1, 1, 1]
    assert x.get_shape().as_list() == [3]
    assert x.dtype == tf.float32
    assert name.numpy() == b"a"
    assert name.dtype == tf.string


def test_batch__with_and_without_the_remainder__has_its_spec_and_count(tf: Any) -> None:
    dataset = tf.data.Dataset.range(8)
    assert listed(dataset.batch(3)) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert listed(dataset.batch(3, drop_remainder=True)) == [[0, 1, 2], [3, 4, 5]]
    assert dataset.batch(3).element_spec == tf.TensorSpec((None,), tf.int64)
    assert dataset.batch(3, drop_remainder=True).element_spec == tf.TensorSpec((3,), tf.int64)
    assert [len(dataset.batch(3)), len(dataset.batch(3, True))] == [3, 2]
    assert listed(dataset.batch(2).batch(2)) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert listed(dataset.batch(3).unbatch()) == list(range(8))


def test_order__take_skip_shard_repeat_concatenate__are_those_of_lists(tf: Any) -> None:
    ten = tf.data.Dataset.range(10)
    assert listed(ten.take(3)) == [0, 1, 2]
    assert listed(ten.skip(7)) == [7, 8, 9]
    assert listed(ten.shard(3, 1)) == [1, 4, 7]
    assert listed(ten.skip(2).shard(3, 2).take(2)) == [4, 7]
    assert listed(ten.take(2).repeat(2)) == [0, 1, 0, 1]
    assert listed(ten.repeat().skip(8).take(4)) == [8, 9, 0, 1]
    assert listed(ten.take(1).concatenate(ten.skip(9))) == [0, 9]
    assert listed(tf.data.Dataset.range(5, 1, -2)) == [5, 3]
    assert listed(ten.enumerate(5).map(lambda number, x: number - x).take(3)) == [5, 5, 5]
    assert [int(each.cardinality()) for each in (ten.repeat(), ten.filter(lambda x: True), ten.shard(3, 0))] == [
        -1,
        -2,
        4,
    ]


def test_shard__across_blocks__counts_all_elements(tf: Any) -> None:
    parts = [tf.data.Dataset.range(5 * n, 5 * n + 5) for n in range(3)]
    joined = parts[0].concatenate(parts[1]).concatenate(parts[2])
    assert listed(joined.shard(4, 3)) == [3, 7, 11]


def test_zip__of_different_lengths__ends_with_the_shortest(tf: Any) -> None:
    a, b = tf.data.Dataset.range(1, 4), tf.data.Dataset.range(4, 9)
    assert list(tf.data.Dataset.zip((a, b.batch(2))).map(lambda x, y: x + tf.reduce_sum(y)).as_numpy_iterator()) == [
        10,
        15,
        11,
    ]
    assert next(tf.data.Dataset.zip({"a": a, "b": b}).as_numpy_iterator()) == {"a": 1, "b": 4}
    assert len(tf.data.Dataset.zip(a, b)) == 3


@pytest.mark.parametrize("size", [1, 3, 10, 40, 100])
def test_shuffle__any_buffer__gives_every_element_once_and_none_too_early(tf: Any, size: int) -> None:
    order = listed(tf.data.Dataset.range(40).shuffle(size, seed=3))
    assert sorted(order) == list(range(40))
    assert all(element < place + size for place, element in enumerate(order))
    mapped = listed(tf.data.Dataset.range(40).map(lambda x: 2 * x).shuffle(size, seed=3))
    assert mapped == [2 * element for element in order]


def test_shuffle__a_buffer_of_all__is_uniform(tf: Any) -> None:
    dataset = tf.data.Dataset.range(3).shuffle(3, seed=0).batch(3)
    seen = Counter(tuple(order) for _ in range(600) for order in listed(dataset))
    assert len(seen) == 6
    assert min(seen.values()) > 60


def test_shuffle__iterations__have_own_orders_unless_told_otherwise(tf: Any) -> None:
    hundred = tf.data.Dataset.range(100)
    again, same = hundred.shuffle(100, seed=1), hundred.shuffle(100, seed=1, reshuffle_each_iteration=False)
    assert listed(again) != listed(again)
    assert listed(same) == listed(same)
    unseeded = hundred.shuffle(100, reshuffle_each_iteration=False)
    assert listed(unseeded) == listed(unseeded)
    repeated = listed(again.repeat(2))
    assert sorted(repeated[:100]) == list(range(100))
    assert repeated[:100] != repeated[100:]


def test_shuffle__elements_of_different_shapes__are_drawn_too(tf: Any) -> None:
    dataset = tf.data.Dataset.from_generator(
        lambda: (np.arange(n) for n in range(6)), output_signature=tf.TensorSpec((None,), tf.int64)
    )
    assert sorted(map(len, dataset.shuffle(3, seed=0).as_numpy_iterator())) == list(range(6))


def test_map__traced__keeps_types_of_64_bits_and_unknown_dims(tf: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((np.ones((5, 2)), np.arange(5) + 2**40)).batch(2)
    mapped = dataset.map(lambda x, y: {"x": tf.cast(x, tf.float32) / 2.0, "y": y, "n": tf.reduce_sum(x)})
    assert mapped.element_spec == {
        "x": tf.TensorSpec((None, 2), tf.float32),
        "y": tf.TensorSpec((None,), tf.int64),
        "n": tf.TensorSpec((), tf.float64),
    }
    assert [element["y"].tolist() for element in mapped.as_numpy_iterator()][-1] == [4 + 2**40]


def test_map__of_many_elements__calls_the_function_a_few_times(tf: Any) -> None:
    calls = []

    def scaled(x: Any) -> Any:
        calls.append(x)
        return x * 2

    assert listed(tf.data.Dataset.range(3000).map(scaled, num_parallel_calls=tf.data.AUTOTUNE))[-1] == 5998
    assert len(calls) <= 4


def test_map__that_needs_values__is_called_for_each_element(tf: Any) -> None:
    by_value = tf.data.Dataset.range(4).map(lambda x: x * 10 if int(x) % 2 else x)
    assert listed(by_value) == [0, 10, 2, 30]
    strings = tf.data.Dataset.from_tensor_slices(["1,2", "3,4"]).map(
        lambda line: tf.strings.to_number(tf.strings.split(line, ","), tf.int32)
    )
    assert listed(strings) == [[1, 2], [3, 4]]
    assert strings.element_spec == tf.TensorSpec((2,), tf.int32)
    numpy = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(lambda v: v + 1, [x], tf.int64))
    assert listed(numpy) == [1, 2, 3]
    ragged = tf.data.Dataset.range(3).map(lambda x: tf.range(x))
    assert listed(ragged) == [[], [0], [0, 1]]


def test_map__random_numbers__differ_from_element_to_element(tf: Any) -> None:
    tf.random.set_seed(1)
    drawn = listed(tf.data.Dataset.range(100).map(lambda x: tf.random.uniform([])))
    assert len(set(drawn)) == 100
    images = tf.data.Dataset.from_tensors(np.arange(4.0).reshape(1, 4, 1)).repeat(50)
    flipped = {tuple(np.ravel(image)) for image in images.map(tf.image.random_flip_left_right).as_numpy_iterator()}
    assert len(flipped) == 2


def test_map__read_while_a_function_is_traced__has_values(tf: Any) -> None:
    iterator = iter(tf.data.Dataset.range(6).map(lambda x: tf.cast(x, tf.float32) * 2).batch(2).repeat())

    def step(x: Any) -> Any:
        with tf.GradientTape():
            return x + next(iterator) + next(iterator)

    assert jax.jit(step)(np.float32(1)).tolist() == [5.0, 9.0]


def test_map__function_in_error__says_so_itself(tf: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        listed(tf.data.Dataset.range(3).map(lambda x: 1 // 0))


def test_filter_and_take_while__traced_and_not__choose_elements(tf: Any) -> None:
    ten = tf.data.Dataset.range(10)
    assert listed(ten.filter(lambda x: x % 3 == 0)) == [0, 3, 6, 9]
    assert listed(ten.filter(lambda x: bool(x > 7))) == [8, 9]
    assert listed(ten.take_while(lambda x: x < 3)) == [0, 1, 2]


def test_interleave__example_of_the_documents__takes_turns(tf: Any) -> None:
    dataset = tf.data.Dataset.range(1, 6).interleave(
        lambda x: tf.data.Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    )
    assert listed(dataset) == [
        *[1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2],
        *[3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 4, 4],
        *[5, 5, 5, 5, 5, 5],
    ]
    assert listed(tf.data.Dataset.range(3).flat_map(lambda x: tf.data.Dataset.range(x))) == [0, 0, 1]


def test_window__with_shift_and_stride__gives_datasets(tf: Any) -> None:
    def windows(**options: Any) -> list[list[int]]:
        return [listed(window) for window in tf.data.Dataset.range(7).window(3, **options)]

    assert windows() == [[0, 1, 2], [3, 4, 5], [6]]
    assert windows(shift=2, drop_remainder=True) == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert windows(shift=1, stride=2, drop_remainder=True) == [[0, 2, 4], [1, 3, 5], [2, 4, 6]]
    assert windows(shift=4) == [[0, 1, 2], [4, 5, 6]]
    pairs = tf.data.Dataset.zip((tf.data.Dataset.range(4),) * 2).window(2)
    assert listed(pairs.flat_map(lambda a, b: tf.data.Dataset.zip((a.batch(2), b.batch(2))))) == [
        [[0, 1], [0, 1]],
        [[2, 3], [2, 3]],
    ]


def test_padded_batch__shapes_and_values__pads_what_is_short(tf: Any) -> None:
    dataset = tf.data.Dataset.range(1, 5).map(lambda x: tf.fill([int(x)], x))
    assert listed(dataset.padded_batch(2)) == [[[1, 0], [2, 2]], [[3, 3, 3, 0], [4, 4, 4, 4]]]
    assert listed(dataset.padded_batch(4, padded_shapes=5, padding_values=-1, drop_remainder=True)) == [
        [[1, -1, -1, -1, -1], [2, 2, -1, -1, -1], [3, 3, 3, -1, -1], [4, 4, 4, 4, -1]]
    ]
    with pytest.raises(AbeleError, match="padded_batch to \\[3\\]"):
        listed(dataset.padded_batch(4, padded_shapes=[3]))


def test_bucket_by_sequence_length__lengths__come_in_batches_of_their_bucket(tf: Any) -> None:
    rows = [[0], [1, 2, 3, 4], [5, 6, 7], [7, 8, 9, 10, 11], [13, 14, 15, 16, 19, 20], [21, 22]]
    dataset = tf.data.Dataset.from_generator(
        lambda: rows, output_signature=tf.TensorSpec(shape=[None], dtype=tf.int64)
    ).bucket_by_sequence_length(
        element_length_func=lambda elem: tf.shape(elem)[0], bucket_boundaries=[3, 5], bucket_batch_sizes=[2, 2, 2]
    )
    assert listed(dataset) == [
        [[1, 2, 3, 4], [5, 6, 7, 0]],
        [[7, 8, 9, 10, 11, 0], [13, 14, 15, 16, 19, 20]],
        [[0, 0], [21, 22]],
    ]


def test_from_generator__signature_types_and_arguments__are_checked(tf: Any) -> None:
    def counted(stop: Any) -> Any:
        for number in range(stop):
            yield number, [number] * 2

    dataset = tf.data.Dataset.from_generator(counted, (tf.int64, tf.float32), ((), (2,)), args=(3,))
    assert dataset.element_spec == (tf.TensorSpec((), tf.int64), tf.TensorSpec((2,), tf.float32))
    assert [(int(a), b.tolist()) for a, b in dataset.as_numpy_iterator()][-1] == (2, [2.0, 2.0])
    assert len(list(dataset)) == len(list(dataset)) == 3
    wrong = tf.data.Dataset.from_generator(lambda: iter([[1, 2]]), output_signature=tf.TensorSpec((3,), tf.int32))
    with pytest.raises(AbeleError, match="shape"):
        next(iter(wrong))
    with pytest.raises(TypeError, match="needs a function"):
        tf.data.Dataset.from_generator([1, 2], tf.int32)


def test_cache__elements__are_made_once(tf: Any) -> None:
    made = []

    def generator() -> Any:
        made.append(0)
        yield from range(3)

    dataset = tf.data.Dataset.from_generator(generator, tf.int32, ()).cache().repeat(3)
    assert listed(dataset) == [0, 1, 2] * 3
    assert len(made) == 1


def test_reduce_scan_unique_apply__as_in_the_documents__compute(tf: Any) -> None:
    five = tf.data.Dataset.range(5)
    assert five.reduce(np.int64(0), lambda x, _: x + 1).numpy() == 5
    assert five.reduce((0, 1), lambda state, x: (state[0] + 1, state[1] * 2))[1].numpy() == 32
    assert listed(five.scan(np.int64(0), lambda state, x: (state + x, state + x))) == [0, 1, 3, 6, 10]
    assert listed(tf.data.Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()) == [1, 37, 2]
    assert listed(five.apply(lambda dataset: dataset.filter(lambda x: x < 2))) == [0, 1]
    assert listed(five.apply(tf.data.experimental.map_and_batch(lambda x: x + 1, 5))) == [[1, 2, 3, 4, 5]]


def test_sampling__of_datasets__takes_all_by_weight_or_choice(tf: Any) -> None:
    parts = [tf.data.Dataset.range(10 * n, 10 * n + 3) for n in range(3)]
    chosen = tf.data.Dataset.choose_from_datasets(parts, tf.data.Dataset.from_tensor_slices([2, 0, 2, 1]))
    assert listed(chosen) == [20, 0, 21, 10]
    sampled = tf.data.Dataset.sample_from_datasets(parts, [0.5, 0.5, 0.0], seed=1)
    assert sorted(listed(sampled)) == [0, 1, 2, 10, 11, 12]


def test_iterator__by_hand__ends_with_out_of_range(tf: Any) -> None:
    iterator = iter(tf.data.Dataset.range(2))
    assert [int(iterator.get_next()), int(next(iterator))] == [0, 1]
    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        iterator.get_next()
    with pytest.raises(StopIteration):
        next(iterator)


def test_iterator__rehearsed__gives_its_elements_again_unless_kept(tf: Any) -> None:
    iterator = iter(tf.data.Dataset.range(6))
    with iterator.rehearsed():
        assert [int(next(iterator)) for _ in range(2)] == [0, 1]
    with iterator.rehearsed() as keep:
        assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
        keep()
    assert [int(element) for element in iterator] == [3, 4, 5]


def test_options__set_and_misspelled__are_kept_or_refused(tf: Any) -> None:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.threading.private_threadpool_size = 4
    options.experimental_deterministic = False
    dataset = tf.data.Dataset.range(2).with_options(options)
    assert dataset.options().experimental_deterministic is False
    with pytest.raises(ValueError, match="deterministc") as error:
        options.deterministc = True
    assert "deterministic is there" in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda tf: tf.data.Dataset.from_tensor_slices((np.ones(3), np.ones(4))), "3, 4"),
        (lambda tf: tf.data.Dataset.from_tensor_slices(1), "from_tensors"),
        (lambda tf: tf.data.Dataset.range(3).batch(0), "at least 1"),
        (lambda tf: tf.data.Dataset.range(3).shard(2, 2), "numbered 0 to 1"),
        (lambda tf: len(tf.data.Dataset.range(3).repeat()), "infinitely many"),
        (lambda tf: listed(tf.data.Dataset.range(1, 3).map(lambda x: tf.range(x)).batch(2)), "padded_batch"),
        (lambda tf: listed(tf.data.Dataset.range(2).flat_map(lambda x: x)), "from_tensors"),
        (lambda tf: tf.data.Dataset.zip((1, 2)), "takes datasets"),
        (lambda tf: tf.data.Dataset.from_tensor_slices([[1], [1, 2]]), "different lengths"),
    ],
)
def test_misuse__of_datasets__is_said_with_what_to_do(tf: Any, make: Any, words: str) -> None:
    with pytest.raises(AbeleError) as error:
        make(tf)
    assert words in str(error.value)
