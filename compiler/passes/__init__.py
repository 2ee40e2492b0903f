"""Graph-to-graph passes, one a file."""
