# SPDX-License-Identifier: GPL-3.0-or-later
"""A daemon that is not the agent: adopted, upgraded, taken back by the guard, given back (docs/design/products.md, sections 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import node as nodes
from support import releases, toys

pytestmark = pytest.mark.hosts
TRACES = "find /etc /usr/local /opt -name .cache -prune -o -printf '%p %l %m %s\\n' 2>/dev/null | grep -v '/etc/mtab\\|audit' | sort"


@pytest.fixture
def toy(node: nodes.Node, shop: releases.Workshop) -> Iterator[toys.Toy]:
    """A toy that runs on a host with the agent, described and not adopted."""
    with toys.running(node, shop.release("1.0.0", 1), adopted=False) as made:
        yield made


@pytest.mark.host
def test_the_life_of_a_product(toy: toys.Toy) -> None:
    """Adopted with consent, upgraded, a release that crashes taken back by the guard, and given back with no trace left."""
    toy.node.sh(f"rm {toy.file}")
    before = toy.node.sh(TRACES)
    toy.describe()
    refused = toy.slotward("setup")
    assert (refused.exit, refused.code) == (3, "adopt-needs-consent")
    assert f"--product {toy.name}" not in refused.json["code"]
    pid = toy.node.unit(toy.unit).main_pid
    planned = toy.slotward("setup", "--adopt", "--check")
    assert planned.json["changed"] is True
    adopted = toy.slotward("setup", "--adopt")
    assert (adopted.exit, adopted.json["version"]) == (0, "1.0.0"), adopted
    assert adopted.json["changes"] == planned.json["changes"]
    again = toy.slotward("setup", "--adopt")
    assert (again.exit, again.json["changed"]) == (0, False)
    assert toy.node.unit(toy.unit).main_pid == pid

    toy.upgraded(toy.release("1.1.0", 2))
    found = toy.update()
    assert (found["version"], found["floor"], found["slots"]["good"]) == ("1.1.0", 2, found["slots"]["current"])
    toy.on_trial(toy.release("1.2.0", 3, "exit 1"))
    assert toy.goes_back(["crash-loop"], 15)["to"] == "1.2.0"
    assert (toy.update()["version"], toy.update()["failed"][0]["version"]) == ("1.1.0", "1.2.0")
    refused = toy.begin(toy.release("1.2.0", 3, "exit 1"))
    assert (refused.code, refused.json["retry"]) == (
        "failed-before",
        f"slotward update --product {toy.name} --clear-failed 1.2.0",
    )

    listed = {one["name"]: one for one in toy.node.slotward("products").json["products"]}
    assert set(listed) == {"slotward", toy.name}
    assert (listed[toy.name]["version"], listed[toy.name]["trial_pending"]) == ("1.1.0", False)
    pid = toy.node.unit(toy.unit).main_pid
    removed = toy.slotward("remove", "--purge")
    assert removed.exit == 0, removed
    assert toy.node.unit(toy.unit).main_pid == pid
    after = toy.node.sh(TRACES)
    changed = set(before.splitlines()) ^ set(after.splitlines())
    assert {line.split()[0] for line in changed} <= {toy.entrypoint, "/etc/slotward/products.d"}, changed
    assert toy.node.sh(f"{toy.entrypoint} version; test ! -L {toy.entrypoint}") == "toy 1.1.0"


def test_a_trial_of_one_product_touches_no_other(toy: toys.Toy) -> None:
    """One lock each: while the toy is on trial the agent itself can be upgraded, and the other way round."""
    shop = toy.node.shop
    assert toy.slotward("setup", "--adopt").exit == 0
    trial = toy.on_trial(toy.release("1.1.0", 2))
    toy.node.upgraded(shop.release("1.1.0", 2))
    assert toy.update()["trial"]["id"] == trial
    assert toy.slotward("confirm", "--id", trial, "--wait", "15").json["state"] == "confirmed"
    assert (toy.node.update()["version"], toy.update()["version"]) == ("1.1.0", "1.1.0")


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"top": 'colour = "red"'}, "bad-config", "unknown key"),
        (
            {"top": 'slots_dir = "/opt/slotward/slotward"'},
            "product-conflict",
            "is /opt/slotward/slotward, which is slotward's",
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused(toy: toys.Toy, change: dict[str, str], code: str, said: str) -> None:
    """Every problem with its place; the daemon runs on, and nothing was written."""
    toy.describe(**change)
    answer = toy.slotward("setup", "--adopt")
    assert answer.code == code, answer
    assert said in answer.message
    assert toy.node.sh(f"test -e {toy.slots} || echo none") == "none"
    assert toy.node.unit(toy.unit).active == "active"


def test_the_unit_must_start_the_entrypoint(toy: toys.Toy) -> None:
    """Otherwise no release would ever run, and every trial would go back."""
    toy.node.sh(
        f"cp {toy.entrypoint} /usr/local/sbin/other; sed -i s,{toy.entrypoint},/usr/local/sbin/other, /etc/systemd/system/{toy.unit}; systemctl daemon-reload"
    )
    answer = toy.slotward("setup", "--adopt")
    assert (answer.code, "starts /usr/local/sbin/other, not the entrypoint" in answer.message) == (
        "entrypoint-elsewhere",
        True,
    )
    toy.node.sh("rm /usr/local/sbin/other")


@pytest.mark.parametrize("consent", [False, True])
def test_a_package_s_file_is_diverted(toy: toys.Toy, consent: bool) -> None:
    """Told without consent; with it the package's next version goes beside, and removal gives the package its place back (C2)."""
    node = toy.node
    build = (
        "d=/var/tmp/toypkg; rm -rf $d; mkdir -p $d/DEBIAN $d/usr/local/sbin; "
        "printf 'Package: toypkg\\nVersion: {version}\\nArchitecture: all\\nMaintainer: x <x@x.example>\\nDescription: toy\\n' >$d/DEBIAN/control; "
        "cp {program} $d/usr/local/sbin/toy; dpkg-deb --root-owner-group -b $d /var/tmp/toypkg.deb >/dev/null && dpkg -i /var/tmp/toypkg.deb"
    )
    node.sh(f"cp {toy.entrypoint} /var/tmp/toy-1; {build.format(version='1', program='/var/tmp/toy-1')}")
    try:
        refused = toy.slotward("setup", "--adopt")
        assert (refused.code, "belongs to the package toypkg (dpkg)" in refused.message) == ("package-owns-path", True)
        if not consent:
            return
        assert toy.slotward("setup", "--adopt", "--divert").exit == 0
        assert toy.slotward("setup", "--adopt", "--divert").json["changed"] is False
        toy.upgraded(toy.release("1.1.0", 2))
        node.host.write("/var/tmp/toy-3", toy.program("3.0.0"), 0o755)
        node.sh(build.format(version="3", program="/var/tmp/toy-3"))
        assert node.sh(f"{toy.entrypoint} version") == "toy 1.1.0"
        assert node.sh(f"{toy.entrypoint}.distrib version") == "toy 3.0.0"
        assert toy.slotward("remove").exit == 0
        assert (
            node.sh(
                f"{toy.entrypoint} version; dpkg-divert --list {toy.entrypoint}; ls {toy.entrypoint}.distrib 2>&1 | grep -c cannot"
            )
            == "toy 3.0.0\n1"
        )
    finally:
        node.sh(
            f"dpkg-divert --local --no-rename --remove {toy.entrypoint} >/dev/null 2>&1; dpkg -r --force-all toypkg >/dev/null 2>&1; rm -rf /var/tmp/toy*"
        )


