"""Shared by all tests of kdops."""

import os

from hypothesis import settings

# CI judges a change, so it must not fail for an input found by chance; a developer's run keeps searching.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
