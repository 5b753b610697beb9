"""The inventory in docs/quickstart.md is a whole one: what a reader copies works."""

import re
import textwrap
from pathlib import Path

import pytest

from kdops import fleet

pytestmark = pytest.mark.unit
QUICKSTART = Path(__file__).parents[2] / "docs" / "quickstart.md"


@pytest.fixture
def box(tmp_path: Path) -> fleet.Host:
    (block,) = re.findall(r"```yaml\n(.*?)```", QUICKSTART.read_text(), re.DOTALL)
    (tmp_path / "mine.yml").write_text(textwrap.dedent(block))
    found = fleet.load(tmp_path)
    assert found.warnings == ()
    return found.one("box")


def test_the_example_describes_one_host(box: fleet.Host) -> None:
    assert (box.ssh.address, box.gpu.id, box.gpu_count) == ("box.example.net", "h200-sxm", 8)
    assert fleet.engine_config(box).profile == "linear"


@pytest.mark.parametrize("profile", ["autoregressive", "linear", "ddtree"])
def test_each_profile_it_names_is_usable(box: fleet.Host, profile: str) -> None:
    config = fleet.engine_config(box, profile)
    assert config.model == "/srv/models/target"


def test_a_plain_arm_needs_no_drafter(box: fleet.Host) -> None:
    assert fleet.engine_config(box, "autoregressive", {"draft_model": "null"}).draft_model is None
