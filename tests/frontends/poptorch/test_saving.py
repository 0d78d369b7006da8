"""Wrapped models in files, and compiled models in a folder by content."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from poptorch_kit import Classifier
from test_executor import LABELS, X, classifier, options
from torch import nn

from abele import poptorch
from abele.errors import FileFormatError
from abele.frontends.poptorch.models.exporting import FORMAT
from abele.frontends.poptorch.version import VERSION


def trained(**more: Any) -> Any:
    model = classifier(dropout=0.25)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.05)
    training = poptorch.trainingModel(model, options(2, 3, **more), optimizer)
    training(X, LABELS)
    return training


def losses(training: Any, count: int = 2) -> list[float]:
    return [float(training(X, LABELS)[1]) for _ in range(count)]


def test_load__of_a_saved_training_model__goes_on_with_the_same_bits(tmp_path: Path) -> None:
    training = trained()
    path = tmp_path / "deep" / "model.file"
    training.save(path)
    expected = losses(training)
    again = poptorch.load(path, lambda opts: opts.Abele.threads(1))
    assert again.isCompiled()
    assert again.options.Abele.num_threads == 1
    assert losses(again) == expected
    for got, wanted in zip(again.model.parameters(), training.model.parameters(), strict=True):
        assert torch.equal(got, wanted)


def test_compile_and_export__of_inference__runs_from_the_file_in_a_folder(tmp_path: Path) -> None:
    model = classifier()
    inference = poptorch.inferenceModel(model, options(2))
    inference.compileAndExport(tmp_path, X)
    assert (tmp_path / "model.poptorch").exists()
    assert torch.equal(poptorch.load(tmp_path)(X), inference(X))


def two_steps(options: poptorch.Options) -> Any:
    """A wrapper that takes a step for each two micro-batches."""
    model = classifier()
    options.Training.gradientAccumulation(2)
    return poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=0.1))


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a model that was compiled offline, for training and for inference."""
    folder, x = tmp_path_factory.mktemp("offline"), torch.zeros(8, 12)
    two_steps(poptorch.Options().useOfflineIpuTarget()).compileAndExport(folder / "train", x, torch.arange(8) % 4)
    inference = poptorch.inferenceModel(classifier(), poptorch.Options().useOfflineIpuTarget())
    inference.compileAndExport(folder / "infer", x)
    return folder


@pytest.mark.parametrize("edit", [None, lambda o: o.connectionType(poptorch.ConnectionType.OnDemand)])
def test_load__of_what_was_compiled_offline__trains_and_validates_as_a_model_of_this_process(
    edit: Any, offline: Path, tmp_path: Path
) -> None:
    x, labels = torch.randn(8, 12), torch.arange(8) % 4
    training, here = poptorch.load(offline / "train", edit_opts_fn=edit), two_steps(poptorch.Options())
    assert training.isAttachedToDevice() == (edit is None)
    for _ in range(2):
        assert torch.equal(training(x, labels)[1], here(x, labels)[1])
    validation = poptorch.load(offline / "infer", edit_opts_fn=edit)
    validation.load_state_dict(training.model.state_dict())
    assert torch.equal(validation(x), poptorch.inferenceModel(here.model)(x))
    assert training.getTensorNames() == here.getTensorNames()
    training.save(tmp_path / "again")
    assert torch.equal(poptorch.load(tmp_path / "again")(x, labels)[1], here(x, labels)[1])


def test_load_executable__without_a_model__takes_the_wrappers_weights(tmp_path: Path) -> None:
    model, other = classifier(), classifier()
    other.last.bias.data += 1
    path = tmp_path / "executable"
    poptorch.inferenceModel(model, options()).compileAndExport(path, X, export_model=False)
    wrapped = poptorch.inferenceModel(other, options())
    wrapped.loadExecutable(path)
    torch.testing.assert_close(wrapped(X), other(X).detach())
    with pytest.raises(poptorch.Error, match="Shape mismatch for x"):
        wrapped(X[:4])
    with pytest.raises(poptorch.Error, match=r"holds an executable without its model \(export_model=False\)"):
        poptorch.load(path)


def test_load_executable__of_something_else__is_refused(tmp_path: Path) -> None:
    path = tmp_path / "executable"
    poptorch.inferenceModel(classifier(), options()).compileAndExport(path, X)
    with pytest.raises(poptorch.Error, match="holds an executable for inference, which this wrapper is not for"):
        poptorch.trainingModel(classifier(), options()).loadExecutable(path)
    with pytest.raises(poptorch.Error, match="was compiled for another schedule than the options say"):
        poptorch.inferenceModel(classifier(), options(2)).loadExecutable(path)
    with pytest.raises(poptorch.Error, match=r"is of a model with 'first.weight' of shape \[16, 12\]"):
        poptorch.inferenceModel(Classifier(hidden=8), options()).loadExecutable(path)


