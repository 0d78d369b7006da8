"""Makers of variables under the names that they had in earlier releases."""

from abele.frontends.popxl_addons.variable_factory import (
    NamedVariableFactories,
    ShardedVariableFactory,
    VariableFactory,
    add_variable_input,
)

InputFactory, NamedInputFactories = VariableFactory, NamedVariableFactories

__all__ = [
    "InputFactory",
    "NamedInputFactories",
    "NamedVariableFactories",
    "ShardedVariableFactory",
    "add_variable_input",
]
