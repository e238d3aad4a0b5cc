"""Sampling answers, estimating accuracy with intervals, and reporting both."""
