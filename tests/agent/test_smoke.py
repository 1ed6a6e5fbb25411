# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke test of a program in its slot: what is remembered of a version is never one bad moment of the host."""

from __future__ import annotations

import pathlib

import pytest

from slotcore import codes
from slotcore import product as products
from slotward import effects, program_facts

SAYS = "#!/bin/sh\necho slotward 1.1.0\n"
ONCE = '#!/bin/sh\n[ -e "$0.tried" ] || { : >"$0.tried"; %s; }\necho slotward 1.1.0\n'
NEVER = '#!/bin/sh\necho again >>"$0.tried"\nexit 3\n'


def tried(top: pathlib.Path, program: str) -> str:
    """Smoke-test that program; the code of the refusal, "" when there is none."""
    path = top / "b"
    path.write_text(program, encoding="ascii")
    path.chmod(0o755)
    product = products.Product("demo", "demo.service", str(top / "entry"), str(top), smoke_argv=("version",))
    try:
        effects.smoke_test(product, str(path), "1.1.0")
    except codes.Refused as error:
        return error.code
    return ""


@pytest.mark.parametrize("moment", ["exit 2", "kill -9 $$", "echo cannot read; exit"])
def test_one_bad_moment_is_no_property_of_the_bytes(tmp_path: pathlib.Path, systemctl: None, moment: str) -> None:
    """A read error, a kill, an answer that was cut: what passes the second time is not remembered as failed."""
    assert tried(tmp_path, ONCE % moment) == ""
    assert (tmp_path / "b.tried").exists()


def test_what_fails_twice_is_refused_and_what_passes_runs_once(tmp_path: pathlib.Path, systemctl: None) -> None:
    """Twice and no more."""
    assert tried(tmp_path, NEVER) == codes.SMOKE_TEST_FAILED
    assert (tmp_path / "b.tried").read_text() == "again\nagain\n"
    assert tried(tmp_path, SAYS) == ""
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len([line for line in calls if line.startswith("systemd-run")]) == 3


@pytest.mark.parametrize(
    "wrong", ["echo slotward 1.1.0; exit 9", "echo slotward 1.2.0", "echo slotward 1.1.0-rc1", "echo other"]
)
def test_a_release_ends_well_and_says_its_own_version(tmp_path: pathlib.Path, systemctl: None, wrong: str) -> None:
    """Neither the right words from a program that fails, nor other words from one that does not."""
    assert tried(tmp_path, "#!/bin/sh\n%s\n" % wrong) == codes.SMOKE_TEST_FAILED


def test_what_hangs_is_not_waited_for_twice(
    tmp_path: pathlib.Path, systemctl: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that took its time will take it again."""
    monkeypatch.setattr(effects, "SMOKE_TIMEOUT_S", 0)
    assert tried(tmp_path, NEVER) == codes.SMOKE_TEST_FAILED
    assert (tmp_path / "b.tried").read_text() == "again\n"


def test_a_bus_that_is_gone_is_no_property_of_the_bytes(tmp_path: pathlib.Path, systemctl: None) -> None:
    """systemd-run fails for itself: tried again later, and nothing is remembered of the release."""
    (tmp_path / "fail-systemd-run").write_text("1")
    with pytest.raises(codes.Retryable, match="Failed to start transient service unit") as caught:
        tried(tmp_path, SAYS)
    assert caught.value.code == codes.SYSTEMD_FAILED


def test_a_configuration_check_that_never_ran_refuses_nothing(tmp_path: pathlib.Path, systemctl: None) -> None:
    """Nor does it count as an answer of the product's."""
    product = products.Product("demo", "demo.service", str(tmp_path / "entry"), str(tmp_path), config_check=("check",))
    (tmp_path / "fail-systemd-run").write_text("1")
    with pytest.raises(codes.Retryable) as caught:
        program_facts.demand_config(product, str(tmp_path / "b"), "1.1.0")
    assert caught.value.code == codes.SYSTEMD_FAILED
