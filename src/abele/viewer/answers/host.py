"""What happened on the host, beside the machine."""

from __future__ import annotations
