"""From control programs to bytecode over leaves."""
