"""Files of weights and models under any name, as Keras 2 takes them: Keras 3 wants ``.weights.h5`` and ``.keras``.

Weights keep a name that ends with ``.h5``, and others get ``.weights.h5``. A model that is saved to a folder is the
file ``model.keras`` in it.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import keras

_WEIGHTS, _MODEL = ".weights.h5", "model.keras"
_FILES = (".h5", ".hdf5", ".keras")


def let_names_be_any() -> None:
    """Let ``save``, ``save_weights`` and ``load_weights`` take names of Keras 2."""
    model = keras.Model
    save, save_weights, load_weights = model.save, model.save_weights, model.load_weights

    @functools.wraps(save)
    def save_to(self: Any, filepath: Any, overwrite: bool = True, save_format: Any = None, **kwargs: Any) -> None:
        kwargs = {key: value for key, value in kwargs.items() if key not in ("include_optimizer", "signatures")}
        save(self, _file_of_model(filepath), overwrite=overwrite, **kwargs)

    @functools.wraps(save_weights)
    def save_weights_to(
        self: Any, filepath: Any, overwrite: bool = True, save_format: Any = None, **kwargs: Any
    ) -> Any:
        name = os.fspath(filepath)
        if name.endswith((_WEIGHTS, ".json")):
            return save_weights(self, name, overwrite=overwrite, **kwargs)
        if not name.endswith(_FILES):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            return save_weights(self, name + _WEIGHTS, overwrite=overwrite, **kwargs)
        with tempfile.TemporaryDirectory() as folder:
            made = os.path.join(folder, f"model{_WEIGHTS}")
            save_weights(self, made, **kwargs)
            shutil.move(made, name)
        return None

    @functools.wraps(load_weights)
    def load_weights_from(self: Any, filepath: Any, by_name: bool = False, **kwargs: Any) -> Any:
        name = os.fspath(filepath)
        if not os.path.isfile(name):
            stem = next((name.removesuffix(end) for end in _FILES if name.endswith(end)), name)
            name = next((other for other in (name + _WEIGHTS, stem + _WEIGHTS) if os.path.isfile(other)), name)
        if name.endswith((".h5", ".hdf5")) and not name.endswith(_WEIGHTS) and _is_newer(name):
            with tempfile.TemporaryDirectory() as folder:
                made = os.path.join(folder, f"model{_WEIGHTS}")
                shutil.copyfile(name, made)
                load_weights(self, made, **kwargs)
        else:
            load_weights(self, name, **({"by_name": True} if by_name else {}), **kwargs)
        return LoadStatus()

    model.save, model.save_weights, model.load_weights = save_to, save_weights_to, load_weights_from


class LoadStatus:
    """Result of ``load_weights`` in TensorFlow; here all weights were found."""

    def expect_partial(self) -> LoadStatus:
        """Itself."""
        return self

    assert_consumed = assert_existing_objects_matched = expect_partial


def _is_newer(name: str) -> bool:
    """True for weights that Keras 3 wrote."""
    if not os.path.isfile(name):
        return False
    with h5py.File(name, "r") as file:
        return "layer_names" not in file.attrs and "model_weights" not in file


def _file_of_model(filepath: Any) -> str:
    name = str(os.fspath(filepath))
    if name.endswith(_FILES):
        return name
    Path(name).mkdir(parents=True, exist_ok=True)
    return os.path.join(name, _MODEL)


def load_model(filepath: Any, custom_objects: Any = None, compile: bool = True, **kwargs: Any) -> Any:
    """The model of a file, or of a folder that :func:`save` wrote."""
    name = os.fspath(filepath)
    inside = os.path.join(name, _MODEL)
    kwargs = {key: value for key, value in kwargs.items() if key == "safe_mode"}
    return keras.models.load_model(inside if os.path.isfile(inside) else name, custom_objects, compile, **kwargs)


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """As Keras', for files of any name."""

    def __init__(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        name = os.fspath(filepath)
        weights = kwargs.get("save_weights_only", args[3] if len(args) > 3 else False)
        for unused in ("period", "load_weights_on_restart", "options"):
            kwargs.pop(unused, None)
        if weights and not name.endswith(_WEIGHTS):
            stem = next((name.removesuffix(end) for end in _FILES if name.endswith(end)), name)
            name = stem + _WEIGHTS
        elif not weights and not name.endswith(_FILES):
            name = os.path.join(name, _MODEL)
        super().__init__(name, *args, **kwargs)
