"""Targets: what a program can be compiled for."""