def test_save__of_what_is_not_compiled__is_refused(tmp_path: Path) -> None:
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        poptorch.inferenceModel(classifier(), options()).save(tmp_path / "x")


def test_save__model_that_holds_a_function__is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    model = classifier()
    model.activation = torch.relu
    inference = poptorch.inferenceModel(model, options())
    inference.compile(X)
    with pytest.raises(poptorch.Error, match=r"export_model=False|which is no layer, optimizer or option"):
        inference.save(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    inference.save(tmp_path / "x", export_model=False)


# --- hostile files ----------------------------------------------------------------------------------------------------


class Runs:
    """Unpickled by a call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def forged(path: Path, state: bytes, version: str = VERSION, compress: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compress) as archive:
        head = {"format": FORMAT, "version": version, "training": False, "exported": True}
        archive.writestr("poptorch.json", json.dumps(head))
        archive.writestr("compiled.session", b"")
        archive.writestr("state.pt", state)
    return path


def state_of(value: object, **more: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **more)
    return stream.getvalue()


def test_load__file_that_names_a_call__does_not_call_it(tmp_path: Path) -> None:
    target = tmp_path / "made"
    for number, content in enumerate((state_of({"model": Runs(target)}), pickle.dumps(Runs(target)))):
        with pytest.raises((poptorch.Error, FileFormatError)):
            poptorch.load(forged(tmp_path / str(number), content))
    assert not target.exists()


def test_load__class_that_is_not_imported__is_refused_and_not_imported(tmp_path: Path) -> None:
    state = state_of({"model": classifier()})
    with zipfile.ZipFile(io.BytesIO(state)) as archive:
        name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
        parts = {n: archive.read(n) for n in archive.namelist()}
    parts[name] = parts[name].replace(b"poptorch_kit", b"antigravity_")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    with pytest.raises(poptorch.Error, match=r"holds 'antigravity_\.Classifier', which is no layer") as caught:
        poptorch.load(forged(tmp_path / "x", stream.getvalue()))
    assert "nothing that they name is called or imported" in str(caught.value)


DAMAGED = {
    "text": lambda path: path.write_text("no zip"),
    "packed": lambda path: forged(path, bytes(1 << 20), compress=zipfile.ZIP_DEFLATED),
    "state": lambda path: forged(path, b"no state"),
    "missing": lambda path: None,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_load__damaged_file__is_refused(name: str, tmp_path: Path) -> None:
    DAMAGED[name](tmp_path / "x")
    with pytest.raises(FileFormatError, match="cannot be read as a saved model") as caught:
        poptorch.load(tmp_path / "x")
    assert isinstance(caught.value, poptorch.Error)


def test_load__file_of_another_version__says_which(tmp_path: Path) -> None:
    with pytest.raises(poptorch.Error, match=r"created with version: 1\.0 and this is version"):
        poptorch.load(forged(tmp_path / "x", state_of({}), version="1.0"))


# --- caching ----------------------------------------------------------------------------------------------------------


def cached(folder: Path, model: nn.Module, threads: int = 0, **more: Any) -> Any:
    opts = options(2, 3, **more).enableExecutableCaching(folder)
    opts.Abele.threads(threads)
    return poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))


def test_caching__same_model_again__is_taken_from_the_folder_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = losses(cached(tmp_path / "cache", classifier()))
    (kept,) = (tmp_path / "cache").iterdir()
    content = kept.read_bytes()

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("abele.session.compiling._build", refuse)
    assert losses(cached(tmp_path / "cache", classifier(), threads=1)) == first
    assert kept.read_bytes() == content
    with pytest.raises(AssertionError, match="compiled again"):
        losses(cached(tmp_path / "cache", Classifier(hidden=8)))


def test_caching__damaged_file__is_made_again(tmp_path: Path) -> None:
    first = losses(cached(tmp_path, classifier()))
    (kept,) = tmp_path.iterdir()
    content = kept.read_bytes()
    kept.write_bytes(content[: len(content) // 2])
    assert losses(cached(tmp_path, classifier())) == first
    # The second compile takes lowerings from the first, and lists views one by one that the first one shares.
    assert len(kept.read_bytes()) == pytest.approx(len(content), rel=0.01)


def test_caching__folder_of_the_environment__is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "environment"))
    poptorch.inferenceModel(classifier(), options()).compile(X)
    assert len(list((tmp_path / "environment").iterdir())) == 1
