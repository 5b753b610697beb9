"""Entry point; SGLang's spawned processes do not import this module again (its name ends in `.__main__`)."""

import os
import sys

from kdtree_engine.serve.app import main

if __name__ == "__main__":
    # Without the interpreter's teardown, whose leak reports would hide the launcher's last line.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
