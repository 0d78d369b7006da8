"""What the host shares with a running program besides streams: tensors by name, remote buffers, functions, prints."""