def test_in_a_trial_nothing_is_set_up_or_removed(toy: toys.Toy) -> None:
    """It would be a crash of a good release, or a silent confirmation of a bad one (C6)."""
    assert toy.slotward("setup", "--adopt").exit == 0
    trial = toy.on_trial(toy.release("1.1.0", 2))
    for command in (("setup", "--adopt"), ("remove", "--purge")):
        answer = toy.slotward(*command)
        assert (answer.exit, answer.code) == (4, "trial-pending"), answer
    assert toy.slotward("rollback", "--id", trial).json["state"] == "rolled-back"


@pytest.mark.host
def test_what_recovery_advises_for_a_product_works(toy: toys.Toy) -> None:
    """Both links gone, a lost mode, a damaged slot and a file as it was downloaded, a trial with nothing sound behind it."""
    toy.describe()
    assert toy.slotward("setup", "--adopt").exit == 0
    release = toy.release("1.1.0", 2)
    toy.upgraded(release)
    slots = f"/opt/slotward/{toy.name}"
    home = toy.node.sh(f"readlink {slots}/good")

    toy.node.sh(f"rm {slots}/good {slots}/current")
    mended = toy.slotward("update", "--repair")
    assert (mended.exit, mended.json["left"]) == (0, []), mended
    assert toy.node.sh(f"readlink {slots}/good {slots}/current") == f"{home}\n{home}"

    toy.node.sh(f"chmod 644 {slots}/{home}")
    refused = toy.slotward("setup")
    assert (refused.exit, "is not executable" in refused.json["message"]) == (3, True), refused
    assert toy.slotward("update", "--repair").exit == 0
    toy.node.sh(f"systemctl restart {toy.unit}")
    assert toy.node.unit(toy.unit).active == "active"

    _target, artifact = toy.target(release)
    manifest = toy.node.put(release / "manifest.json")
    toy.node.sh(f"install -m 644 {artifact} /root/downloaded && : > {slots}/{home}")
    for name, how in (("1.0.0", ()), ("1.1.0", ("--manifest", manifest))):
        for check in (("--check",), ()):
            found = toy.slotward("setup", "--from", "/root/downloaded", *how, *check)
            assert found.exit == (3 if name == "1.0.0" else 0), found
    toy.node.sh(f"rm /root/downloaded; systemctl restart {toy.unit}")
    assert toy.update()["version"] == "1.1.0"

    toy.on_trial(toy.release("1.2.0", 3))
    good = toy.node.sh(f"readlink {slots}/good")
    toy.node.sh(f"cp -p {slots}/{good} /root/kept && : > {slots}/{good}")
    refused = toy.slotward("rollback")
    assert (refused.exit, refused.code) == (3, "digest-mismatch"), refused
    assert f"slotward rollback --product {toy.name} --force" in refused.json["message"]
    toy.node.sh(f"cat /root/kept > {slots}/{good}; rm /root/kept")
    assert toy.slotward("rollback").json["state"] == "rolled-back"
