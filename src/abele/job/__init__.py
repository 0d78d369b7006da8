"""What a process knows of the job that it is part of: its number among others, and how far it is."""
