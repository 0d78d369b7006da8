"""Ends that host and program share besides streams: tensors by name, remote buffers, functions, prints."""
