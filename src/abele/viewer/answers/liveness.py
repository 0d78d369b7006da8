"""What is live at which step."""

from __future__ import annotations
