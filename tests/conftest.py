"""What holds for every test."""

from hypothesis import settings

# No test asserts a time: a property may take as long as a busy machine needs.
settings.register_profile("almac", deadline=None)
settings.load_profile("almac")
