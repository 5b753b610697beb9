"""Finding the machine's own apt sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.errors import KdopsError
from kdops.lab.sources import codename, offers, release_sources

pytestmark = pytest.mark.unit

DEB822 = """\
# the usual file
Types: deb deb-src
URIs: https://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEB822, True),
        (DEB822.replace("deb deb-src", "deb-src"), False),
        (DEB822.replace("Components: main\n contrib", "Components: contrib"), False),
        (DEB822 + "Enabled: no\n", False),
        (DEB822.replace("bookworm bookworm-updates", "bookworm-updates"), False),
        ("Types: deb\nSuites: nodistro\nComponents: main\n\n" + DEB822, True),
        ("deb https://mirror.example/debian bookworm main contrib", True),
        ("deb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian bookworm main # own", True),
        ("# deb https://mirror.example/debian bookworm main", False),
        ("deb-src https://mirror.example/debian bookworm main", False),
        ("deb https://packages.example/apt cloud-bookworm main", False),
        ("deb https://mirror.example/debian bookworm non-free", False),
        ("", False),
    ],
)
def test_a_source_offers_the_release_by_its_main_component(text: str, expected: bool) -> None:
    assert offers(text, "bookworm") is expected


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    offers(text, "bookworm")
    codename(text)


@given(st.text(alphabet=st.characters(exclude_characters="\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029")))
def test_a_comment_never_offers_anything(text: str) -> None:
    assert not offers(f"# {text}\n#deb x bookworm main", "bookworm")


def test_only_the_files_of_the_release_are_taken(tmp_path: Path) -> None:
    folder = tmp_path / "apt" / "sources.list.d"
    folder.mkdir(parents=True)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    (folder / "debian.sources").write_text(DEB822)
    (folder / "other.list").write_text("deb https://packages.example/apt other main\n")
    (folder / "debian.sources.bak").write_text(DEB822)
    (folder / "broken.list").write_bytes(b"\xff\xfe\x00deb")
    assert release_sources(tmp_path) == ("bookworm", (folder / "debian.sources",))


def test_a_machine_without_debian_sources_is_told_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text("ID=fedora\n")
    with pytest.raises(KdopsError) as refused:
        release_sources(tmp_path)
    assert "sources.list" in refused.value.remedy
