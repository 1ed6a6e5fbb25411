# SPDX-License-Identifier: GPL-3.0-or-later
"""Boots real hosts of each suite and takes them through every way of stopping; needs root, a minute, and no network once cached."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import hosts
import pytest
from hosts import process, reap, records, tree

HERE = pathlib.Path(__file__).resolve().parent
SYSTEMD = {"bullseye": "systemd 247", "bookworm": "systemd 252", "trixie": "systemd 257"}

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(os.geteuid() != 0, reason="test hosts need root"),
]


def traces(host: hosts.Host) -> list[str]:
    """What is left of a host on this machine."""
    links = process.tool("ip", "-o", "link", "show") + process.tool("ip", "netns", "list")
    routes = process.tool("ip", "route", "show")
    found = [name for name in (host.link.interface, host.link.machine) if name in links.split()]
    found += [host.link.subnet] if host.link.subnet in routes else []
    for pattern in ("slotward-hosts", "*/slotward-hosts"):
        found += map(str, pathlib.Path("/sys/fs/cgroup").glob(f"{pattern}/{host.link.machine}"))
    found += tree.mounts_below(host.directory)
    found += [str(host.directory)] if host.directory.exists() else []
    return found


@pytest.fixture(scope="module")
def run() -> Iterator[hosts.Run]:
    """A run that is gone after the module."""
    with hosts.Run() as made:
        yield made
    assert not records.run_dir(made.id).exists()


@pytest.fixture
def web(run: hosts.Run) -> Iterator[hosts.Host]:
    """A fresh bookworm host."""
    host = run.up("web", "bookworm")
    yield host
    run.down("web")
    assert traces(host) == []


@pytest.mark.parametrize("suite", hosts.SUITES)
def test_a_host_lives_through_reboot_and_cut(run: hosts.Run, suite: str) -> None:
    """Each start has a boot id of its own, files survive all of them, and nothing is left at the end."""
    host = run.up(f"life-{suite}", suite)
    assert host.run("systemctl --version").stdout.startswith(SYSTEMD[suite])
    assert host.run("systemctl --failed --no-legend --plain").stdout == ""
    host.write("/opt/slotward/kept", "still here", 0o600)
    boots = [host.boot_id]
    host.reboot()
    boots.append(host.boot_id)
    host.cut()
    assert not host.running
    assert not host.ssh_answers()
    host.boot()
    boots.append(host.boot_id)
    host.poweroff()
    assert not host.running
    host.boot()
    boots.append(host.boot_id)
    assert len(set(boots)) == 4
    assert host.read("/opt/slotward/kept") == "still here"
    assert host.run(["stat", "-c", "%a", "/opt/slotward/kept"]).stdout == "600\n"
    said = subprocess.run([*host.ssh_args, "hostname"], capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout == f"life-{suite}\n"
    run.down(host.name)
    assert traces(host) == []


def test_a_host_may_reboot_by_itself(web: hosts.Host) -> None:
    """A reboot asked for inside the host ends in a new boot with the same link."""
    before = web.boot_id
    web.run("systemctl --no-block reboot", check=False)
    web.wait_for(f"! grep -q {before} /proc/sys/kernel/random/boot_id", timeout=60)
    web.wait_booted()
    assert web.boot_id != before
    assert web.ssh_answers()


def test_commands_start_clean(web: hosts.Host) -> None:
    """A command sees no variable of the caller, starts in /, and its failure carries what it said."""
    assert web.run("pwd").stdout == "/\n"
    names = {line.partition("=")[0] for line in web.run(["env"]).stdout.splitlines()}
    assert names == {"PATH", "HOME", "LANG", "USER", "SHELL"}
    with pytest.raises(hosts.CommandFailed, match="no such thing") as failure:
        web.run("echo no such thing >&2; exit 7")
    assert failure.value.result.returncode == 7
    with pytest.raises(hosts.CommandTimeout):
        web.run("sleep 600 & sleep 601", timeout=1)
    assert web.run("ps -eo args").stdout.count("sleep 60") == 0


def test_files_go_both_ways(web: hosts.Host, tmp_path: pathlib.Path) -> None:
    """put and get keep every byte, and put keeps the mode."""
    source = tmp_path / "there"
    source.write_bytes(bytes(range(256)) * 100)
    source.chmod(0o750)
    web.put(source, "/var/lib/slotward/some/file")
    assert web.run("stat -c %a /var/lib/slotward/some/file").stdout == "750\n"
    web.get("/var/lib/slotward/some/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_host_reaches_the_controller_until_its_network_is_cut(web: hosts.Host) -> None:
    """A server on the controller's end serves the host; a cut stops that, commands still enter, and the link comes back."""
    handler = http.server.BaseHTTPRequestHandler
    handler.do_GET = lambda self: self.send_error(418)  # type: ignore[attr-defined]
    handler.log_message = lambda *_: None  # type: ignore[method-assign]
    with http.server.HTTPServer((web.controller_address, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        script = (
            f"import requests; print(requests.get('http://controller:{server.server_port}/', timeout=3).status_code)"
        )
        assert web.run(["python3", "-c", script]).stdout == "418\n"
        web.network_cut()
        assert web.run(["python3", "-c", script], check=False).returncode == 1
        assert not web.ssh_answers()
        assert "no-carrier" in web.run("ip link show host0").stdout.lower()
        web.network_restore()
        assert web.ssh_answers()
        assert web.run(["python3", "-c", script]).stdout == "418\n"
        server.shutdown()


def test_two_hosts_do_not_see_each_others_services(run: hosts.Run, web: hosts.Host) -> None:
    """Each container has a control group of its own, so stopping a service in one leaves the other's alone."""
    other = run.up("other", "bookworm")
    for host in (web, other):
        host.run("systemd-run --unit=same sleep 1000")
    web.run("systemctl stop same")
    assert other.run("systemctl is-active same").stdout == "active\n"
    assert web.link.number != other.link.number
    run.down("other")


def test_a_small_disk_can_be_filled(run: hosts.Run, tmp_path: pathlib.Path) -> None:
    """With --disk, /opt/slotward is a filesystem that runs out of space and inodes; it and binds survive a cut."""
    (tmp_path / "shown").write_text("from the controller", encoding="ascii")
    host = run.up("small", "bookworm", disk_mb=16, inodes=64, binds=[f"{tmp_path}:/mnt/here"])
    host.run("findmnt -no FSTYPE /opt/slotward | grep -qx ext4")
    assert host.run("i=0; while : > /opt/slotward/$i; do i=$((i+1)); done; echo $i", check=False).stdout < "99"
    host.run("rm /opt/slotward/*")
    full = host.run("head -c 100M /dev/zero > /opt/slotward/big", check=False)
    assert "No space left" in full.stderr
    host.write("/etc/slotward/x", "the root has room")
    host.cut()
    host.boot()
    host.run("test -s /opt/slotward/big && rm /opt/slotward/big")
    assert host.read("/mnt/here/shown") == "from the controller"
    run.down("small")
    assert traces(host) == []
    assert str(host.directory) not in process.tool("losetup", "--list", "--output", "BACK-FILE")


def test_without_a_disk_the_slots_are_on_a_plain_filesystem(web: hosts.Host) -> None:
    """The product refuses slots on overlay and tmpfs, so the hosts must not have them there."""
    kinds = web.run(
        "mkdir -p /opt/slotward /etc/slotward && stat -f -c %T / /opt/slotward /etc/slotward /usr/local/bin"
    ).stdout
    assert not {"overlayfs", "tmpfs"} & set(kinds.split())
    assert web.run("awk '$5 != \"/\" && $5 ~ /slotward/' /proc/self/mountinfo").stdout == ""


def test_a_killed_run_is_removed_by_the_next(tmp_path: pathlib.Path) -> None:
    """After SIGKILL of the owner the container still runs; whoever comes next removes all of it."""
    script = (
        "import hosts, time\n"
        "run = hosts.Run('killed')\n"
        "run.up('orphan', 'bookworm', disk_mb=16)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        orphan = hosts.Host("killed", "orphan")
        assert reap.leftovers() == []
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert orphan.running
    keeper = orphan.record.keeper
    done = subprocess.run([HERE / "hostctl", "clean"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "removed killed\n"
    assert keeper is not None
    assert not keeper.alive()
    assert traces(orphan) == []


def test_a_boot_that_hangs_is_an_error_with_the_console(run: hosts.Run) -> None:
    """A host whose boot never ends is refused within the time that was given, and can still be removed."""
    host = run.up("stuck", "bookworm")
    host.write("/etc/systemd/system/stuck.service", "[Service]\nType=oneshot\nExecStart=sleep infinity\n")
    host.run("systemctl add-wants multi-user.target stuck.service")
    host.poweroff()
    began = time.monotonic()
    with pytest.raises(
        hosts.HostError, match=r"(?s)did not boot within 4 s \(state: starting\); console:\n.*sshd?.service"
    ):
        host.boot(timeout=4)
    assert time.monotonic() - began < 30
    run.down("stuck")
    assert traces(host) == []


def test_the_command_covers_a_hosts_life(tmp_path: pathlib.Path) -> None:
    """hostctl makes, lists, enters, cuts, boots and removes a host, and says the same thing twice without harm."""
    environment = {**os.environ, "SLOTWARD_HOSTS_RUN": "by-hand", "SLOTWARD_HOSTS_OWNER": str(os.getpid())}

    def hostctl(*words: str) -> str:
        command = [str(HERE / "hostctl"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True).stdout

    first = hostctl("up", "one", "--suite", "trixie")
    assert hostctl("up", "one", "--suite", "trixie") == first
    assert hostctl("exec", "one", "--", "hostname") == hostctl("ssh", "one", "--", "hostname") == "one\n"
    hostctl("cut", "one")
    row = next(row for row in json.loads(hostctl("list", "--json")) if row["run"] == "by-hand")
    assert (row["name"], row["suite"], row["state"]) == ("one", "trixie", "down")
    hostctl("boot", "one")
    hostctl("reboot", "one")
    hostctl("inventory", "--output", str(tmp_path / "hosts.yml"))
    assert row["address"] in (tmp_path / "hosts.yml").read_text(encoding="utf-8")
    hostctl("poweroff", "one")
    hostctl("down", "--all")
    assert not records.run_dir("by-hand").exists()


def test_without_overlays_a_host_is_a_whole_copy(run: hosts.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel or the disk cannot overlay, the host boots from a copy of the whole base tree."""
    monkeypatch.setattr(tree, "can_overlay", lambda _: False)
    host = run.up("whole", "bookworm")
    assert host.record.base is None
    assert host.run("stat -f -c %T /usr/lib").stdout != "overlayfs\n"
    assert (host.root / "usr/lib/systemd/systemd").exists()
    run.down("whole")
    assert traces(host) == []


@pytest.mark.parametrize("after", [0.2, 0.8, 1.4, 2.0])
def test_a_killed_up_leaves_nothing_that_stops_the_next(tmp_path: pathlib.Path, after: float) -> None:
    """Wherever 'up' is killed, doing it again gives a host, and 'down' removes all of it."""
    environment = {**os.environ, "SLOTWARD_HOSTS_RUN": "cut-short"}
    environment.pop("SLOTWARD_HOSTS_OWNER", None)
    words = [str(HERE / "hostctl"), "up", "x", "--disk", "8"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as first:
        time.sleep(after)
        first.kill()
    subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, timeout=300, check=True)
    host = hosts.Host("cut-short", "x")
    assert host.run("findmnt -no FSTYPE /opt/slotward").stdout == "ext4\n"
    subprocess.run([HERE / "hostctl", "down", "--all"], env=environment, timeout=60, check=True)
    assert traces(host) == []
