"""Parts of a model's program: blocks, hooks, channels of the profile, the hardware asked for."""
