"""The rows of a check that a host answers: models, GPUs as nvidia-smi tells them, ports, the sandbox."""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from guard_host import UNIT, make_host
from hypothesis import given
from hypothesis import strategies as st

from kdops.errors import KdopsError, UsageError
from kdops.guard import probe_main
from kdops.guard.checks import collective, gpus, models, nvidia, parser, ports, sandbox, system
from kdops.guard.checks.ask import Question, parse
from kdops.guard.checks.row import Row, State, worst_first
from kdops.guard.context import Context
from kdops.guard.layout import Layout
from kdops.guard.preflight import refuse

pytestmark = pytest.mark.unit

SMI = "0, GPU-a, NVIDIA H200, 580.95.05, 4, 143771\n1, GPU-b, NVIDIA H200, 580.95.05, 110000, 143771\n"


def asked(**more: Any) -> Question:
    settings = {"device": "cuda", "tp": 2, "user": "kdtree", **more.pop("settings", {})}
    manifest = {"lock_digest": "abcdefabcdef", "port": 1, "unit": UNIT, "settings": settings}
    return Question({**manifest, **more.pop("manifest", {})}, **more)


def failing(rows: Any) -> list[Row]:
    return [row for row in rows if row.state is State.FAIL]


def weights(file: Path, size: int = 64, cut: int = 0) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    file.write_bytes((struct.pack("<Q", len(header)) + header + bytes(size))[: -cut or None])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"num_hidden_layers": 2}')
    weights(folder / "model.safetensors")
    return folder


def of_models(folder: Path) -> list[Row]:
    return list(models.rows(asked(manifest={"models": [str(folder)]})))


def test_a_whole_model_is_fine(model: Path) -> None:
    (row,) = of_models(model)
    assert row.state is State.OK


def test_a_truncated_file_is_named_with_both_sizes(model: Path) -> None:
    weights(model / "model.safetensors", cut=10)
    size = (model / "model.safetensors").stat().st_size
    (row,) = failing(of_models(model))
    assert f"model.safetensors has {size} bytes, its header says {size + 10}: it is cut off" in row.found
    assert "copy the file again" in row.remedy


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is cut off: 0 bytes"),
        (b"\x08\0\0", "is cut off"),
        (struct.pack("<Q", 2**60), "is no safetensors file"),
        (struct.pack("<Q", 50) + b"{}", "its header alone ends at 58"),
        (struct.pack("<Q", 2) + b"[]", "damaged header"),
        (struct.pack("<Q", 2) + b"\xff\xff", "damaged header"),
        (struct.pack("<Q", 8) + b'{"w": 3}', "damaged header"),
        (b"version https://git-lfs.github.com/spec/v1\n", "no safetensors file"),
    ],
)
def test_a_damaged_file_is_told(model: Path, content: bytes, said: str) -> None:
    (model / "model.safetensors").write_bytes(content)
    (row,) = failing(of_models(model))
    assert said in row.found


