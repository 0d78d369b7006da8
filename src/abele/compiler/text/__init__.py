"""Text forms: program, mapping, lowered program, exchange plan, memory map."""

from abele.compiler.text.listing import listing_text
from abele.compiler.text.mapping import mapping_text
from abele.compiler.text.memory import memory_text
from abele.compiler.text.plan import plan_text
from abele.compiler.text.program import program_text

__all__ = ["listing_text", "mapping_text", "memory_text", "plan_text", "program_text"]
