"""The archive of `kdops report`: complete, and what is missing has a reason."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest

from kdops.host.archive import Collected, pack

pytestmark = pytest.mark.unit


def test_the_archive_lists_its_files_and_what_is_missing() -> None:
    found = Collected({"journal.txt": "a line\ud800\n"}, {"metrics.txt": "the engine does not answer"})
    packed = pack("lab0", found, now=0.0)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = archive.getnames()
        journal = archive.extractfile("kdops-report-lab0/journal.txt")
        told = archive.extractfile("kdops-report-lab0/manifest.json")
        assert journal is not None
        assert told is not None
        body, manifest = journal.read(), json.loads(told.read())
    assert names == ["kdops-report-lab0/manifest.json", "kdops-report-lab0/journal.txt"]
    assert body == b"a line?\n"
    assert manifest["files"]["journal.txt"] == {"bytes": 8, "sha256": hashlib.sha256(body).hexdigest()}
    assert manifest["missing"] == {"metrics.txt": "the engine does not answer"}
    assert manifest["at"] == "1970-01-01T00:00:00Z"
