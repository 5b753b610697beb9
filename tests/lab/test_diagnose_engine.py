"""Faults put into a real engine, each named first by `kdops diagnose`: SGLang and its linear drafter."""

from __future__ import annotations

import json
import os
import threading

import pytest
from host_service import kdops

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.matrix]

PROMPT = "def fibonacci(n):\n    "
WORKER = "sglang/srt/speculative/dflash_worker_v2.py"
# The drafter's first slot gets the mask's embedding instead of the last token's.
MASK = """
import glob, pathlib
path, = glob.glob("/opt/kdops/venvs/*/lib/python3*/site-packages/{worker}")
path = pathlib.Path(path)
kept = path.with_suffix(".kept")
text = path.read_text()
old = "            noise_embedding = embed_module(block_ids)\\n"
assert text.count(old) == 1
kept.write_text(text)
new = ("            masked = block_ids.clone()\\n            masked[:, 0] = int(self._mask_token_id)\\n"
       "            noise_embedding = embed_module(masked)\\n")
path.write_text(text.replace(old, new))
"""
UNMASK = (
    "cd /opt/kdops/venvs/*/lib/python3*/site-packages/sglang/srt/speculative && mv dflash_worker_v2.kept {0}"
)
# Every tensor keeps its shape and its values, in another order.
SHUFFLE = """
import array, json, pathlib, random, shutil
source, target = pathlib.Path("/opt/models/tiny-pair/drafter"), pathlib.Path("/opt/models/shuffled")
shutil.copytree(source, target, dirs_exist_ok=True)
file = target / "model.safetensors"
raw = bytearray(file.read_bytes())
size = int.from_bytes(raw[:8], "little")
for name, told in json.loads(raw[8:8 + size]).items():
    if name != "__metadata__":
        begin, end = (8 + size + offset for offset in told["data_offsets"])
        values = array.array("H", bytes(raw[begin:end]))
        random.Random(1).shuffle(values)
        raw[begin:end] = values.tobytes()
file.write_bytes(raw)
"""


def findings(lab, *arguments):
    done = kdops(lab, "diagnose", *arguments, "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["findings"]


def ids(found):
    return [finding["id"] for finding in found]


def bench(lab, *options):
    """Measure what serves; returns the run's id."""
    done = kdops(lab, "bench", "lab0", *options, "--json", timeout=900)
    assert done.returncode in (0, 9), done.stderr
    return json.loads(done.stdout)["run"]


def script(lab, text):
    lab.ssh("lab0", f"python3 - <<'EOF'\n{text}\nEOF", timeout=120)


def deploy(lab, *changes):
    options = [word for change in changes for word in ("--set", change)]
    done = kdops(lab, "deploy", "lab0", "--profile", "linear", *options, timeout=400)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def served(lab, tmp_path_factory):
    """lab0 serving the linear profile, measured once: sound, and on this machine's record."""
    before = os.environ.get("KDOPS_STATE")
    os.environ["KDOPS_STATE"] = before or str(tmp_path_factory.mktemp("state"))
    lab.clean("lab0")
    since = lab.clock("lab0")
    deploy(lab)
    bench(lab)
    yield lab
    lab.count_starts("lab0", since)
    lab.clean("lab0")
    if before is None:
        del os.environ["KDOPS_STATE"]


def test_a_sound_host_gets_no_finding(served):
    assert ids(findings(served, "lab0")) == []


def test_a_cpu_quota_is_named(served):
    unit = "kdtree-lab0.service"
    asked = threading.Thread(
        target=kdops,
        args=(served, "generate", "lab0", PROMPT, "--max-new-tokens", "400"),
        kwargs={"timeout": 300},
    )
    asked.start()
    served.ssh("lab0", f"systemctl set-property --runtime {unit} CPUQuota=30%")
    try:
        asked.join()
        found = findings(served, "lab0")
    finally:
        served.ssh("lab0", f"systemctl set-property --runtime {unit} CPUQuota=")
    assert ids(found)[0] == "cpu-limited"


def test_a_second_client_is_named(served):
    over = threading.Event()

    def disturb():
        while not over.is_set():
            kdops(served, "generate", "lab0", PROMPT, "--max-new-tokens", "16", timeout=120)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        run = bench(served, "--quick")
    finally:
        over.set()
        other.join()
    assert ids(findings(served, "--run", run))[0] == "foreign-load"


def test_a_masked_first_slot_is_named(served):
    script(served, MASK.format(worker=WORKER))
    try:
        done = kdops(served, "restart", "lab0", timeout=400)
        assert done.returncode == 0, done.stderr
        bench(served)
        found = findings(served, "lab0")
    finally:
        served.ssh("lab0", UNMASK.format("dflash_worker_v2.py"))
    assert ids(found)[0] == "draft-input", found


def test_a_prefix_cache_that_is_off_is_named(served):
    deploy(served, "engine_extra_args={disable-radix-cache: true}")
    assert ids(findings(served, "lab0"))[0] == "prefix-cache-off"


def test_eager_mode_where_graphs_were_asked_for_is_named(served):
    deploy(served, "engine_cuda_graph_decode=full")
    done = kdops(served, "generate", "lab0", PROMPT, "--max-new-tokens", "400", timeout=300)
    assert done.returncode == 0, done.stderr
    assert ids(findings(served, "lab0"))[0] == "eager-mode"


def test_shuffled_weights_are_named(served):
    script(served, SHUFFLE)
    deploy(served, "engine_draft_model=/opt/models/shuffled")
    bench(served)
    assert ids(findings(served, "lab0"))[0] in ("drafter-mismatch", "flat-commit")
