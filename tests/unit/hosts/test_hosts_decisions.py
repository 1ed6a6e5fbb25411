# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host library decides, without root and without a host."""

from __future__ import annotations

import os
import pathlib

import pytest
from hosts import container, errors, fleet, inventory, network, process, recipe, records, requirements, tree

OWNER = process.ProcessId(10, 20, "boot")
STAT = "4711 (a ) b) S 1 4711 4711 0 -1 4194560 9 0 0 0 0 0 0 0 20 0 1 0 987654 1 2 3"
MOUNTINFO = """\
30 1 0:26 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,cpu
31 1 0:27 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
32 1 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
33 1 7:0 / /var/lib/x/root/opt rw shared:1 - ext4 /dev/loop0 rw
34 1 7:1 / /var/lib/x/root/opt/with\\040space rw shared:1 - ext4 /dev/loop1 rw
35 1 7:2 / /var/lib/xy rw - ext4 /dev/loop2 rw
"""


def test_the_lowest_free_number_is_taken() -> None:
    """Numbers start at 1, gaps are filled, and the end is an error with a way out."""
    assert network.lowest_free(set()) == 1
    assert network.lowest_free({1, 2, 4}) == 3
    assert network.lowest_free(set(range(254))) == 254
    with pytest.raises(errors.HostError, match="hostctl clean"):
        network.lowest_free(set(range(1, 255)))


def test_a_number_decides_all_names_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interface name fits the kernel's 15 characters, and the prefix can be moved elsewhere."""
    link = network.Link(254)
    assert (link.machine, link.interface) == ("sw254", "ve-sw254")
    assert len(link.interface) <= 15
    assert (link.subnet, link.controller, link.guest) == ("10.213.254.0/30", "10.213.254.1", "10.213.254.2")
    monkeypatch.setenv("SLOTWARD_HOSTS_NETWORK", "172.30")
    assert link.guest == "172.30.254.2"


def test_only_our_own_names_stand_for_numbers() -> None:
    """Links of other containers are nobody's."""
    assert network.numbers_of(["lo", "ve-sw7", "sw12", "ve-web", "sw", "sw9x", "xsw3", "host0"]) == {7, 12}


def test_a_process_name_with_brackets_does_not_shift_the_fields() -> None:
    """State, parent and start time are read after the last bracket."""
    assert process.parse_stat(STAT) == process.Stat("S", 1, 987654)


def test_a_reused_pid_is_another_process() -> None:
    """The same number with another start time or another boot is not alive."""
    me = process.identify(os.getpid())
    assert me.alive()
    assert not process.ProcessId(me.pid, me.start + 1, me.boot).alive()
    assert not process.ProcessId(me.pid, me.start, "another-boot").alive()


def test_a_zombie_is_gone() -> None:
    """A child that ended but was not waited for does not count, and waiting buries it."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    child = process.identify(pid)
    assert process.wait_gone(child, 10)
    assert process.read_stat(pid) is None


@pytest.mark.parametrize(
    ("run", "alive", "leftover"),
    [
        (records.Run("r", OWNER), True, False),
        (records.Run("r", OWNER), False, True),
        (records.Run("r", None), False, False),
        (None, True, True),
    ],
    ids=["owner lives", "owner is dead", "kept", "no record"],
)
def test_leftovers_are_runs_without_a_living_owner(run: records.Run | None, alive: bool, leftover: bool) -> None:
    """A run that is kept is never a leftover; one whose record was not finished always is."""
    assert records.is_leftover(run, lambda _: alive) is leftover


@pytest.mark.parametrize(("maker", "alive", "half"), [(None, False, False), (OWNER, True, False), (OWNER, False, True)])
def test_half_made_hosts_have_a_dead_maker(maker: process.ProcessId | None, alive: bool, half: bool) -> None:
    """A host that is being made now is left alone."""
    assert records.is_half_made(records.Host("a", "trixie", 1, maker=maker), lambda _: alive) is half
    assert records.is_half_made(None, lambda _: alive)


def test_records_come_back_as_they_were_written() -> None:
    """Every field of a record survives JSON."""
    host = records.Host("a", "trixie", 3, "/base", OWNER, None, 16, 64, ("/a:/b",))
    assert records.host_from_json(records.to_json(host)) == host
    run = records.Run("r", OWNER)
    assert records.run_from_json(records.to_json(run)) == run


@pytest.mark.parametrize("name", ["", "Web", "-a", "a-", "a_b", "a/b", "..", "a" * 33, "a\n"])
def test_names_are_plain(name: str) -> None:
    """A name is a host name and a file name, so nothing else passes."""
    with pytest.raises(errors.HostError, match="is no name"):
        records.check_name(name)


@pytest.mark.parametrize("bind", ["/a", "a:/b", "/:b", "/:/b:ro", ":/b"])
def test_binds_are_two_absolute_paths(bind: str) -> None:
    """A bind that systemd-nspawn would read otherwise is refused."""
    with pytest.raises(errors.HostError, match="is no bind"):
        fleet.check_binds([bind])


def test_a_bind_of_nothing_is_refused(tmp_path: pathlib.Path) -> None:
    """The path on this machine has to be there."""
    assert fleet.check_binds([f"{tmp_path}:/x"]) == (f"{tmp_path}:/x",)
    with pytest.raises(errors.HostError, match="does not exist"):
        fleet.check_binds([f"{tmp_path}/missing:/x"])


def test_mounts_below_a_tree_come_innermost_first() -> None:
    """Unmounting in this order works, names with spaces are read, and a neighbour with a longer name is not below."""
    below = tree.parse_mounts(MOUNTINFO, "/var/lib/x/")
    assert below == ["/var/lib/x/root/opt/with space", "/var/lib/x/root/opt"]
    assert tree.parse_mounts(MOUNTINFO, "/var/lib/x/root/opt") == ["/var/lib/x/root/opt/with space"]


def test_control_groups_are_found_where_they_are_mounted() -> None:
    """Both layouts are known: cgroup2 alone, and beside the old name=systemd."""
    assert container.parse_cgroup_mounts(MOUNTINFO) == {
        "unified": "/sys/fs/cgroup/unified",
        "legacy": "/sys/fs/cgroup/systemd",
    }
    assert container.parse_cgroup_mounts("3 1 0:2 / /sys/fs/cgroup rw - cgroup2 none rw") == {
        "unified": "/sys/fs/cgroup"
    }


def test_slots_are_never_overlaid() -> None:
    """Only parts of /usr that no product writes to are overlaid, and a whole copy has no overlay."""
    root = pathlib.Path("/h/root")
    points = [overlay.split(":")[2] for overlay in tree.overlays("/base", root)]
    assert points == ["/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share"]
    assert tree.overlays(None, root) == []
    assert tree.overlays("/base", root)[1] == "/base/usr/lib:/h/upper/usr-lib:/usr/lib"


def test_the_command_names_the_machine_by_its_number() -> None:
    """Two runs may use one host name, so the container's name is its number and the host name is apart."""
    words = container.command(records.Host("web", "trixie", 7, binds=("/a:/b",)), pathlib.Path("/h/root"))
    assert {"--machine=sw7", "--hostname=web", "--bind=/a:/b", "--register=no", "--keep-unit"} <= set(words)
    assert not any(word.startswith("--overlay") for word in words)


