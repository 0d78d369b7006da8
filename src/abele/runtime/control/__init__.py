"""The control virtual machine: its bytecode, leaves, host threads, and the native code that runs them."""
