"""TensorFlow's functions beside NumPy and SciPy, eagerly and as parts of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special

from abele.errors import AbeleError

RNG = np.random.default_rng(0)
A = RNG.uniform(0.1, 0.9, (3, 4)).astype(np.float32)
B = RNG.uniform(0.1, 0.9, (3, 4)).astype(np.float32)
M = RNG.normal(size=(2, 4, 5)).astype(np.float32)
S = (M @ M.swapaxes(1, 2) + np.eye(4)).astype(np.float32)
I = np.array([2, 0, 1])  # noqa: E741

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "add": (lambda tf: tf.add(A, B), A + B),
    "divide": (lambda tf: tf.math.divide_no_nan(A, np.zeros_like(A)), np.zeros_like(A)),
    "number beside a tensor": (lambda tf: tf.constant([1, 2]) + 3, [4, 5]),
    "half beside a number": (lambda tf: tf.multiply(tf.cast(A, tf.float16), 2.0), (A.astype(np.float16) * 2)),
    "erf": (lambda tf: tf.math.erf(A), scipy.special.erf(A)),
    "lgamma": (lambda tf: tf.math.lgamma(A), scipy.special.gammaln(A)),
    "reduce_sum": (lambda tf: tf.reduce_sum(A, axis=[0, 1]), A.sum()),
    "reduce_mean": (lambda tf: tf.reduce_mean(A, 1, keepdims=True), A.mean(1, keepdims=True)),
    "reduce_mean of whole numbers": (lambda tf: tf.reduce_mean([1, 2]), 1),
    "reduce_std": (lambda tf: tf.math.reduce_std(A, 0), A.std(0)),
    "reduce_any": (lambda tf: tf.reduce_any(A > 0.5, 0), (A > 0.5).any(0)),
    "reduce_logsumexp": (lambda tf: tf.reduce_logsumexp(A, 1), scipy.special.logsumexp(A, 1)),
    "argmax": (lambda tf: tf.argmax(A), A.argmax(0)),
    "argmin along": (lambda tf: tf.argmin(A, axis=-1, output_type=tf.int32), A.argmin(-1)),
    "cumsum": (lambda tf: tf.cumsum([1, 2, 3], exclusive=True, reverse=True), [5, 3, 0]),
    "cumprod": (lambda tf: tf.math.cumprod([2, 3, 4], exclusive=True), [1, 2, 6]),
    "clip_by_value": (lambda tf: tf.clip_by_value([-1, 5], 0, 3), [0, 3]),
    "top_k": (lambda tf: tf.math.top_k([1, 5, 3], 2).indices, [1, 2]),
    "in_top_k": (lambda tf: tf.math.in_top_k([0, 1], [[0.1, 0.9], [0.2, 0.8]], 1), [False, True]),
    "segment_mean": (lambda tf: tf.math.segment_mean([1.0, 3.0, 5.0], [0, 0, 1]), [2.0, 5.0]),
    "unsorted_segment_sum": (lambda tf: tf.math.unsorted_segment_sum([1, 2, 3], [1, 0, 1], 2), [2, 4]),
    "confusion_matrix": (lambda tf: tf.math.confusion_matrix([1, 2, 1], [2, 2, 1]), [[0, 0, 0], [0, 1, 1], [0, 0, 1]]),
    "squared_difference": (lambda tf: tf.math.squared_difference([1, 4], [3, 1]), [4, 9]),
    "constant of a shape": (lambda tf: tf.constant(2, shape=(2, 2)), np.full((2, 2), 2)),
    "fill": (lambda tf: tf.fill(dims=[2, 3], value=7), np.full((2, 3), 7)),
    "range": (lambda tf: tf.range(3, 18, delta=3), [3, 6, 9, 12, 15]),
    "range down": (lambda tf: tf.range(3, 1, -0.5), [3.0, 2.5, 2.0, 1.5]),
    "one_hot": (lambda tf: tf.one_hot([0, 2, -1], 3), [[1, 0, 0], [0, 0, 1], [0, 0, 0]]),
    "one_hot on and off": (lambda tf: tf.one_hot([1], 2, on_value=5.0, off_value=-1.0), [[-1, 5]]),
    "one_hot along": (lambda tf: tf.one_hot([[0, 1]], 3, axis=1), np.eye(3)[[0, 1]].T[None]),
    "concat": (lambda tf: tf.concat([A, B], 1), np.concatenate([A, B], 1)),
    "stack": (lambda tf: tf.stack([A, B], axis=-1), np.stack([A, B], -1)),
    "unstack": (lambda tf: tf.unstack(A, axis=1)[2], A[:, 2]),
    "split by sizes": (lambda tf: tf.split(A, [1, -1, 1], axis=1)[1], A[:, 1:3]),
    "split": (lambda tf: tf.split(A, 2, 1)[1], A[:, 2:]),
    "tile": (lambda tf: tf.tile([[1, 2]], [2, 2]), [[1, 2, 1, 2]] * 2),
    "repeat": (lambda tf: tf.repeat([3, 4], [1, 2]), [3, 4, 4]),
    "pad": (lambda tf: tf.pad([[1]], [[0, 1], [1, 0]], constant_values=9), [[9, 1], [9, 9]]),
    "pad by reflection": (lambda tf: tf.pad([1, 2, 3], [[2, 0]], "REFLECT"), [3, 2, 1, 2, 3]),
    "reshape": (lambda tf: tf.reshape(A, [-1, 2]), A.reshape(-1, 2)),
    "reshape by a shape": (lambda tf: tf.reshape(A, (tf.shape(A)[1], tf.shape(A)[0])), A.reshape(4, 3)),
    "transpose": (lambda tf: tf.transpose(M, [2, 0, 1]), M.transpose(2, 0, 1)),
    "expand and squeeze": (lambda tf: tf.squeeze(tf.expand_dims(A, 1), [1]), A),
    "gather": (lambda tf: tf.gather(A, I), A[I]),
    "gather along": (lambda tf: tf.gather(A, [3, 0], axis=1), A[:, [3, 0]]),
    "gather in batches": (lambda tf: tf.gather([[1, 2], [3, 4]], [[1], [0]], batch_dims=1), [[2], [3]]),
    "gather_nd": (lambda tf: tf.gather_nd(A, [[0, 1], [2, 3]]), A[[0, 2], [1, 3]]),
    "scatter_nd": (lambda tf: tf.scatter_nd([[1], [1], [3]], [5, 6, 7], [4]), [0, 11, 0, 7]),
    "tensor_scatter_nd_update": (lambda tf: tf.tensor_scatter_nd_update([1, 2, 3], [[1]], [9]), [1, 9, 3]),
    "where": (lambda tf: tf.where([True, False], [1, 2], [3, 4]), [1, 4]),
    "where true": (lambda tf: tf.where([[False, True], [True, False]]), [[0, 1], [1, 0]]),
    "boolean_mask": (lambda tf: tf.boolean_mask([1, 2, 3], [True, False, True]), [1, 3]),
    "sequence_mask": (lambda tf: tf.sequence_mask([1, 2], 3, tf.int32), [[1, 0, 0], [1, 1, 0]]),
    "sort": (lambda tf: tf.sort([2, 3, 1], direction="DESCENDING"), [3, 2, 1]),
    "argsort": (lambda tf: tf.argsort([2, 3, 1]), [2, 0, 1]),
    "unique": (lambda tf: tf.unique([4, 2, 4, 1])[0], [4, 2, 1]),
    "unique places": (lambda tf: tf.unique([4, 2, 4, 1])[1], [0, 1, 0, 2]),
    "slice": (lambda tf: tf.slice(A, [0, 1], [2, -1]), A[0:2, 1:]),
    "strided_slice": (lambda tf: tf.strided_slice(A, [0, 0], [3, 4], [2, 3]), A[::2, ::3]),
    "space_to_depth": (lambda tf: tf.nn.space_to_depth(np.arange(16.0).reshape(1, 4, 4, 1), 2)[0, 0, 0], [0, 1, 4, 5]),
    "meshgrid": (lambda tf: tf.meshgrid([1, 2], [3, 4, 5])[0], np.meshgrid([1, 2], [3, 4, 5])[0]),
    "eye": (lambda tf: tf.eye(2, batch_shape=[3]), np.broadcast_to(np.eye(2), (3, 2, 2))),
    "cast": (lambda tf: tf.cast([1.9, -1.9], tf.int32), [1, -1]),
    "matmul": (lambda tf: tf.matmul(A, B, transpose_b=True), A @ B.T),
    "einsum": (lambda tf: tf.einsum("bij,bkj->bik", M, M), M @ M.swapaxes(1, 2)),
    "tensordot": (lambda tf: tf.tensordot(A, B, axes=[[1], [1]]), A @ B.T),
    "norm": (lambda tf: tf.norm(A, axis=1), np.linalg.norm(A, axis=1)),
    "norm of one": (lambda tf: tf.norm(A, ord=1), np.abs(A).sum()),
    "clip_by_global_norm": (
        lambda tf: tf.clip_by_global_norm([A, None, B], 1.0)[1],
        np.sqrt((A**2).sum() + (B**2).sum()),
    ),
    "cholesky": (lambda tf: tf.linalg.cholesky(S), np.linalg.cholesky(S)),
    "inv": (lambda tf: tf.linalg.inv(S), np.linalg.inv(S)),
    "svd": (lambda tf: tf.linalg.svd(M)[0], np.linalg.svd(M)[1]),
    "band_part": (lambda tf: tf.linalg.band_part(np.ones((3, 3)), -1, 0), np.tril(np.ones((3, 3)))),
    "triangular_solve": (
        lambda tf: tf.linalg.triangular_solve(np.tril(S[0]), M[0]),
        scipy.linalg.solve_triangular(np.tril(S[0]), M[0], lower=True),
    ),
    "softmax": (lambda tf: tf.nn.softmax(A), scipy.special.softmax(A, -1)),
    "softmax cross-entropy": (
        lambda tf: tf.nn.softmax_cross_entropy_with_logits(labels=np.eye(4)[I], logits=A),
        -scipy.special.log_softmax(A, -1)[range(3), I],
    ),
    "sparse cross-entropy": (
        lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=I, logits=A),
        -scipy.special.log_softmax(A, -1)[range(3), I],
    ),
    "sigmoid cross-entropy": (
        lambda tf: tf.nn.sigmoid_cross_entropy_with_logits(labels=B, logits=A),
        -(B * np.log(scipy.special.expit(A)) + (1 - B) * np.log(1 - scipy.special.expit(A))),
    ),
    "moments": (lambda tf: tf.nn.moments(A, axes=[0])[1], A.var(0)),
    "l2_normalize": (lambda tf: tf.nn.l2_normalize(A, 1), A / np.linalg.norm(A, axis=1, keepdims=True)),
    "batch_normalization": (
        lambda tf: tf.nn.batch_normalization(A, A.mean(0), A.var(0), None, None, 1e-3),
        (A - A.mean(0)) / np.sqrt(A.var(0) + 1e-3),
    ),
    "conv2d": (
        lambda tf: tf.nn.conv2d(np.ones((1, 4, 4, 1), np.float32), np.ones((3, 3, 1, 1), np.float32), 1, "VALID"),
        np.full((1, 2, 2, 1), 9.0),
    ),
    "conv2d with strides of four dims": (
        lambda tf: tf.nn.conv2d(
            np.ones((1, 4, 4, 1), np.float32), np.ones((3, 3, 1, 1), np.float32), [1, 2, 2, 1], padding="SAME"
        )[0, 0, 0],
        [9.0],
    ),
    "max_pool2d": (
        lambda tf: tf.nn.max_pool2d(np.arange(16.0).reshape(1, 4, 4, 1), 2, 2, "VALID")[0, :, :, 0],
        [[5, 7], [13, 15]],
    ),
    "avg_pool": (
        lambda tf: tf.nn.avg_pool(np.arange(4.0).reshape(1, 2, 2, 1), [1, 2, 2, 1], [1, 2, 2, 1], "VALID"),
        [[[[1.5]]]],
    ),
    "embedding_lookup": (lambda tf: tf.nn.embedding_lookup(A, I), A[I]),
    "resize": (lambda tf: tf.image.resize(np.arange(4.0).reshape(2, 2, 1), [4, 4], "nearest")[0, :, 0], [0, 0, 1, 1]),
    "central_crop": (
        lambda tf: tf.image.central_crop(np.arange(16.0).reshape(4, 4, 1), 0.5)[:, :, 0],
        [[5, 6], [9, 10]],
    ),
    "resize_with_crop_or_pad": (
        lambda tf: tf.image.resize_with_crop_or_pad(np.ones((2, 4, 1)), 4, 2)[:, :, 0],
        [[0, 0], [1, 1], [1, 1], [0, 0]],
    ),
    "convert_image_dtype": (
        lambda tf: tf.image.convert_image_dtype(np.array([[[255]]], np.uint8), tf.float32),
        [[[1.0]]],
    ),
    "flip": (lambda tf: tf.image.flip_left_right([[[1], [2]]]), [[[2], [1]]]),
    "strings": (lambda tf: tf.strings.length(["a", "bcd"]), [1, 3]),
    "decode_raw": (lambda tf: tf.io.decode_raw(b"\x01\x00\x02\x00", tf.int16), [1, 2]),
    "cond": (lambda tf: tf.cond(tf.constant(True), lambda: 1, lambda: 2), 1),
    "while_loop": (lambda tf: tf.while_loop(lambda i: i < 10, lambda i: (i + 3,), (0,))[0], 12),
    "map_fn": (lambda tf: tf.map_fn(lambda row: row * 2, A), A * 2),
    "scan": (lambda tf: tf.scan(lambda a, x: a + x, np.array([1, 2, 3])), [1, 3, 6]),
    "foldl": (lambda tf: tf.foldl(lambda a, x: a - x, [1, 2, 3]), -4),
    "vectorized_map": (lambda tf: tf.vectorized_map(lambda row: tf.reduce_sum(row), A), A.sum(1)),
    "tensor array": (lambda tf: tf.TensorArray(tf.float32, 2).write(0, 1.0).write(1, 2.0).stack(), [1.0, 2.0]),
}


@pytest.mark.parametrize("case", CASES)
def test_names__values__are_those_of_numpy(tf: Any, case: str) -> None:
    compute, wanted = CASES[case]
    found = np.asarray(compute(tf))
    assert found.shape == np.shape(wanted)
    np.testing.assert_allclose(found.astype(np.float64), np.asarray(wanted, np.float64), rtol=3e-5, atol=3e-6)


def test_tensors__constants__have_tensorflows_types(tf: Any) -> None:
    assert [tf.constant(value).dtype for value in (1, 1.0, True, [1.0])] == [tf.int32, tf.float32, tf.bool, tf.float32]
    assert tf.constant(1, tf.float32).dtype == tf.float32
    assert tf.constant("text").numpy() == b"text"
    assert tf.float32.as_numpy_dtype is np.float32
    assert (tf.float16.name, tf.float32.is_floating, tf.uint8.max, tf.int32.size) == ("float16", True, 255, 4)
    assert tf.bfloat16.max > 3e38
    assert tf.as_dtype("float32") is tf.float32
    assert np.zeros(2, tf.float16).dtype == tf.float16
    assert {tf.float32: 1}[tf.as_dtype(np.float32)] == 1
    with pytest.raises(TypeError, match=r"tf.float32") as error:
        tf.as_dtype("flaot32")
    assert isinstance(error.value, AbeleError)


def test_tensors__that_are_none__are_refused(tf: Any) -> None:
    with pytest.raises(TypeError, match="cannot be made a tensor"):
        tf.constant(object())
    with pytest.raises(TypeError, match="fractions"):
        tf.constant(1.5, tf.int32)


def test_shapes__unknown_dims__merge(tf: Any) -> None:
    shape = tf.TensorShape([None, 3])
    assert shape.as_list() == [None, 3]
    assert (shape.rank, str(shape), shape.is_fully_defined()) == (2, "(None, 3)", False)
    assert shape.is_compatible_with([2, 3])
    assert shape.merge_with((2, None)) == (2, 3)
    assert shape[1:].concatenate([4]) == [3, 4]
    assert tf.TensorShape(None).rank is None
    with pytest.raises(ValueError, match="not compatible"):
        shape.assert_is_compatible_with([2, 4])


def test_variables__assigned__change_and_are_tracked_by_layers(tf: Any) -> None:
    variable = tf.Variable([1.0, 2.0], name="a/b")
    variable.assign_add([1.0, 1.0]).assign_sub(0.5)
    assert variable.numpy().tolist() == [1.5, 2.5]
    assert (variable * 2).numpy().tolist() == [3.0, 5.0]
    assert tf.reduce_sum(variable).numpy() == 4.0
    assert variable.dtype == tf.float32

    class Scale(tf.keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.scale = tf.Variable(3.0, trainable=True)

        def call(self, x: Any) -> Any:
            return tf.cast(x, tf.float32) * self.scale

    layer = Scale()
    assert layer(np.ones(2, np.float32)).numpy().tolist() == [3.0, 3.0]
    assert len(layer.trainable_variables) == 1
    assert isinstance(tf.keras.layers.Dense(1), tf.Module) is False

    class Holder(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [tf.Variable(1), {"w": tf.Variable(2.0, trainable=False)}]

    assert len(Holder().variables) == 2
    assert len(Holder().trainable_variables) == 1


def test_models__of_tensorflows_functions__are_functional(tf: Any) -> None:
    inputs = tf.keras.Input((4,))
    rows = tf.reshape(tf.concat([inputs, tf.nn.relu(inputs)], -1), [-1, 2, 4])
    model = tf.keras.Model(inputs, tf.reduce_max(rows, axis=1) + tf.shape(inputs)[1])
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    assert model.output_shape == (None, 4)
    np.testing.assert_allclose(model(x), np.maximum(x, np.maximum(x, 0)) + 4)


def test_random__seeded__repeats_and_is_of_its_distribution(tf: Any) -> None:
    tf.random.set_seed(5)
    first = tf.random.normal([2000]), tf.random.uniform([2000], 2, 5, tf.int32)
    tf.random.set_seed(5)
    again = tf.random.normal([2000])
    assert (first[0] == again).all()
    assert not (tf.random.normal([2000]) == again).all()
    assert abs(float(tf.reduce_mean(first[0]))) < 0.1
    assert set(first[1].numpy().tolist()) == {2, 3, 4}


@pytest.mark.slow
def test_random__other_distributions_and_generators__are_what_they_say(tf: Any) -> None:
    assert np.abs(tf.random.truncated_normal([1000], stddev=2.0)).max() <= 4.0
    assert sorted(tf.random.shuffle(tf.range(5)).numpy().tolist()) == [0, 1, 2, 3, 4]
    assert tf.random.categorical(tf.math.log([[0.0, 1.0]]), 4).numpy().tolist() == [[1, 1, 1, 1]]
    generator = tf.random.Generator.from_seed(1)
    assert (generator.normal([2]) == tf.random.Generator.from_seed(1).normal([2])).all()
    assert (tf.random.stateless_uniform([2], [1, 2]) == tf.random.stateless_uniform([2], [1, 2])).all()


def test_random__in_a_step_that_keras_compiles__is_refused(tf: Any) -> None:
    class Noise(tf.keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x + tf.random.normal([tf.shape(x)[0], 1])

    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, Noise()(inputs))
    assert model.output_shape == (None, 2)
    assert not (model(np.zeros((4, 2))) == model(np.zeros((4, 2)))).all()
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="SeedGenerator"):
        model.fit(np.zeros((4, 2)), np.zeros((4, 2)), verbose=0)


def test_random__set_seed__fixes_keras_layers(tf: Any) -> None:
    def weights() -> Any:
        tf.random.set_seed(3)
        layer = tf.keras.layers.Dense(4)
        layer.build((None, 2))
        return layer.get_weights()[0]

    assert (weights() == weights()).all()


def test_print__of_tensors__shows_values(tf: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tf.print("loss", tf.constant([1.0, 2.0]), tf.constant("a"), output_stream="stdout")
    assert capsys.readouterr().out == "loss [1. 2.] a\n"


def test_debugging__assertions__raise_with_values(tf: Any) -> None:
    tf.debugging.assert_equal([1, 2], [1, 2])
    tf.debugging.assert_shapes([(np.ones((2, 3)), ("N", 3))])
    with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
        tf.debugging.assert_less(3, 2, message="too small")
    with pytest.raises(AbeleError, match="infinities"):
        tf.debugging.check_numerics([1.0, np.inf], "loss")


def test_files__written_and_read__come_back(tf: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "a.txt")
    tf.io.write_file(path, tf.constant("one,2\n"))
    assert tf.io.read_file(path).numpy() == b"one,2\n"
    with tf.io.gfile.GFile(path) as file:
        assert file.read() == "one,2\n"
    assert tf.io.gfile.exists(path)
    assert tf.io.gfile.glob(str(tmp_path / "*.txt")) == [path]
    text, number = tf.io.decode_csv(tf.constant("one,2"), [b"", 0])
    assert (text.numpy(), number.numpy()) == (b"one", 2)


def test_images__encoded_and_decoded__come_back(tf: Any) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    pixels = RNG.integers(0, 255, (4, 5, 3)).astype(np.uint8)
    assert (tf.io.decode_png(tf.io.encode_png(pixels)).numpy() == pixels).all()
    grey = tf.image.decode_image(tf.io.encode_png(pixels), channels=1, dtype=tf.float32)
    assert grey.get_shape() == (4, 5, 1)
    assert grey.numpy().max() <= 1.0


def test_structures__of_tuples_and_dicts__keep_their_form(tf: Any) -> None:
    tree = {"b": [1, (2, 3)], "a": 4}
    assert tf.nest.flatten(tree) == [4, 1, 2, 3]
    assert tf.nest.map_structure(lambda x: x + 1, tree) == {"b": [2, (3, 4)], "a": 5}
    assert tf.nest.pack_sequence_as(tree, [1, 2, 3, 4]) == {"b": [2, (3, 4)], "a": 1}
    with pytest.raises(TypeError, match="differ"):
        tf.nest.assert_same_structure(tree, {"a": 1})


def test_names__missing_and_refused__say_what_there_is(tf: Any) -> None:
    with pytest.raises(AttributeError, match="reduce_men") as error:
        tf.reduce_men([1])
    assert "tensorflow.reduce_mean" in str(error.value)
    with pytest.raises(AttributeError, match="layers"):
        tf.keras.layers.Dens(1)
    for refused in (lambda: tf.Graph(), lambda: tf.train.Checkpoint(), lambda: tf.compat.v1.Session()):
        with pytest.raises(NotImplementedError, match="is not there"):
            refused()
    with pytest.raises(NotImplementedError, match="IPUStrategy"):
        tf.distribute.MirroredStrategy()
    assert not hasattr(tf, "nothing_of_this_name")


def test_function__decorated__is_called_and_bound(tf: Any) -> None:
    class Holder:
        @tf.function(jit_compile=True)
        def doubled(self, x: Any) -> Any:
            """Doubles."""
            return x * 2

    assert Holder().doubled(tf.constant(2)).numpy() == 4
    assert Holder.doubled.__doc__ == "Doubles."
    assert Holder.doubled.jit_compile is True
    assert tf.function(lambda x: x + 1)(1) == 2


def test_summary__written__warns_and_does_nothing(tf: Any) -> None:
    with pytest.warns(UserWarning, match="CSVLogger"):
        writer = tf.summary.create_file_writer("logs")
    with writer.as_default():
        tf.summary.scalar("loss", 1.0, step=0)