@given(st.binary(max_size=200))
def test_no_file_is_too_odd_to_judge(content: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(content)
        file.flush()
        assert isinstance(models.damage(Path(file.name)), str)


def test_files_that_the_index_names_must_be_there(model: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    (row,) = failing(of_models(model))
    assert "lacks model-2.safetensors" in row.found


@pytest.mark.parametrize(("lost", "said"), [("config.json", "config.json does not exist"), ("", "not exist")])
def test_a_model_that_is_not_there(model: Path, lost: str, said: str) -> None:
    (model / lost).unlink() if lost else None
    folder = model if lost else model / "nowhere"
    (row,) = failing(of_models(folder))
    assert said in row.found
    assert row.found.startswith("a model is not on the host: ")


def test_a_hub_name_is_not_judged() -> None:
    (row,) = models.rows(asked(manifest={"models": ["org/model"]}))
    assert row.state is State.NOT_RUN


def test_a_taken_port_names_process_and_unit(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        free = asked(manifest={"port": port + 1})
        nccl = asked(manifest={"port": port + 1}, settings={"extra_args": {"nccl-port": port}})
        (row,) = failing(ports.rows(host.ctx, asked(manifest={"port": port})))
        assert f"port {port} is taken: process " in row.found
        assert "engine_port" in row.remedy
        (row,) = failing(ports.rows(host.ctx, nccl))
        assert row.found.endswith("needs it for NCCL")
        assert not failing(ports.rows(host.ctx, free))


def test_internal_ports_of_dp_attention_are_looked_at(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] - 235
        question = asked(manifest={"port": port}, settings={"extra_args": {"enable-dp-attention": True}})
        (row,) = failing(ports.rows(host.ctx, question))
        assert f"port {port + 235} is taken" in row.found


def judged(
    question: Question, *told: str, holders: str = "", units: dict[int, str] | None = None
) -> list[Row]:
    found = nvidia.parse(*told)
    held = nvidia.parse_holders(holders)
    return list(gpus.judge(question, found, held, lambda h: (units or {}).get(h.pid, ""), {UNIT}))


def test_gpus_that_are_well() -> None:
    ours = judged(asked(cuda=13), SMI, holders="GPU-b, 77, 110000, python\n", units={77: UNIT})
    assert not [row for row in ours if row.state is not State.OK]


def test_a_foreign_holder_is_named_with_its_unit() -> None:
    rows = judged(asked(), SMI, holders="GPU-b, 77, 102400, /venv/bin/python\n", units={77: "other.service"})
    (row,) = failing(rows)
    assert row.found == "GPU 1: 100.0 GiB is held by /venv/bin/python (pid 77, unit other.service)"


def test_memory_that_no_process_is_named_for_is_a_warning() -> None:
    rows = [row for row in judged(asked(), SMI) if row.state is State.WARN]
    assert [row.check for row in rows] == ["GPU memory"]
    assert "GPU 1: 107.4 GiB is in use" in rows[0].found


@pytest.mark.parametrize(
    ("question", "told", "said"),
    [
        (asked(settings={"tp": 8}), (SMI,), "8 GPUs are needed (engine_tp), 2 answer"),
        (asked(cuda=13), (SMI.replace("580.95.05", "570.1"),), "driver 570.1 is too old"),
        (asked(), (SMI, "", "", "0, In Progress, N/A\n"), "NVLink fabric is 'In Progress'"),
    ],
)
def test_what_cannot_start_fails(question: Question, told: tuple[str, ...], said: str) -> None:
    assert any(said in row.found for row in failing(judged(question, *told)))


def test_what_is_ill_warns() -> None:
    rows = judged(asked(), SMI, "0, 3\n1, [N/A]\n", "0, 0x0000000000000044\n1, 0x4\n", "0, [N/A], [N/A]\n")
    told = [row.found for row in rows if row.check == "GPU health"]
    assert told == [
        "GPU 0: 3 uncorrected ECC errors since the driver was loaded",
        "GPU 0: clocks are held down now: hardware thermal slowdown",
    ]


RECORDED = (  # two H200, driver 580.159.04, idle
    "0, GPU-161bd078-f98f-1b80-f731-d7d7846af290, NVIDIA H200, 580.159.04, 0, 143771\n"
    "1, GPU-84d64525-bd36-423f-7650-33aa43e01960, NVIDIA H200, 580.159.04, 0, 143771\n",
    "0, 0\n1, 0\n",
    "0, 0x0000000000000001\n1, 0x0000000000000001\n",
    "0, Completed, Success\n1, Completed, Success\n",
)


def test_a_recorded_host_of_two_h200_is_well() -> None:
    rows = judged(asked(cuda=13), *RECORDED)
    assert {row.state for row in rows} == {State.OK}
    assert rows[0].found == "2 × NVIDIA H200, driver 580.159.04"
    assert rows[-1].found == "no uncorrected ECC error, no throttling, fabric completed"


def test_the_collective_test_runs_with_the_engine_s_own_nccl_settings() -> None:
    text = 'HOME="/x"\nNCCL_P2P_DISABLE="1"\nNCCL_NVLS_ENABLE=0\nHF_TOKEN="s"\n'
    assert collective.settings(text) == {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}


@given(st.lists(st.text(max_size=60), max_size=6).map("\n".join))
def test_any_text_of_nvidia_smi_is_read_or_left_out(text: str) -> None:
    found = nvidia.parse(text, text, text, text)
    assert all(gpu.memory_used >= 0 for gpu in found)
    assert all(holder.pid >= 0 for holder in nvidia.parse_holders(text))


def test_waiting_for_free_gpus_ends_with_who_still_holds_them() -> None:
    holder = nvidia.Holder("GPU-a", 7, "python", 1000.0)
    answers = [(holder,), (holder,), ()]
    assert gpus.wait_free(10, lambda: answers.pop(0), lambda _: None) == ()
    assert gpus.wait_free(1, lambda: (holder,), lambda _: None) == (holder,)


UNIT_TEXT = """\
[Unit]
Description=x
[Service]
Type=notify
User=kdtree
ExecStart=/v/bin/python -m kdtree_engine.serve --config /r/launch.yaml
EnvironmentFile=/r/engine.env
LoadCredential=api_key:/etc/kdops/credentials/x.api_key
CacheDirectory=kdtree/hf kdtree/abc
RuntimeDirectory=kdtree-x
WatchdogSec=300
Restart=on-failure
ProtectSystem=strict
CapabilityBoundingSet=
[Install]
WantedBy=multi-user.target
"""


def test_the_probe_keeps_the_sandbox_and_none_of_the_engine() -> None:
    lines = sandbox.probe_unit(UNIT_TEXT, "/usr/bin/true", "/run/kdops/p", "kdops-p").splitlines()
    assert {"User=kdtree", "CacheDirectory=kdtree/hf kdtree/abc", "ProtectSystem=strict"} < set(lines)
    assert {"CapabilityBoundingSet=", "Type=oneshot", "EnvironmentFile=/run/kdops/p/engine.env"} < set(lines)
    text = "\n".join(lines)
    for word in ("kdtree_engine", "LoadCredential", "kdtree-x", "Watchdog", "Restart", "[Install]", "notify"):
        assert word not in text


@pytest.mark.parametrize(
    ("ended", "device", "check", "said"),
    [
        (
            (239, {}, "Failed to set up"),
            "cpu",
            "caches",
            "its cache directory (status 239): Failed to set up",
        ),
        ((217, {}, ""), "cpu", "sandbox", "systemd cannot set up its user"),
        ((-1, {}, ""), "cpu", "sandbox", "systemd cannot set up the service"),
        (
            (0, {"caches": ["/c: not writable"], "files": []}, ""),
            "none",
            "caches",
            "cannot write its cache /c",
        ),
        ((0, {"caches": [], "files": ["/m/a"]}, ""), "none", "model files", "user kdtree cannot read /m/a"),
        (
            (0, {"caches": [], "files": [], "error": "RuntimeError: no CUDA"}, ""),
            "cuda",
            "sandbox",
            "no CUDA",
        ),
    ],
)
def test_what_the_probe_found(
    tmp_path: Path, ended: tuple[int, dict[str, Any], str], device: str, check: str, said: str
) -> None:
    (row, *_) = failing(sandbox.judge(asked(), ended, device, "", tmp_path / "note"))
    assert row.check == check
    assert said in row.found
    assert not (tmp_path / "note").exists()


def test_a_folder_that_is_not_there_is_not_called_unreadable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert probe_main.closed_files([str(tmp_path / "targe"), str(tmp_path / "file/x"), "org/model"]) == []


def test_a_probe_that_systemd_does_not_end_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("run/systemd/system", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    systemctl = tmp_path / "bin/systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/asked\n[ "$1" != start ] || exec sleep 60\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(sandbox, "_SECONDS", -29)
    question, host = dataclasses.replace(asked(), unit=UNIT_TEXT), Context(Layout(tmp_path))
    ended = sandbox.probe(host, question, tmp_path / "venv", "cpu", "")
    (row, *_) = failing(sandbox.judge(question, ended, "cpu", "", tmp_path / "note"))
    assert "systemd has not ended it in 1 s" in row.found and row.remedy
    assert (tmp_path / "asked").read_text().split() == ["start", "stop", "reset-failed"]
    assert not list(tmp_path.glob("run/systemd/system/*")) and not list(host.layout.checks.iterdir())


def test_a_sandbox_that_worked_is_remembered(tmp_path: Path) -> None:
    report = {"caches": [], "files": [], "device": "CPU", "torch": "2"}
    rows = list(sandbox.judge(asked(), (0, report, ""), "cpu", "", tmp_path / "run/note"))
    assert {row.state for row in rows} == {State.OK}
    assert (tmp_path / "run/note").read_text() == "torch 2 allocates on CPU"


@pytest.mark.parametrize(
    ("report", "state"),
    [
        ({"ok": True, "slow": False, "words": "fine"}, State.OK),
        ({"ok": True, "slow": True, "words": "slow", "remedy": "r"}, State.WARN),
        ({"ok": False, "words": "hangs", "remedy": "r"}, State.FAIL),
        ({}, State.FAIL),
    ],
)
def test_the_collective_tests_report(report: dict[str, Any], state: State) -> None:
    (row,) = collective.judge(report)
    assert row.state is state
    assert row.found


@pytest.mark.parametrize(
    ("mode", "body", "said"),
    [(0o644, "", "Permission denied"), (0o755, "#!/bin/sh\necho no torch >&2; exit 1\n", "no torch")],
)
def test_a_collective_test_that_cannot_run_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, body: str, said: str
) -> None:
    host = make_host(tmp_path)
    python = host.ctx.layout.venvs / "000000000000/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(body)
    python.chmod(mode)
    monkeypatch.setattr(nvidia, "present", lambda: True)
    monkeypatch.setattr(nvidia, "holders", lambda: ())
    question = asked(manifest={"lock_digest": "000000000000"}, collective="x")
    (row,) = collective.rows(host.ctx, question)
    assert row.state is State.FAIL
    assert said in row.found


def test_the_collective_test_is_not_run_without_an_environment(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    question = asked(manifest={"lock_digest": "000000000000"}, collective="x")
    assert [row.state for row in collective.rows(host.ctx, question)] == [State.NOT_RUN]
    assert not list(collective.rows(host.ctx, asked(settings={"tp": 1})))


@pytest.mark.parametrize(
    ("share", "cap", "state"), [(0.99, None, "fail"), (0.99, 8192, "ok"), (0.1, None, "ok")]
)
def test_a_memory_fraction_that_starves_a_cpu_host(share: float, cap: int | None, state: str) -> None:
    settings = {"device": "cpu", "memory_fraction": share, "max_total_tokens": cap}
    (row,) = system.memory(asked(settings=settings))
    assert row.state == state
    if state == "fail":
        assert row.found.startswith("the memory fraction is too high: ")
        assert "engine_memory_fraction=0." in row.remedy


def test_a_clock_that_is_off_warns() -> None:
    assert [r.state for r in system.clock(asked(now=time.time() - 500))] == [State.WARN]
    assert [r.state for r in system.clock(asked(now=time.time()))] == [State.OK]
    assert not list(system.clock(asked()))


def test_a_refusal_names_every_failing_row_and_the_first_first() -> None:
    rows = [Row("a", State.OK, "fine"), Row("b", State.FAIL, "by x", "stop it", "port 1 is taken")]
    rows.append(Row("c", State.FAIL, "by y", "free it", "the disk is too full"))
    with pytest.raises(KdopsError) as caught:
        refuse(rows)
    error = caught.value
    assert (error.title, error.cause, error.remedy, error.code) == ("port 1 is taken", "by x", "stop it", 5)
    assert error.evidence == ("also: the disk is too full: by y",)
    refuse(rows[:1])
    assert [row.state.value for row in worst_first(rows)] == ["fail", "fail", "ok"]


@pytest.mark.parametrize("raw", [None, 3, [], {}, {"manifest": 3}, {"manifest": {}, "bytes": "many"}])
def test_what_is_no_question_is_refused(raw: Any) -> None:
    with pytest.raises(UsageError):
        parse(raw)


def test_the_host_is_asked_for_its_options_once(tmp_path: Path) -> None:
    venv = tmp_path / "venvs/abc"
    (venv / "bin").mkdir(parents=True)
    assert parser.options(venv, tmp_path / "notes", asked()) is None
    python = venv / "bin/python"
    python.write_text("""#!/bin/sh
echo noise
echo '{"version": "9", "options": {"--x": {"switch": true, "choices": null}}}'
""")
    python.chmod(0o755)
    told = parser.options(venv, tmp_path / "notes", asked())
    assert told == {"version": "9", "options": {"--x": {"switch": True, "choices": None}}}
    python.write_text("#!/bin/sh\nexit 1\n")
    assert parser.options(venv, tmp_path / "notes", asked()) == told
    assert parser.options(venv, tmp_path / "elsewhere", asked()) is None
