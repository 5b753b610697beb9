"""One real connection: commands, uploads, forwards, jump hosts, and every way it can be refused."""

from __future__ import annotations

import dataclasses
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from conftest import eventually
from host_service import find

from kdops import paths
from kdops.errors import KdopsError, UnreachableError
from kdops.fleet import Host, SshTarget
from kdops.host import HostConnection
from kdops.host.failures import HostKeyError

pytestmark = pytest.mark.lab


@pytest.fixture
def connection(lab):
    with HostConnection(find(lab, "lab0")) as opened:
        yield opened


def by(lab, config: Path | str, address: str = "lab0") -> Host:
    """lab0 under another ssh configuration."""
    target = SshTarget(address=address, common_args=("-F", str(config)))
    return dataclasses.replace(find(lab, "lab0"), ssh=target)


def config(lab, tmp_path, text: str) -> Path:
    """An ssh configuration: `text`, then the lab's own as an included file."""
    file = tmp_path / "config"
    file.write_text(f"{text}\nMatch all\nInclude {lab.ssh_config}\n")
    return file


def test_arguments_arrive_unchanged(connection):
    words = ["a b", "'", '"', "$HOME", "`id`", "*", "\n", "ä漢", "", "-n", "\\"]
    script = r'for w in "$@"; do printf "%s\0" "$w"; done'
    assert connection.run(["sh", "-c", script, "sh", *words]).text.split("\0")[:-1] == words


def test_bytes_arrive_unchanged_both_ways(connection):
    content = bytes(range(256)) * 20_000
    result = connection.run(["cat"], stdin=content)
    assert result.stdout == content
    assert connection.run(["sh", "-c", "cat >&2"], stdin=content).stderr == content


def test_input_nobody_reads_is_no_error(connection):
    assert connection.run(["true"], stdin=b"x" * 5_000_000).code == 0


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", -1)])
def test_how_a_command_ended(connection, script, code):
    assert connection.run(["sh", "-c", script]).code == code


def test_a_failed_command_is_an_error_with_its_words(connection):
    with pytest.raises(KdopsError) as failed:
        connection.run(["ls", "/no/such"], check=True)
    assert "No such file" in failed.value.cause


def test_a_command_that_never_ends_is_given_up(connection):
    started = time.monotonic()
    with pytest.raises(UnreachableError, match="did not end in time"):
        connection.run(["sleep", "60"], timeout=0.5)
    assert time.monotonic() - started < 5
    assert connection.run(["echo", "again"]).text == "again\n"


def test_upload_is_whole_with_its_mode_or_not_at_all(connection):
    connection.upload(b"first", "/root/a file", 0o600)
    connection.upload(b"x" * 3_000_000, "/root/a file", 0o640)
    assert connection.run(["stat", "-c", "%a %s", "/root/a file"]).text == "640 3000000\n"
    with pytest.raises(KdopsError, match="failed on the host"):
        connection.upload(b"x", "/no/such/folder/file")


def test_a_full_disk_leaves_the_old_file_and_no_other(connection):
    connection.run(["mkdir", "-p", "/root/small"], check=True)
    connection.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", "/root/small"], check=True)
    try:
        connection.upload(b"old", "/root/small/file")
        with pytest.raises(KdopsError):
            connection.upload(b"x" * 200_000, "/root/small/file")
        assert connection.run(["sh", "-c", "cd /root/small; ls; cat file"]).text == "file\nold"
    finally:
        connection.run(["umount", "/root/small"])


def test_http_through_a_forward(connection):
    files = "mkdir -p /root/www; cd /root/www; echo hello > a"
    serve = f"{files}; exec python3 -m http.server 8123 -b 127.0.0.1"
    connection.run(["systemd-run", "--unit=kdops-test-www", "sh", "-c", serve], check=True)
    try:
        check = ["sh", "-c", "grep -q ':1FBB 00000000:0000 0A' /proc/net/tcp"]
        eventually(lambda: connection.run(check).code == 0, "the server listens")
        with connection.forward(8123) as port:
            for _ in range(3):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/a", timeout=5) as answer:
                    assert answer.read() == b"hello\n"
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/a", timeout=5)
    finally:
        connection.run(["systemctl", "stop", "kdops-test-www"])


def test_an_included_configuration_and_a_jump_host(lab, tmp_path):
    inner = lab.ssh(lab.hosts[0], "hostname -I").split()[0]
    text = f"Host inner\n  HostName {inner}\n  ProxyJump lab1\n  HostKeyAlias lab0\n  User root\n"
    with HostConnection(by(lab, config(lab, tmp_path, text + identity(lab)), "inner")) as opened:
        peer = opened.run(["sh", "-c", "echo ${SSH_CONNECTION% * *}"]).text.split()[0]
        assert opened.run(["hostname"]).text == lab.ssh("lab0", "hostname") + "\n"
    assert peer == lab.ssh("lab1", "hostname -I").split()[0], "the connection came from the jump host"


