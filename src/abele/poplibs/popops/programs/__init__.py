"""Programs from other programs: counted loops, and steps of several programs merged side by side."""
