"""Facts about the job that a process is part of: its number among others, and its progress."""
