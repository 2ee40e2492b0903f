"""Definitions of correct, and ways to run the RTL."""
