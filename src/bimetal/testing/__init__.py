"""Conformance suites and small models for plug-ins and for our own tests."""
