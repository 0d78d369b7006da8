"""Host memory of an engine: variables, elements by step, and tables that native code may trust."""
