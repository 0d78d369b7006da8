"""CPUs that code is made for: this machine's, a lesser one by ``ABELE_CPU``, and others, whose code is never run."""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import llvmlite.binding as binding
import pytest

from abele.llvm import host, jit
from abele.llvm.cpus import ARM_CPUS, X86_CPUS, HostCpu, cpu_named
from abele.llvm.host import code_for, host_cpu, is_elsewhere, own_cpu, per_cpu

SQUARES = """
define void @squares(ptr %to, ptr %from) {
  %x = load <16 x float>, ptr %from, align 4
  %y = fmul <16 x float> %x, %x
  %z = fadd <16 x float> %y, %x
  store <16 x float> %z, ptr %to, align 4
  ret void
}
"""
HALVES = "define half @half_sum(half %x, half %y) {\n  %z = fadd half %x, %y\n  ret half %z\n}\n"
WIDEST = {"x86-64": "xmm", "x86-64-v2": "xmm", "sandybridge": "ymm", "haswell": "ymm", "znver3": "ymm"}
WIDEST |= {"skylake-avx512": "zmm", "znver4": "zmm"}


def named(name: str) -> HostCpu:
    cpu = cpu_named(name)
    assert cpu is not None
    return cpu


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HostCpu]]:
    """Finds the CPU of a process on a machine that LLVM describes so, with ``ABELE_CPU`` set or not."""
    own_cpu.cache_clear()
    host._this_cpu.cache_clear()

    def found(
        name: str, features: dict[str, bool] | None, wanted: str = "", triple: str = "x86_64-unknown-linux-gnu"
    ) -> HostCpu:
        def listed() -> dict[str, bool]:
            if features is None:
                raise RuntimeError("failed to get host cpu features")
            return features

        monkeypatch.setattr(binding, "get_host_cpu_name", lambda: name)
        monkeypatch.setattr(binding, "get_host_cpu_features", listed)
        monkeypatch.setattr(binding, "get_process_triple", lambda: triple)
        monkeypatch.setenv(host.VARIABLE, wanted)
        return own_cpu()

    yield found
    monkeypatch.undo()
    own_cpu.cache_clear()
    host._this_cpu.cache_clear()


def having(name: str, *, but: str = "") -> dict[str, bool]:
    """Features as LLVM lists them on a CPU of that name, some of which the system hides."""
    there = {feature for cpu in X86_CPUS for feature in named(cpu).features}
    return {feature: feature in named(name).features and not feature.startswith(but or "-") for feature in there}


def test_cpu_named__each_generation__has_all_of_the_one_before() -> None:
    for table in (X86_CPUS, ARM_CPUS):
        for name, (before, _) in table.items():
            assert before is None or named(before).features <= named(name).features


def test_cpu_named__no_such_name__is_none() -> None:
    assert cpu_named("haswel") is None is cpu_named("")


@pytest.mark.skipif(not own_cpu().is_x86, reason="LLVM lists the features of x86 on x86")
def test_tables__features__are_names_that_llvm_lists() -> None:
    listed = set(binding.get_host_cpu_features())
    assert {feature for name in X86_CPUS for feature in named(name).features} <= listed


@pytest.mark.parametrize(("name", "width"), [("x86-64-v2", 16), ("haswell", 32), ("znver4", 64), ("neoverse-n1", 16)])
def test_vector_bytes__by_name__are_those_of_its_registers(name: str, width: int) -> None:
    assert named(name).vector_bytes == width


@pytest.mark.parametrize(("name", "register"), WIDEST.items())
def test_code_for__vectors_of_16__uses_the_registers_that_are_there(name: str, register: str) -> None:
    with code_for(named(name)):
        text = jit.assembly(SQUARES, speed=1)
    assert max(re.findall(r"%([xyz]mm)", text)) == register
    assert "vfmadd" not in text


def test_code_for__arm__multiplies_in_vectors_of_four() -> None:
    with code_for(named("neoverse-n1")):
        assert re.search(r"fmul\s+v\d+\.4s", jit.assembly(SQUARES, speed=1))


def test_code_for__an_object__has_numbers_for_addresses() -> None:
    with code_for(named("neoverse-n1")):
        assert is_elsewhere()
        code = jit.compile_ir(SQUARES)
        assert isinstance(code, jit.ForeignCode)
        assert code.data.startswith(b"\x7fELF")
        assert jit.foreign_symbol(code.address("squares")) == (code, "squares")
        assert code.address("squares") == code.address("squares")
    assert not is_elsewhere()
    assert jit.foreign_symbol(0) is None


def test_code_for__the_cpu_of_this_process__is_not_taken_for_code_that_runs() -> None:
    text = SQUARES.replace("squares", "own_squares")
    with code_for(own_cpu()):
        foreign = jit.compile_ir(text)
    native = jit.compile_ir(text)
    assert isinstance(foreign, jit.ForeignCode)
    assert not isinstance(native, jit.ForeignCode)
    source, target = (ctypes.c_float * 16)(*range(16)), (ctypes.c_float * 16)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(native.address("own_squares"))(target, source)
    assert list(target) == [x * x + x for x in range(16)]


