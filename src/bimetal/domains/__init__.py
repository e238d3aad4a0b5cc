"""Domains, one file each; found by name."""
