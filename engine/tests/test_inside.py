"""Runs the tests under inside/, kernels/ and attention/ in the Python that has SGLang, with this Python's
pytest and hypothesis.
"""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
from harness import CHECKOUT, EngineHome

pytestmark = pytest.mark.engine

# Appended, so that everything SGLang has comes from its own environment.
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); import pytest; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.parametrize("folder", ["inside", "kernels", "attention"])
def test_inside_sglangs_python(engine_home: EngineHome, folder: str) -> None:
    tests = Path(__file__).parent / folder
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={CHECKOUT}", f"--confcutdir={tests}", str(tests)]
    done = subprocess.run(
        [*engine_home.python, "-c", _RUN, sysconfig.get_path("purelib"), *options],
        env=engine_home.environment(),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
