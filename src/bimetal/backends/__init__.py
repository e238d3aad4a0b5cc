"""Rollout backends, one file each; found by name."""