def identity(lab) -> str:
    """IdentityFile and known_hosts of the lab, which its ssh_config gives only to its own host names."""
    words = subprocess.run(
        ["ssh", "-G", "-F", lab.ssh_config, "lab0"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    keep = ("identityfile", "userknownhostsfile")
    return "".join(f"  {line}\n" for line in words if line.startswith(keep))


def test_a_failing_jump_host_is_named(lab, tmp_path):
    text = "Host inner\n  HostName 10.77.0.10\n  ProxyJump bad\nHost bad\n  HostName no-such-host.invalid\n"
    with pytest.raises(UnreachableError, match=r"jump host no-such-host\.invalid failed: host name not res"):
        HostConnection(by(lab, config(lab, tmp_path, text), "inner")).open()


def test_an_unknown_key_is_refused_by_kdops_and_by_ansible_s_ssh(lab, tmp_path):
    file = config(lab, tmp_path, f"Host lab0\n  UserKnownHostsFile {tmp_path}/none\n")
    with pytest.raises(HostKeyError, match="host key unknown") as refused:
        HostConnection(by(lab, file)).open()
    assert "ssh-keyscan" in refused.value.remedy
    assert "SHA256:" in refused.value.evidence[0]
    assert "Host key verification failed" in as_ansible(file)


def test_a_changed_key_is_refused_with_both_fingerprints(lab, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True)
    public = " ".join((tmp_path / "k.pub").read_text().split()[:2])
    (tmp_path / "known").write_text(f"* {public}\n")
    file = config(lab, tmp_path, f"Host lab0\n  UserKnownHostsFile {tmp_path}/known\n")
    with pytest.raises(HostKeyError, match="host key changed") as refused:
        HostConnection(by(lab, file)).open()
    known, shown = refused.value.evidence
    assert known.startswith("known: ssh-ed25519 SHA256:")
    assert shown.startswith("shown: ssh-ed25519 SHA256:")
    assert known.split()[2] != shown.split()[2]
    assert "Host key verification failed" in as_ansible(file)


def as_ansible(file: Path) -> str:
    """What ssh says with the options the playbooks give to it."""
    enforced = yaml.safe_load((paths.data("playbooks") / "vars" / "connection.yml").read_text())
    options = ["-o", "ControlMaster=no", *enforced["ansible_ssh_args"].split("{{")[0].split()]
    done = subprocess.run(
        ["ssh", *options, "-F", file, "lab0", "true"], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 255
    return done.stderr


def test_a_wrong_key_is_an_authentication_failure(lab, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True)
    host = find(lab, "lab0")
    args = (*host.ssh.common_args, "-oIdentitiesOnly=yes")
    wrong = tmp_path / "config"
    text = "".join(line for line in lab.ssh_config.read_text().splitlines(True) if "IdentityFile" not in line)
    wrong.write_text(text)
    target = SshTarget(
        address="lab0", key_file=str(tmp_path / "k"), common_args=("-F", str(wrong), *args[2:])
    )
    with pytest.raises(UnreachableError, match="authentication failed") as refused:
        HostConnection(dataclasses.replace(host, ssh=target)).open()
    assert str(tmp_path / "k") in refused.value.evidence[0]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Host lab0\n  ProxyCommand echo no way >&2; exit 1", "ProxyCommand failed"),
        ("Host lab0\n  ProxyCommand none\n  HostName no-such-host.invalid", "host name not resolved"),
        ("Host lab0\n  ProxyCommand none\n  HostName 127.0.0.1\n  Port 1", "connection refused"),
    ],
)
def test_every_failure_has_its_own_title(lab, tmp_path, text, title):
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=title) as failed:
        HostConnection(by(lab, config(lab, tmp_path, text))).open()
    assert time.monotonic() - started < 8
    assert failed.value.remedy
    if "ProxyCommand" in title:
        assert failed.value.evidence == ("no way",)


def test_a_link_cut_in_mid_command_is_noticed(lab, connection):
    pieces = connection.stream(["sh", "-c", "echo up; exec sleep 300"])
    assert next(pieces) == b"up\n"
    with HostConnection(find(lab, "lab0")) as other, ThreadPoolExecutor() as thread:
        other.open()
        waiting = thread.submit(other.run, ["sleep", "300"], timeout=200)
        lab.cut("lab0")
        try:
            started = time.monotonic()
            with pytest.raises(UnreachableError, match="connection lost"):
                next(pieces)
            with pytest.raises(UnreachableError, match="connection lost"):
                waiting.result()
            assert time.monotonic() - started < 20
            with pytest.raises(UnreachableError, match="timed out"):
                connection.run(["true"])
            assert time.monotonic() - started < 25
        finally:
            lab.heal("lab0")


def test_a_command_silent_for_longer_than_a_keep_alive_is_waited_for(connection):
    assert connection.run(["sh", "-c", "sleep 5; echo done"]).text == "done\n"
