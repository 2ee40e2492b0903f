"""Targets: simulated arrays and boards."""
