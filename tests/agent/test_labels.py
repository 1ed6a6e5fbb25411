# SPDX-License-Identifier: GPL-3.0-or-later
"""SELinux labels, allow-lists and read-only systems, told before anything is switched.

No host with SELinux or fapolicyd was at hand: the kernel's sign of SELinux is a directory of the test, restorecon, systemctl
and systemd-run are small programs on PATH; the label itself is a real extended attribute of a real file.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
from typing import Callable

import pytest

from slotcore import codes, ops
from slotcore import product as products
from slotward import allowlist, effects, immutable, labels, preflight

CONTENT = b"#!/bin/sh\necho 1.1.0\n"
USR = b"system_u:object_r:usr_t:s0\0"

Fake = Callable[[str, str], None]


def may_label() -> bool:
    """Whether labels can be written here at all."""
    if os.geteuid() != 0:
        return False
    path = pathlib.Path("/tmp") / ("label-%d" % os.getpid())
    path.touch()
    try:
        os.setxattr(path, labels.ATTRIBUTE, USR)
    except OSError:
        return False
    finally:
        path.unlink()
    return True


pytestmark = pytest.mark.skipif(
    not may_label(), reason="writes security labels: needs root and a file system that has them"
)


@pytest.fixture(name="fake")
def _fake(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts a small Python program on PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", "%s:%s" % (directory, os.environ["PATH"]))

    def make(name: str, body: str) -> None:
        path = directory / name
        path.write_text("#!%s\nimport os, sys\n%s\n" % (sys.executable, body))
        path.chmod(0o755)

    return make


@pytest.fixture(name="selinux")
def _selinux(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A kernel that says it has SELinux."""
    root = tmp_path / "selinux"
    root.mkdir()
    (root / "enforce").write_text("1")
    monkeypatch.setattr(labels, "SELINUXFS", str(root))
    return root


def labelling(kind: str) -> str:
    """A restorecon that gives this type to the last of its arguments."""
    return (
        "assert sys.argv[1] == '-F', sys.argv\n"
        "os.setxattr(sys.argv[-1], 'security.selinux', b'system_u:object_r:%s:s0\\0')" % kind
    )


