"""What a model's program is told: blocks, hooks, channels of the profile, the hardware asked for."""
