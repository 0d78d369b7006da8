"""Ranks: processes that share the replicas of one program."""
