"""From bytes to memories and back: frames, checks, requests."""
