"""What OpenSSH itself says about a host, asked with real configuration files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.errors import UsageError
from kdops.fleet import SshTarget
from kdops.host.settings import parse, resolve, split_jump

pytestmark = pytest.mark.unit


def target(config, address="gpu1", **rest):
    return SshTarget(address=address, common_args=("-F", str(config)), **rest)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "more.conf").write_text(
        "Host gpu*\n  User ops\n  Port 2222\n  IdentityFile ~/.ssh/lab_%h\n  HostKeyAlias Big-Box\n"
        f"  UserKnownHostsFile {tmp_path}/one {tmp_path}/two\n  ConnectTimeout 7\n  IdentitiesOnly yes\n"
    )
    file = tmp_path / "config"
    file.write_text(
        f"Include {tmp_path}/more.conf\n"
        "Host gpu1\n  HostName 10.9.8.7\n  ProxyJump first,me@second:2200\n"
        "Host second\n  HostName 10.1.1.2\n  IdentityAgent none\n"
        "Host piped\n  ProxyCommand nc -X 5 %h %p '100%%'\n"
        "Host ring\n  ProxyJump gnir\nHost gnir\n  ProxyJump ring\n"
    )
    return file


def test_an_included_file_counts(config, tmp_path):
    found = resolve(target(config))
    assert (found.hostname, found.port, found.user) == ("10.9.8.7", 2222, "ops")
    assert found.identity_files[0].endswith("/.ssh/lab_10.9.8.7")
    assert not found.identity_files[0].startswith("~")
    assert found.known_hosts_files[:2] == (f"{tmp_path}/one", f"{tmp_path}/two")
    assert found.connect_timeout == 7
    assert found.identities_only
    assert found.key_names == ("big-box",)


def test_known_hosts_files_whose_paths_hold_spaces(tmp_path):
    names = ["with a space", "plain", "an other"]
    for name in names:
        (tmp_path / name).write_text("")
    quoted = " ".join(f'"{tmp_path}/{name}"' for name in names)
    (tmp_path / "config").write_text(f"UserKnownHostsFile {quoted}\n")
    found = resolve(target(tmp_path / "config"))
    assert found.known_hosts_files[:3] == tuple(f"{tmp_path}/{name}" for name in names)


def test_jump_hosts_form_a_chain_with_their_own_settings(config):
    second = resolve(target(config)).jump
    assert (second.hostname, second.port, second.user, second.agent) == ("10.1.1.2", 2200, "me", False)
    assert (second.jump.hostname, second.jump.port, second.jump.jump) == ("first", 22, None)


def test_the_inventory_wins_over_the_configuration(config, tmp_path):
    found = resolve(target(config, user="root", port=22, key_file=str(tmp_path / "key")))
    assert (found.user, found.port, found.identity_files[0]) == ("root", 22, str(tmp_path / "key"))


def test_a_proxy_command_is_expanded(config):
    assert resolve(target(config, "piped")).proxy_command == "nc -X 5 piped 22 '100%'"


def test_a_ring_of_jump_hosts_is_refused(config):
    with pytest.raises(UsageError, match="never end"):
        resolve(target(config, "ring"))


@pytest.mark.parametrize("address", ["-oProxyCommand=touch x", "a b", "a\0b", "", "a;b"])
def test_an_impossible_address_is_refused(config, address):
    with pytest.raises(UsageError):
        resolve(target(config, address))


def test_a_wrong_option_is_refused_with_ssh_s_words(tmp_path):
    with pytest.raises(UsageError) as refused:
        resolve(SshTarget(address="h", common_args=("-oNoSuchThing=1",)))
    assert "nosuchthing" in refused.value.cause.lower()


@pytest.mark.parametrize(
    ("port", "names"), [(22, ("gpu.example",)), (2222, ("[gpu.example]:2222", "gpu.example"))]
)
def test_names_in_known_hosts(port, names):
    assert parse("x", f"hostname GPU.example\nuser u\nport {port}\n").key_names == names


@pytest.mark.parametrize(
    ("hop", "host", "args"),
    [
        ("bastion", "bastion", []),
        ("me@bastion", "bastion", ["-l", "me"]),
        ("me@bastion:2200", "bastion", ["-p", "2200", "-l", "me"]),
        ("me@[10.0.0.1]", "10.0.0.1", ["-l", "me"]),
        ("[fe80::1]:22", "fe80::1", ["-p", "22"]),
        ("fe80::1", "fe80::1", []),
        ("ssh://me@host:22", "host", ["-p", "22", "-l", "me"]),
        ("a@b@host", "host", ["-l", "a@b"]),
    ],
)
def test_the_forms_of_a_jump_host(hop, host, args):
    assert split_jump(hop) == (host, args)


@given(st.text())
def test_no_output_of_ssh_breaks_the_parser(text):
    try:
        parse("host", text)
    except UsageError as refused:
        assert "ssh -G" in refused.cause


KEYS = st.sampled_from(
    [
        "hostname",
        "user",
        "port",
        "proxyjump",
        "proxycommand",
        "identityfile",
        "userknownhostsfile",
        "connecttimeout",
    ]
)


@given(st.lists(st.tuples(KEYS, st.text(st.characters(exclude_categories=["Cs"])))))
def test_no_value_of_ssh_breaks_the_parser(pairs):
    base = "hostname h\nuser u\nport 22\n"
    found = parse("host", base + "\n".join(f"{key} {value.replace(chr(10), ' ')}" for key, value in pairs))
    assert (found.hostname, found.port) == ("h", 22)
