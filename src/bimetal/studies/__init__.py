"""Whole runs, and comparisons of them."""
