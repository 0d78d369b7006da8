"""Programs import TensorFlow's modules by name, and nothing of an installed TensorFlow is touched."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import keras as stock
import pytest

from abele import keras
from abele.errors import AbeleError
from abele.frontends.keras import backend
from abele.keras.__main__ import main

IMPORTS = """
import tensorflow as tf
import tensorflow.keras.backend as K
import tensorflow.compat.v2 as tf2
import tensorflow.compat.v1 as tf1
from tensorflow import keras
from tensorflow.compat.v2 import keras as keras2
from tensorflow.keras import layers, Model, Sequential
from tensorflow.keras.layers import *
from tensorflow.keras.layers import Dense
from tensorflow.keras.layers.experimental import preprocessing
from tensorflow.keras.datasets import mnist, cifar10, imdb
from tensorflow.keras.datasets.mnist import load_data
from tensorflow.keras.optimizers import SGD, Adam
from tensorflow.keras.optimizers.schedules import ExponentialDecay
from tensorflow.keras.preprocessing.sequence import pad_sequences
from tensorflow.keras.preprocessing.text import Tokenizer
from tensorflow.keras.preprocessing.image import ImageDataGenerator
from tensorflow.keras.applications.resnet50 import preprocess_input
from tensorflow.keras.mixed_precision import LossScaleOptimizer
from tensorflow.keras.mixed_precision.experimental import Policy
from tensorflow.keras.utils import to_categorical, Sequence
from tensorflow.keras.callbacks import Callback
from tensorflow.python.keras import backend
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.framework.ops import convert_to_tensor
from tensorflow.python.ops import math_ops, array_ops, nn
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.data.ops.dataset_ops import DatasetV2
from tensorflow.python.eager.def_function import function
from tensorflow.data import Dataset
from tensorflow.io import gfile
assert DatasetV2 is Dataset and tf.keras.layers.Dense is Dense and keras is tf.keras and keras2 is keras
assert LSTM is layers.LSTM and tf2.constant(1) == 1
"""


def test_imports__of_submodules__are_the_attributes(installed: Any) -> None:
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    assert names["tf"] is installed
    assert names["K"] is installed.keras.backend
    assert names["mnist"] is installed.keras.datasets.mnist
    assert names["Dense"] is stock.layers.Dense
    assert names["math_ops"].reduce_mean is installed.reduce_mean
    assert stock.layers.__name__ == "keras.layers"
    assert stock.layers.__spec__.name == "keras.layers"


def test_imports__that_are_not_there__name_the_nearest(installed: Any) -> None:
    with pytest.raises(ImportError, match="no module tensorflow") as error:
        importlib.import_module("tensorflow.keras.layrs")
    assert "tensorflow.keras.layers" in str(error.value)
    assert isinstance(error.value, AbeleError)
    with pytest.raises(ImportError):
        importlib.import_module("tensorflow.keras.layers.Dense.build")


def test_install__twice_and_back__leaves_nothing(tf: Any) -> None:
    keras.install()
    keras.install()
    assert importlib.import_module("tensorflow") is tf
    keras.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "tensorflow"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tensorflow")


def test_install__where_another_was_imported__is_refused(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    with pytest.raises(ImportError, match="imported already"):
        keras.install(shadow=True)


def test_install__where_another_is_installed__shadows_on_request_alone(
    tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise RuntimeError('touched')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="is installed, at") as error:
        keras.install()
    assert "shadow=True" in str(error.value)
    keras.install(shadow=True)
    assert importlib.import_module("tensorflow") is tf
    keras.uninstall()


BEFORE = {
    "Keras runs on numpy": "import os; os.environ['KERAS_BACKEND'] = 'numpy'; import keras",
    "jax_enable_x64 is on": "import os; os.environ['JAX_ENABLE_X64'] = '1'",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", BEFORE)
def test_import__settings_that_do_not_work__are_refused(words: str) -> None:
    code = f"{BEFORE[words]}\nimport abele.keras"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert words in done.stderr
    assert "  try " in done.stderr


def test_import__another_backend__is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock.backend, "backend", lambda: "numpy")
    with pytest.raises(backend.KerasBackendError, match="Keras runs on numpy"):
        backend.require_jax_backend()


def test_import__types_of_64_bits__are_refused() -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(backend.KerasBackendError, match="jax_enable_x64 is on"):
            backend.require_jax_backend()
    finally:
        jax.config.update("jax_enable_x64", False)


def test_import__versions_outside_the_tested_range__are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backend.TESTED, "jax", ((9, 0), (9, 1)))
    with pytest.warns(backend.UntestedVersionWarning, match="jax>=9.0,<9.1"):
        backend.require_jax_backend()


def program(folder: Path) -> Path:
    """A program of TensorFlow, with a module beside it."""
    (folder / "beside.py").write_text("ANSWER = 42")
    made = folder / "program.py"
    made.write_text("import sys, tensorflow as tf, beside\nprint(__name__, sys.argv[1:], tf.constant(beside.ANSWER))")
    return made


def test_main__a_program_and_its_arguments__runs_as_python_does(
    tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["abele.keras", str(program(tmp_path)), "--epochs", "2"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        main()
    finally:
        keras.uninstall()
        sys.modules.pop("beside", None)
    assert capsys.readouterr().out.strip() == "__main__ ['--epochs', '2'] 42"


@pytest.mark.slow
def test_main__as_a_process__runs_as_python_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "abele.keras", str(program(tmp_path)), "--epochs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "__main__ ['--epochs', '2'] 42"
