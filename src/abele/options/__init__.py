"""Options: declared once as data, read and checked in one way, and listed from the same table in the documentation."""

from abele.options.option import UNSET, Option, choice, element_type, flag, integer, number, text
from abele.options.table import OptionTable, read_options

__all__ = [
    "UNSET",
    "Option",
    "OptionTable",
    "choice",
    "element_type",
    "flag",
    "integer",
    "number",
    "read_options",
    "text",
]
