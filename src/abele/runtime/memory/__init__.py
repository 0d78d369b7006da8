"""Host memory of an engine: where variables live, what steps touch of it, and tables that native code may trust."""
