"""For all tests: a machine busy with emulated guests is slow now and then, and no property fails for that."""

from hypothesis import settings

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
