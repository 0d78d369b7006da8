"""The one problem that products and convolutions are instances of: its operands, and its meaning as a host kernel."""