def test_the_console_is_shown_without_noise() -> None:
    """Colours, blank lines and progress bars go; what failed stays."""
    text = "\x1b[0;32m  OK  \x1b[0mone\r\n\r\n[*** ] Job x.service/start running (3s / no limit)\r\nfailed: two\r\n"
    assert container.readable(text, 5) == "  OK  one\nfailed: two"
    assert container.readable(text, 1) == "failed: two"


def test_a_recipe_names_its_tree() -> None:
    """Suites differ, and the same suite is found again."""
    names = {recipe.tree_name(suite) for suite in ("bullseye", "bookworm", "trixie")}
    assert len(names) == 3
    assert recipe.tree_name("trixie") in names


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("", recipe.DEFAULT_MIRROR),
        ("deb http://mirror.example/debian/ bookworm main", "http://mirror.example/debian"),
        ("# URIs: http://old/debian\nURIs: https://new/debian\n", "https://new/debian"),
        ("URIs: http://x/debian-security\nURIs: http://y/debian", "http://y/debian"),
        ("deb [signed-by=/k] https://packages.example/apt x main", recipe.DEFAULT_MIRROR),
    ],
)
def test_the_mirror_is_the_machines_own(sources: str, mirror: str) -> None:
    """Both forms of source lists are read; comments, security and foreign archives are not mirrors."""
    assert recipe.mirror_of(sources) == mirror


def test_proxies_are_shared_with_the_build() -> None:
    """Of the machine's apt settings only how to fetch goes into a build."""
    dump = (
        'Acquire::http::Proxy "http://p:3128";\nAcquire::Check-Date "false";\nAPT::Get "x";\nAcquire::Languages "";\n'
    )
    assert recipe.apt_options(dump) == ['Acquire::http::Proxy "http://p:3128"', 'Acquire::Check-Date "false"']


def test_missing_tools_are_named_by_package() -> None:
    """One package that has two missing tools is named once."""
    assert requirements.packages(lambda tool: tool.startswith("ssh")) == ["openssh-client"]
    assert requirements.packages(lambda _: False) == []


ENTRIES = [
    {"name": "b", "suite": "trixie", "ansible_host": "10.213.2.2", "ansible_user": "root"},
    {"name": "a", "suite": "bookworm", "ansible_host": "10.213.1.2", "ansible_user": "root"},
]


def test_an_inventory_groups_hosts_by_suite() -> None:
    """The text is exactly what Ansible gets to read."""
    assert inventory.render(ENTRIES) == (
        "---\nslotward_hosts:\n  children:\n"
        '    bookworm:\n      hosts:\n        "a":\n'
        '          ansible_host: "10.213.1.2"\n          ansible_user: "root"\n'
        '    trixie:\n      hosts:\n        "b":\n'
        '          ansible_host: "10.213.2.2"\n          ansible_user: "root"\n'
    )
    assert inventory.render([]) == "---\nslotward_hosts:\n  hosts: {}\n"


def test_an_inventory_is_yaml() -> None:
    """Names that YAML would read as something else stay names."""
    yaml = pytest.importorskip("yaml")
    text = inventory.render(
        [{"name": "1", "suite": "trixie", "x": 'a "b" \\ c'}, {"name": "no", "suite": "trixie", "x": ""}]
    )
    assert yaml.safe_load(text)["slotward_hosts"]["children"]["trixie"]["hosts"] == {
        "1": {"x": 'a "b" \\ c'},
        "no": {"x": ""},
    }
