"""Every command that benchmarks/README.md names is understood, and SGLang takes the flags of its servers."""

from __future__ import annotations

import argparse
import importlib
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
STARTS = "python engine/benchmarks/"
LINES = (line.strip() for line in (FOLDER / "README.md").read_text().splitlines())
COMMANDS = [line.removeprefix(STARTS) for line in LINES if line.startswith(STARTS)]
SCRIPTS = sorted({command.split(".py")[0] for command in COMMANDS})


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """Importable, as when Python runs one of them."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def sglang_parser() -> argparse.ArgumentParser:
    """SGLang's own flags and the plugin's; abbreviations are errors."""
    from kdtree_engine.sglang import registration
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_registry import get_spec

    if get_spec("DDTREE") is None:
        registration.register_algorithm()
    parser = argparse.ArgumentParser(allow_abbrev=False)
    registration.add_cli_args(ServerArgs.add_cli_args, parser)
    return parser


def test_every_script_that_starts_servers_is_in_the_list() -> None:
    apart = {"dummy_model", "draws", "fp32_plugin", "profiled", "runs", "servers", "tables"}
    assert {path.stem for path in FOLDER.glob("*.py")} - apart == set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main(["--help"])
    assert ended.value.code == 0
    assert "--plan" in capsys.readouterr().out


def test_the_attention_benchmark_explains_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kdtree_engine.attention.bench", run_name="__main__")
    assert ended.value.code == 0
    assert "FlashMLA" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_plan_servers_that_sglang_would_take(
    command: str, device: str, capsys: pytest.CaptureFixture[str], sglang_parser: Any
) -> None:
    script, *words = shlex.split(command)
    name = script.removesuffix(".py")
    assert importlib.import_module(name).main([*words, "--device", device, "--plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    for line in lines:
        flags = shlex.split(line.partition("sglang.launch_server ")[2])
        assert sglang_parser.parse_args(flags).model_path


@pytest.mark.parametrize("results", sorted((FOLDER / "results").glob("*.json")), ids=lambda path: path.stem)
def test_every_results_file_has_its_tables(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module("tables").main([str(results)]) == 0
    assert results.name in capsys.readouterr().out


def test_a_wrong_arm_or_cell_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    equality = importlib.import_module("equality")
    for words, said in (
        (["--arms", "ddtree-9"], "ddtree-9"),
        (["--cells", "100x1"], "100x1"),
        (["--setups", "grafs/1"], "grafs/1"),
        (["--replay", "--arms", "dflash", "ddtree-8"], "--replay needs the arm autoregressive"),
    ):
        with pytest.raises(SystemExit) as ended:
            equality.main(["results.json", *words])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


def test_the_reference_is_not_counted_as_equal_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    equality, servers = importlib.import_module("equality"), importlib.import_module("servers")
    monkeypatch.setattr(equality, "prompts", lambda _context: [[1], [2]])

    class Stub(servers.Server):  # type: ignore[misc, name-defined]
        def generate(self, ids: list[int], tokens: int, **_: Any) -> dict[str, Any]:
            return {"output_ids": ids * tokens, "meta_info": {"spec_verify_ct": 2}}

    pages = [servers.Setup(page=page) for page in (1, 64)]
    asked = [
        Stub(arm, setup, 0, None, tmp_path / "log")
        for setup in pages
        for arm in (servers.AUTOREGRESSIVE, servers.LINEAR)
    ]
    results = equality.Results(tmp_path / "results.json")
    known = equality.Reference(equality.tokens_beside(tmp_path / "results.json"))
    equality.run_cells(results, known, asked, [(100, 8)])
    cells = [results.cells[f"{one.arm.name}/{one.setup}/context100/concurrency8"] for one in asked]
    assert [cell.get("equal", "reference") for cell in cells] == ["reference", True, True, True]
    assert equality.verdict(results, 0) == 0
    assert "3 cells" in capsys.readouterr().out
    assert importlib.import_module("tables").main([str(tmp_path / "results.json")]) == 0
    assert "| autoregressive | graphs/page1/fp32 | reference |" in capsys.readouterr().out
