"""Models on the device: their steps as networks, their methods, and what runs on the host between executions."""
