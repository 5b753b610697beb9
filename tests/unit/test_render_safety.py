"""A value arrives at the process unchanged, or is refused: quotes, line ends, `%`, `$`, and secrets."""

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kdops import fleet
from kdops.errors import UsageError
from kdops.fleet import values
from kdops.render import FileSet, render
from kdops.render.escape import env_quoted, specifiers

pytestmark = pytest.mark.unit

HOST = fleet.load(Path(__file__).parents[2] / "inventories").one("ct200")
NASTY = [
    "a'b",
    'a"b',
    "a\nb",
    "%n %% %h",
    "$HOME ${HOME} $$",
    "`id`",
    "\\",
    "a\\\nb",
    "; rm",
    "é ☃ \u2028 \x85",
    "\t \r",
]
text = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="\"'\\$`%{}#;=&!\n\r\t ab:-[]", max_size=40),
    st.sampled_from(NASTY),
)


def rendered(**changes: Any) -> FileSet:
    return render(fleet.engine_config(HOST, "linear", changes), HOST, "e" * 64, "a" * 64)


def content(files: FileSet, name: str) -> str:
    return next(file.content.decode() for file in files.files if file.path.endswith(name))


def sourced(assignments: list[str]) -> dict[str, str]:
    """Return what /bin/sh makes of an environment file; systemd.exec(5) has the shell's double quotes."""
    script = "set -a\n" + "\n".join(assignments) + "\nexec env -0"
    command = ["env", "-i", "/bin/sh", "-c", script]
    output = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    return dict(item.split("=", 1) for item in output.split("\0") if item)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"HTTP_PROXY": "http://p:3128"}, 'no_proxy="localhost,127.0.0.1,::1,10.0.0.5"'),
        ({"http_proxy": "http://p:3128", "NO_PROXY": "*"}, None),
        ({"HF_HOME": "/x"}, None),
    ],
)
def test_a_proxy_for_downloads_does_not_stand_before_the_engine(
    environment: dict[str, str], found: str | None
) -> None:
    lines = content(rendered(environment=environment, bind="10.0.0.5"), "engine.env").splitlines()
    assert [line for line in lines if line.startswith("no_proxy")] == ([found] if found else [])


@settings(max_examples=30, deadline=None)
@given(wanted=st.lists(text, min_size=1, max_size=12))
def test_environment_arrives_unchanged(wanted: list[str]) -> None:
    try:
        taken = values.parse("environment", {f"KD_{index}": item for index, item in enumerate(wanted)})
    except values.Wrong:
        return
    seen = sourced([f"{name}={env_quoted(value)}" for name, value in taken.items()])
    assert {name: seen[name] for name in taken} == taken


@given(key=st.sampled_from(["model", "served_model_name", "draft_model"]), value=text)
def test_text_settings_arrive_in_launch_yaml_or_are_refused(key: str, value: str) -> None:
    try:
        files = rendered(**{key: value})
    except UsageError:
        return
    option = {"model": "model-path", "draft_model": "speculative-draft-model-path"}.get(
        key, "served-model-name"
    )
    assert yaml.safe_load(content(files, "launch.yaml")).get(option) == (
        value if value not in ("", "null") else None
    )


scalars = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text)
options = st.dictionaries(
    st.from_regex(r"x[a-z-]{0,12}", fullmatch=True),
    st.one_of(scalars, st.lists(scalars, max_size=3)),
    max_size=4,
)


@given(extra=options)
def test_extra_args_arrive_in_launch_yaml_or_are_refused(extra: dict[str, Any]) -> None:
    try:
        files = rendered(extra_args=extra)
    except UsageError:
        return
    found = yaml.safe_load(content(files, "launch.yaml"))
    assert {name: found[name] for name in extra} == extra


@given(value=text)
def test_no_text_reaches_a_unit_line_unescaped(value: str) -> None:
    try:
        line = specifiers(value)
    except UsageError:
        return
    assert not set(line) & set("\"'\\$;\n\r\t")
    assert "%" not in line.replace("%%", "")
    assert line.replace("%%", "%") == value


@given(value=text, key=st.sampled_from(["service", "user", "bind"]))
def test_unit_is_the_same_whatever_text_is_tried(value: str, key: str) -> None:
    host = dataclasses.replace(HOST, variables={**HOST.variables, f"engine_{key}": value})
    try:
        files = render(fleet.engine_config(host, "linear"), host, "e" * 64, "a" * 64)
    except UsageError:
        return
    unit = files.files[0].content.decode()
    reference = rendered().files[0].content.decode()
    assert keys(unit) == keys(reference)


def keys(unit: str) -> list[str]:
    """Return what is set, in order, values and comments left out."""
    return [line.split("=")[0] for line in unit.splitlines() if not line.startswith("#")]


def test_environment_file_is_private_and_secrets_stay_in_it() -> None:
    files = rendered(environment={"HF_TOKEN": "sentinel-7f3a"}, api_key_file="/home/me/key-sentinel")
    holding = {file.path: file.mode for file in files.files if b"sentinel-7f3a" in file.content}
    assert holding == {"engine.env": 0o600}
    unit = files.files[0].content.decode()
    assert "LoadCredential=api_key:/etc/kdops/credentials/ct200.api_key\n" in unit
    assert "api-key" not in content(files, "launch.yaml")
    for name in (".service", "launch.yaml", "engine.env"):
        assert "key-sentinel" not in content(files, name)
    assert "LoadCredential" not in rendered().files[0].content.decode()


def test_user_environment_cannot_displace_kdops_own() -> None:
    files = rendered(environment={"HF_HOME": "/srv/hf", "NCCL_DEBUG": "INFO"})
    env = sourced(content(files, "engine.env").splitlines())
    assert env["HF_HOME"] == "/srv/hf"
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["PYTHONPATH"] == f"/opt/kdops/releases/{files.release_id}/site"
    assert env["KDTREE_DRAIN_SECONDS"] == "120"


def test_unit_names_its_release_and_environment_by_full_path() -> None:
    files = rendered()
    unit = files.files[0].content.decode()
    release = f"/opt/kdops/releases/{files.release_id}"
    python = f"/opt/kdops/venvs/{'a' * 12}/bin/python"
    assert f"ExecStart={python} -m kdtree_engine.serve --config {release}/launch.yaml" in unit.splitlines()
    assert f"EnvironmentFile={release}/engine.env" in unit.splitlines()
    assert "TimeoutStopSec=150" in unit.splitlines(), "drain deadline and a margin"


@pytest.mark.parametrize("name", ["a/../b", "a b", "%n", "", ".x", "a\nb"])
def test_profile_names_that_no_path_can_hold_are_refused(tmp_path: Path, name: str) -> None:
    profiles = {name: {"engine_algorithm": "autoregressive"}}
    variables = {"engine_model": "m", "gpu": "h100-sxm", "gpu_count": 1, "engine_profiles": profiles}
    (tmp_path / "f.yml").write_text(yaml.safe_dump({"all": {"hosts": {"h1": variables}}}))
    found = fleet.load(tmp_path / "f.yml").one("h1")
    with pytest.raises(UsageError, match="not usable") as caught:
        fleet.engine_config(found, name)
    assert "must match" in caught.value.cause
