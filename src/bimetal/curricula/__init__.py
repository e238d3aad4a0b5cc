"""Curricula, one file each; found by name."""