def test_code_for__an_error_within__is_over_all_the_same() -> None:
    with pytest.raises(ZeroDivisionError), code_for(named("haswell")):
        raise ZeroDivisionError
    assert host_cpu() is own_cpu()


def test_per_cpu__results__are_of_each_cpu_and_kept() -> None:
    made: list[str] = []

    @per_cpu
    def name(ending: str) -> str:
        made.append(host_cpu().name + ending)
        return made[-1]

    with code_for(named("haswell")):
        assert name("!") == name("!") == "haswell!"
    assert name("!") == own_cpu().name + "!"
    assert len(made) == 2


def test_half__without_instructions__brings_its_own_conversions() -> None:
    with code_for(named("x86-64-v2")):
        text = jit.assembly(HALVES)
    assert re.search(r"^__extendhfsf2:", text, re.MULTILINE)
    assert re.search(r"^__truncsfhf2:", text, re.MULTILINE)
    with code_for(named("ivybridge")):
        assert "__extendhfsf2" not in jit.assembly(HALVES)


def test_own_cpu__lesser_by_name__has_its_features_and_no_others(machine: Callable[..., HostCpu]) -> None:
    cpu = machine("znver4", having("znver4"), "haswell")
    assert cpu.name == "haswell"
    assert cpu.features == named("haswell").features
    assert {"avx512f", "avx512bf16", "gfni"} <= cpu.lacks
    assert "-avx512f" in cpu.feature_string.split(",")


def test_own_cpu__same_or_no_name__is_this_machine(machine: Callable[..., HostCpu]) -> None:
    here = machine("znver4", having("znver4"))
    own_cpu.cache_clear()
    assert machine("znver4", having("znver4"), "znver4") == here
    assert here.vector_bytes == 64


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("haswel", "no CPU that is known here; 'haswell' is"),
        ("HASWELL", "no CPU that is known here"),
        ("skylake-avx512", "haswell has no adx, avx512bw, avx512cd, avx512dq"),
        ("neoverse-n1", "haswell is of another kind"),
    ],
)
def test_own_cpu__one_that_cannot_be__is_this_machine_and_says_so_once(
    machine: Callable[..., HostCpu], wanted: str, reason: str
) -> None:
    with pytest.warns(RuntimeWarning, match=f"ABELE_CPU={wanted} changes nothing: .*{reason}"):
        cpu = machine("haswell", having("haswell"), wanted)
    assert (cpu.name, cpu.vector_bytes) == ("haswell", 32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert own_cpu() is cpu


def test_own_cpu__features_that_a_virtual_machine_hides__are_switched_off(machine: Callable[..., HostCpu]) -> None:
    cpu = machine("skylake-avx512", having("skylake-avx512", but="avx512"))
    assert cpu.vector_bytes == 32
    with code_for(cpu):
        text = jit.assembly(SQUARES, speed=1)
    assert "zmm" not in text
    assert "ymm" in text


@pytest.mark.parametrize("name", ["generic", ""])
def test_own_cpu__llvm_has_no_name__goes_by_features(machine: Callable[..., HostCpu], name: str) -> None:
    cpu = machine(name, having("haswell"))
    with code_for(cpu):
        assert "ymm" in jit.assembly(SQUARES, speed=1)


@pytest.mark.parametrize("features", [None, {}])
def test_own_cpu__llvm_lists_no_features__is_any_x86(
    machine: Callable[..., HostCpu], features: dict[str, bool] | None
) -> None:
    cpu = machine("znver4", features)
    assert cpu == named("x86-64")
    with code_for(cpu):
        assert max(re.findall(r"%([xyz]mm)", jit.assembly(SQUARES, speed=1))) == "xmm"


def test_own_cpu__arm_without_features__keeps_its_name(machine: Callable[..., HostCpu]) -> None:
    cpu = machine("apple-m1", {}, triple="arm64-apple-darwin23")
    assert (cpu.name, cpu.is_aarch64, cpu.vector_bytes) == ("apple-m1", True, 16)
    assert {"neon", "fp-armv8"} <= cpu.features


def test_own_cpu__arm_as_linux_lists_it__may_be_any_arm(machine: Callable[..., HostCpu]) -> None:
    listed = dict.fromkeys(named("neoverse-n1").features, True)
    triple = "aarch64-unknown-linux-gnu"
    assert machine("neoverse-n1", listed, "generic", triple).name == "generic"
    own_cpu.cache_clear()
    with pytest.warns(RuntimeWarning, match="has no bf16, i8mm, sve"):
        assert machine("neoverse-n1", listed, "neoverse-v1", triple).name == "neoverse-n1"


def test_feature_string__wide_vectors__are_wanted_where_there_are_any() -> None:
    assert named("znver4").feature_string.endswith("-prefer-256-bit,-prefer-128-bit")
    assert "prefer" not in replace(named("haswell"), lacks=frozenset({"avx512f"})).feature_string
