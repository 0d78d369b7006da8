"""Constants whose initial value is computed: ``static const float ROOT = std::sqrt(2.0f);``.

A program computes them as it starts, which vertices do not: they are computed here, by LLVM's evaluation of
constructors, on a copy of the module in which calls are put in place and short loops unrolled. What cannot be computed
is declared, and nowhere defined, so that vertices which use it are refused, and others are not.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as binding

from abele.codelet.cpp.metadata import global_name
from abele.codelet.cpp.optimise import machine, private

_CONSTRUCTORS = "llvm.global_ctors"
_ENTRY = "{ i32, ptr, ptr }"
_SINGLE = re.compile(r"^define [^\n]*@(__cxx_global_var_init[\w.]*)\([^\n]*\{\n(.*?)^\}$", re.M | re.S)
_LIST = re.compile(rf"^@{re.escape(_CONSTRUCTORS)} = [^\n]*\n", re.M)
_VARIABLE = re.compile(r'^@("[^"]*"|[-\w$.]+) = ([^\n]*?)\bglobal ([^\n]*)$', re.M)
_VALUE = re.compile(r'^@("[^"]*"|[-\w$.]+) = [^\n]*?\b((?:global|constant) [^\n]*?)(?:, !dbg !\d+)?$', re.M)
_READ = re.compile(r"^  \S+ = load [^\n]*$", re.M)
_NAMES = re.compile(r'@("[^"]*"|[-\w$.]+)')


def with_initial_values(module: Any) -> Any:
    """The module with constants computed; None where there is nothing to compute."""
    text = str(module)
    if not _LIST.search(text):
        return None
    variables = {m[1] for m in _VARIABLE.finditer(text)}
    # What each initialiser writes: the variables that it mentions other than to read them.
    touched = {name: variables & set(_NAMES.findall(_READ.sub("", body))) for name, body in _SINGLE.findall(text)}
    computed = _evaluated(text, list(touched), sorted(set().union(*touched.values())))
    # Constructors that could not be evaluated are still listed: what they write stays unknown.
    left = {n for name in _NAMES.findall("".join(_LIST.findall(computed))) for n in touched.get(name, ())}
    values = {m[1]: m[2] for m in _VALUE.finditer(computed)}
    types = {global_name(g.name)[1:]: g.global_value_type for g in module.global_variables}

    def settled(line: re.Match[str]) -> str:
        name = line[1]
        if name in left:
            return f"@{name} = external global {str(types[name]).partition(' = type ')[0]}"
        # Of other variables the copy may have folded what this module must keep.
        known = any(name in names for names in touched.values()) and name in values
        return f"@{name} = {line[2]}{values[name]}" if known else line[0]

    return binding.parse_assembly(_VARIABLE.sub(settled, _LIST.sub("", text)), binding.create_context())


def _evaluated(text: str, names: list[str], variables: list[str]) -> str:
    """Text of a copy of the module, with initialisers evaluated as far as they can be; no other sees one fail."""
    listed = ", ".join(f"{_ENTRY} {{ i32 65535, ptr @{name}, ptr null }}" for name in names)
    kept = ", ".join(f"ptr @{name}" for name in variables)
    lines = [
        f"@{_CONSTRUCTORS} = appending global [{len(names)} x {_ENTRY}] [{listed}]",
        f"@abele.kept = global [{len(variables)} x ptr] [{kept}]",
    ]
    copy = binding.parse_assembly("\n".join([private(_LIST.sub("", text)), *lines, ""]), binding.create_context())
    # LLVM's evaluator runs constructors without loops of unknown length or calls that it cannot follow, so both are
    # dissolved first: calls put in place, loops turned into their do-while form (which unrolling wants) and unrolled.
    manager = binding.create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    manager.add_sroa_pass()
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    manager.add_loop_simplify_pass()
    manager.add_loop_rotate_pass()
    manager.add_instruction_combine_pass()
    manager.add_loop_unroll_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.add_global_opt_pass()
    manager.run(copy, binding.create_pass_builder(machine(), binding.PipelineTuningOptions(speed_level=2)))
    return str(copy)
