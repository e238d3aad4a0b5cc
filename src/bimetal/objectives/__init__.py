"""Blocks of objectives: pure functions of tensors."""
