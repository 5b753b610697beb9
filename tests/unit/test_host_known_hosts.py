"""Which keys are trusted, asked of the real ssh-keygen with real files."""

import subprocess

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.host.known_hosts import (
    HostKeyRefusedError,
    KnownKeys,
    RefuseUntrusted,
    fingerprint,
    look_up,
    parse_found,
)
from kdops.host.settings import SshSettings

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Three public keys: (type, base64) and the file they are in."""
    folder = tmp_path_factory.mktemp("keys")
    found = []
    for name in ("a", "b", "c"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        found.append(" ".join((folder / f"{name}.pub").read_text().split()[:2]))
    return found


def settings(file, hostname="gpu1", port=22, alias=None):
    return SshSettings(
        "x", hostname, port, "root", known_hosts_files=(str(file), "/nowhere"), host_key_alias=alias
    )


def policy(known, public):
    kind, blob = public.split()
    RefuseUntrusted(known).missing_host_key(None, "gpu1", paramiko.PKey.from_type_string(kind, b64(blob)))


def b64(text):
    import base64

    return base64.b64decode(text)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("gpu1", {}),
        ("gpu1,10.0.0.1", {}),
        ("gpu*", {}),
        ("[gpu1]:2222", {"port": 2222}),
        ("gpu1", {"port": 2222}),  # ssh falls back to the name without its port
        ("other", {"alias": "Other"}),
        ("gpu1", {"hostname": "GPU1"}),
    ],
)
def test_a_known_key_is_accepted(tmp_path, keys, name, where):
    file = tmp_path / "known"
    file.write_text(f"# a comment\n{name} {keys[0]}\n")
    known = look_up(settings(file, **where))
    policy(known, keys[0])
    assert known.where == (f"{file}:2",)


def test_a_hashed_name_is_found(tmp_path, keys):
    file = tmp_path / "known"
    file.write_text(f"gpu1 {keys[0]}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", file], check=True, capture_output=True)
    assert "gpu1" not in file.read_text()
    policy(look_up(settings(file)), keys[0])


def test_one_of_several_keys_is_enough(tmp_path, keys):
    file = tmp_path / "known"
    file.write_text(f"gpu1 {keys[0]}\ngpu1 {keys[1]}\n")
    policy(look_up(settings(file)), keys[1])


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("gpu2 {}", {}),
        ("!gpu1,gpu* {}", {}),
        ("[gpu1]:2222 {}", {}),
        ("gpu1 {}", {"alias": "other"}),
        ("gpu1 ssh-ed25519 notbase64!", {}),
    ],
)
def test_a_key_for_another_name_counts_as_unknown(tmp_path, keys, line, where):
    file = tmp_path / "known"
    file.write_text(line.format(keys[0]) + "\n")
    with pytest.raises(HostKeyRefusedError) as refused:
        policy(look_up(settings(file, **where)), keys[0])
    assert refused.value.expected == ()


def test_a_changed_key_names_both_fingerprints(tmp_path, keys):
    file = tmp_path / "known"
    file.write_text(f"gpu1 {keys[0]}\n")
    with pytest.raises(HostKeyRefusedError) as refused:
        policy(look_up(settings(file)), keys[1])
    assert refused.value.expected == (fingerprint("ssh-ed25519", b64(keys[0].split()[1])),)
    assert refused.value.got == fingerprint("ssh-ed25519", b64(keys[1].split()[1]))


def test_a_revoked_key_is_refused_although_trusted_too(tmp_path, keys):
    file = tmp_path / "known"
    file.write_text(f"gpu1 {keys[0]}\n@revoked gpu1 {keys[0]}\n")
    with pytest.raises(HostKeyRefusedError) as refused:
        policy(look_up(settings(file)), keys[0])
    assert refused.value.revoked


def test_the_fingerprint_is_that_of_ssh_keygen(tmp_path, keys):
    file = tmp_path / "key.pub"
    file.write_text(keys[0] + "\n")
    said = subprocess.run(["ssh-keygen", "-lf", file], capture_output=True, text=True, check=True).stdout
    kind, blob = keys[0].split()
    assert fingerprint(kind, b64(blob)).split()[1] == said.split()[1]


@given(st.text())
def test_no_output_of_ssh_keygen_breaks_the_parser(text):
    assert isinstance(parse_found(text, "known"), KnownKeys)