@pytest.fixture(name="slot")
def _slot(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "slots" / "a"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    path.chmod(0o755)
    return path


def refused(slot: pathlib.Path, like: pathlib.Path) -> str:
    """The refusal to start from this slot."""
    with pytest.raises(codes.Refused) as caught:
        labels.give(str(slot), str(like))
    assert caught.value.code == codes.NO_LABEL
    return caught.value.text


def test_without_selinux_nothing_is_done(slot: pathlib.Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even restorecon is looked for."""
    monkeypatch.setattr(labels, "SELINUXFS", "/nowhere")
    fake("restorecon", "sys.exit('not asked for')")
    labels.give(str(slot), "/nowhere")
    assert labels.type_of(str(slot)) == ""


@pytest.mark.usefixtures("selinux")
def test_D14_the_policy_labels_the_slot(slot: pathlib.Path, fake: Fake) -> None:
    """D14: the file has the policy's label before anything starts from it, whatever it had before."""
    os.setxattr(slot, labels.ATTRIBUTE, b"unconfined_u:object_r:user_tmp_t:s0\0")
    fake("restorecon", labelling("bin_t"))
    labels.give(str(slot), "/nowhere")
    assert labels.type_of(str(slot)) == "bin_t"


@pytest.mark.usefixtures("selinux")
@pytest.mark.parametrize(
    "kind", ["unlabeled_t", "tmp_t", "user_tmp_t", "user_home_t", "admin_home_t", "default_t", "file_t"]
)
def test_D14_a_label_from_which_nothing_starts_is_refused(slot: pathlib.Path, fake: Fake, kind: str) -> None:
    """D14: what the policy gave is read back; the refusal names it and the command that tells the policy."""
    fake("restorecon", labelling(kind))
    text = refused(slot, pathlib.Path("/nowhere"))
    assert "%s has the SELinux type %s, from which no service starts" % (slot, kind) in text
    assert "semanage fcontext -a -t bin_t '%s(/.*)?'" % slot.parent in text


@pytest.mark.usefixtures("selinux")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "sys.exit('restorecon: Operation not supported')",
            "restorecon ended with status 1: restorecon: Operation not supported",
        ),
        ("sys.exit(3)", "restorecon ended with status 3: no output"),
        ("import time; time.sleep(30)", "restorecon did not end within 0.3 s"),
    ],
)
def test_D14_a_restorecon_that_fails_is_told(
    slot: pathlib.Path, fake: Fake, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    """D14: even where the label looks right, nobody vouches for it."""
    monkeypatch.setattr(labels, "TIMEOUT_S", 0.3)
    os.setxattr(slot, labels.ATTRIBUTE, USR)
    fake("restorecon", body)
    assert said in refused(slot, pathlib.Path("/nowhere"))


@pytest.mark.usefixtures("selinux")
def test_D14_the_label_of_what_starts_today_will_do(
    slot: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D14: no restorecon on the host, or an odd label that an administrator chose: what starts today has shown that it does."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    entry, old = tmp_path / "entry", tmp_path / "old"
    old.write_bytes(CONTENT)
    entry.symlink_to(old)
    for path in (old, slot):
        os.setxattr(path, labels.ATTRIBUTE, USR)
    labels.give(str(slot), str(entry))
    os.setxattr(old, labels.ATTRIBUTE, b"system_u:object_r:bin_t:s0\0")
    assert "there is no restorecon" in refused(slot, entry)


@pytest.mark.usefixtures("selinux")
def test_D14_a_slot_is_labelled_while_it_is_written(slot: pathlib.Path, tmp_path: pathlib.Path, fake: Fake) -> None:
    """D14: by the copy itself, so an adopted program has its label before the entrypoint leads to it; a wrong one leaves no file."""
    product = products.Product("slotward", "slotward.service", str(tmp_path / "entry"), str(slot.parent))
    new = str(slot.parent / "b.tmp")
    copy = ops.Copy(path=new, source="staged", size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())
    fake("restorecon", labelling("usr_t"))
    with open(slot, "rb") as file:
        effects.executor_for(product, {"staged": file.fileno()}).apply((copy,), "test")
        assert labels.type_of(new) == "usr_t"
        fake("restorecon", labelling("tmp_t"))
        with pytest.raises(codes.Refused) as caught:
            effects.executor_for(product, {"staged": file.fileno()}).apply((copy,), "test")
    assert caught.value.code == codes.NO_LABEL
    assert not os.path.lexists(new)


@pytest.mark.usefixtures("selinux")
def test_D14_a_slot_is_labelled_under_its_own_name_before_the_switch(
    slot: pathlib.Path, tmp_path: pathlib.Path, fake: Fake
) -> None:
    """D14: the check before a switch asks the policy for the slot's own name, also when nothing was copied."""
    product = products.Product("slotward", "slotward.service", str(tmp_path / "entry"), str(slot.parent))
    fake("restorecon", labelling("bin_t"))
    effects.executor_for(product, {}).apply((ops.Check(str(slot), "1.1.0"),), "test")
    assert labels.type_of(str(slot)) == "bin_t"


# --- allow-lists ---


def systemctl(fake: Fake, state: str) -> None:
    """A systemctl that knows one unit."""
    fake(
        "systemctl",
        "print('ActiveState=%s' if sys.argv[-1] == 'fapolicyd.service' else 'ActiveState=inactive')" % state,
    )


def test_D15_a_probe_that_an_allow_list_stops_is_told_as_such(tmp_path: pathlib.Path, fake: Fake) -> None:
    """D15: before the first byte, with both ways out; without the daemon it is what it was."""
    slots = tmp_path / "slots"
    slots.mkdir()
    stopped = preflight.Probe(True, False, 1, "Operation not permitted")
    place = preflight.Filesystem(str(slots), 1, "ext4", 1 << 40, None, False, False)
    refusal = preflight.judge(preflight.Facts(place, place, stopped, allow_list=True), 5)
    assert refusal is not None
    assert refusal.code == codes.ALLOW_LIST
    assert "allow perm=execute all : dir=%s/" % slots in refusal.text
    assert "fapolicyd-cli --file add %s/ && fapolicyd-cli --update" % slots in refusal.text
    without = preflight.judge(preflight.Facts(place, place, stopped), 5)
    assert without is not None
    assert without.code == codes.NOEXEC


@pytest.mark.parametrize(("state", "told"), [("active", True), ("inactive", False)])
def test_D15_the_daemon_is_asked_for_only_when_the_probe_could_not_run(
    tmp_path: pathlib.Path, fake: Fake, monkeypatch: pytest.MonkeyPatch, state: str, told: bool
) -> None:
    """D15: a directory that the allow-list lets run is no problem, whoever is active."""
    systemctl(fake, state)
    assert not preflight.look(str(tmp_path), str(tmp_path)).allow_list
    monkeypatch.setattr(preflight, "PROBE", b"#!/bin/sh\nexit 1\n")
    assert preflight.look(str(tmp_path), str(tmp_path)).allow_list is told


def test_D15_a_host_without_systemctl_has_no_allow_list(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D15: who cannot be asked does not refuse."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not allowlist.active()


def test_D15_a_smoke_test_that_could_not_be_executed_is_no_failure_of_the_release(
    slot: pathlib.Path, fake: Fake, tmp_path: pathlib.Path
) -> None:
    """D15: systemd says 203; with the daemon active the code is its own, and the version is not remembered as failed."""
    product = products.Product(
        "slotward", "slotward.service", str(tmp_path / "entry"), str(slot.parent), smoke_argv=("version",)
    )
    fake("systemd-run", "sys.exit(203)")
    for state, code in (("active", codes.ALLOW_LIST), ("inactive", codes.SMOKE_TEST_FAILED)):
        systemctl(fake, state)
        with pytest.raises(codes.Refused) as caught:
            effects.smoke_test(product, str(slot), "1.1.0")
        assert caught.value.code == code


# --- read-only systems ---


READ_ONLY = """
import sys
from slotcore import codes
from slotward import immutable
immutable.ROOT = sys.argv[1]
immutable.check([sys.argv[1] + "/writable/x"])
try:
    immutable.check([sys.argv[1] + "/writable/x", sys.argv[1] + "/usr/local/lib/slotward/guard"])
except codes.Refused as error:
    print(error.code, error.text)
"""


@pytest.mark.parametrize(
    ("mark", "advice"),
    [
        ("etc/NIXOS", "this is NixOS, whose system directories come from its configuration"),
        ("run/ostree-booted", "this host's system is an image (ostree)"),
        ("run/transactional-update", "run `slotward setup` in one"),
        ("nothing", "mount it writable, or set [update] entrypoint and slots_dir"),
    ],
)
def test_D9_D11_a_read_only_system_is_told_with_the_way_out(tmp_path: pathlib.Path, mark: str, advice: str) -> None:
    """D9, D11: before the first file, which one, where, and what such a host's administrator does."""
    for name in ("usr", "writable", os.path.dirname(mark) or "."):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / mark).touch()
    root = pathlib.Path(__file__).parents[2]
    paths = os.pathsep.join(str(root / place) for place in ("plugins/module_utils", "agent/src"))
    script = 'mount -t tmpfs -o ro none "$1/usr" && exec "$2" -B -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", tmp_path, sys.executable, READ_ONLY],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "read-only cannot write %s/usr/local/lib/slotward/guard: %s/usr is on a read-only" % (tmp_path, tmp_path)
    )
    assert advice in done.stdout


def test_places_that_can_be_written_are_no_problem(tmp_path: pathlib.Path) -> None:
    """Also those that do not exist yet."""
    immutable.check([str(tmp_path / "new" / "deep" / "file")])
