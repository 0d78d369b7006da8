"""Modules under the names that programs import."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from abele import popxl
from abele import popxl_addons as addons
from abele.errors import MissingPackageError
from abele.frontends.aliases import alias


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("popxl.ops.call", "CallSiteInfo"),
        ("popxl.transforms.autodiff", "GradGraphInfo"),
        ("popxl.replica_grouping", "ReplicaGrouping"),
        ("popxl.tensor", "Variable"),
        ("popxl.tensor", "HostTensor"),
        ("popxl_addons.named_tensors", "NamedTensors"),
        ("popxl_addons.transforms.autodiff", "autodiff_with_accumulation"),
        ("popxl_addons.transforms.repeat_graph", "repeat_graph"),
        ("popxl_addons.named_replica_grouping", "get_ild_replica_grouping"),
        ("popxl_addons.named_replica_grouping", "fill_none_group"),
        ("popxl_addons.layers.layer_norm_distributed", "LayerNormDistributed"),
        ("popxl_addons.layers.group_norm", "GroupNorm"),
        ("popxl_addons.transforms.recomputation", "recompute_graph"),
        ("popxl_addons.input_factory", "InputFactory"),
    ],
)
def test_modules_are_the_front_ends_own_and_hide_no_function(module: str, name: str) -> None:
    found = importlib.import_module(f"abele.{module}")
    assert hasattr(found, name)
    assert found.__name__.startswith("abele.frontends.popxl")
    for function in (popxl.ops.call, popxl.transforms.autodiff, popxl.remote_buffer, addons.transforms.repeat_graph):
        assert not isinstance(function, ModuleType)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("abele.popxl_addons.nothing")


def test_a_package_of_the_same_name_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingPackageError, match="there is a package numpy already"):
        alias("numpy", "abele.frontends.popxl")
    monkeypatch.setitem(sys.modules, "popxl_of_another", ModuleType("popxl_of_another"))
    with pytest.raises(MissingPackageError, match="popxl_of_another"):
        alias("popxl_of_another", "abele.frontends.popxl")
