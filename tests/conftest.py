"""Shared by all tests of kdops."""

import os
import signal

from hypothesis import settings

# CI judges a change, so it must not fail for an input found by chance; a developer's run keeps searching.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A run in the background of a script ignores SIGINT, and so would every command it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
