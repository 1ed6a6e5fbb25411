# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says where a configuration is not to be believed: that, what makes it root's again, and nothing false beside it."""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import Dict, List

import pytest

from slotcore import config as configs
from slotcore import settle
from slotward import answers, doctor, doctor_host, doctor_mode, doctor_trust, own
from slotward import doctor_states as states

NOBODY = 65534
PRODUCT = 'unit = "%s.service"\nentrypoint = "%s/toyd"\nslots_dir = "%s/slots"\n'

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="doctor is root's")


@pytest.fixture(name="config")
def _config(tmp_path: pathlib.Path) -> pathlib.Path:
    """An agent's configuration, with a product beside it."""
    (tmp_path / "products.d").mkdir(0o755)
    (tmp_path / "products.d").chmod(0o755)
    path = tmp_path / "config.toml"
    path.write_text("")
    product = tmp_path / "products.d" / "toyd.toml"
    product.write_text(PRODUCT % ("toyd", tmp_path, tmp_path))
    for each in (path, product):
        each.chmod(0o644)
    return path


def asked(config: pathlib.Path, product: str = "toyd") -> answers.Answer:
    """Doctor's answer."""
    return doctor.run(argparse.Namespace(config=str(config), product=product, json=True))


def entries(found: List[states.Finding]) -> List[str]:
    """The states that are named."""
    return [one.entry for one in found if one.state != "ok"]


@needs_root
@pytest.mark.parametrize(
    ("mode", "owner", "run"),
    [
        (0o666, 0, "chmod go-w {0}"),
        (0o644, NOBODY, "chown root {0}"),
        (0o664, NOBODY, "chown root {0} && chmod go-w {0}"),
    ],
)
def test_I6_a_product_s_file_of_others_is_a_finding_as_any_other(
    config: pathlib.Path, mode: int, owner: int, run: str
) -> None:
    """Findings and status 1, not a refusal without any."""
    path = config.parent / "products.d" / "toyd.toml"
    os.chown(path, owner, 0)
    path.chmod(mode)
    answer = asked(config)
    assert (answer.exit, answer.json["state"], answer.json["product"]) == (answers.FAILED, "failed", "toyd")
    (found,) = answer.json["checks"]
    assert (found["state"], found["entry"]) == ("fail", states.BAD_CONFIG)
    assert found["run"] == f"look through {path}, then {run.format(path)}"
    assert str(path) in found["message"]
    assert own.mends(str(config)) == ""


@needs_root
def test_a_product_s_file_without_a_unit_is_a_finding_too(config: pathlib.Path) -> None:
    """There is nothing to look at then, and that is said."""
    path = config.parent / "products.d" / "toyd.toml"
    path.write_text("")
    answer = asked(config)
    assert answer.exit == answers.FAILED
    assert {one["run"] for one in answer.json["checks"]} == {f"edit {path}, then `slotward config check`"}


@needs_root
def test_a_directory_on_the_way_is_named_with_what_mends_it(config: pathlib.Path) -> None:
    """The file itself is root's then."""
    config.parent.chmod(0o777)
    assert own.mends(str(config)) == f"chmod go-w {config.parent}"
    config.parent.chmod(0o755)
    assert own.mends(str(config)) == ""


def test_keys_of_a_configuration_that_does_not_count_are_not_said_to_be_none() -> None:
    """It pins them, maybe; `no-release-keys` would be false."""
    trust = {"source": "configuration", "sequence": 0, "withdrawn": False}
    answer: Dict[str, object] = {
        "pins": 0,
        "threshold": 1,
        "trust": trust,
        "config_problems": [],
        "warnings": [],
        "failed": [],
    }
    answer.update(product="slotward", trial=None, broken=None)
    assert entries(doctor_trust.findings(answer, "/x")) == [states.NO_RELEASE_KEYS]
    answer["config_problems"] = ["/x: cannot read it: it may be written by others (mode 0666)"]
    assert entries(doctor_trust.findings(answer, "/x")) == [states.BAD_CONFIG]


@pytest.mark.parametrize(("product", "hint"), [("slotward", "agent_release_pins"), ("toyd", "product_release_pins")])
def test_the_variable_that_is_named_is_of_the_product_s_own_role(product: str, hint: str) -> None:
    """The agent's pins are not another product's."""
    assert states.variable(product, "release_pins") == f"(role {hint.partition('_')[0]}: {hint})"


@needs_root
def test_the_mode_is_not_judged_by_a_configuration_that_does_not_count(config: pathlib.Path) -> None:
    """Its defaults say root mode, which a host in another mode is not in."""
    config.chmod(0o666)
    found = doctor_mode.told(own.load(str(config)), settle.State(None, None))
    assert entries(found) == [states.BAD_CONFIG]


def test_C4_a_product_is_told_of_the_other_that_names_the_same(
    config: pathlib.Path, monkeypatch: pytest.MonkeyPatch, systemctl: None
) -> None:
    """Both of them are, and the agent is not: it names nothing twice."""
    other = config.parent / "products.d" / "toye.toml"
    other.write_text(PRODUCT % ("toyd", config.parent, config.parent))
    other.chmod(0o644)
    answer = {"unit": {"name": "toyd.service", "active": "active"}}
    for name, twin in (("toyd", "toye"), ("toye", "toyd")):
        setup = own.asked(argparse.Namespace(config=str(config), product=name))
        found = doctor_host.findings(setup, settle.State(None, None), answer)
        said = [one.message for one in found if one.entry == states.PRODUCT_CONFLICT]
        assert len(said) == 3
        assert said[0] == f"unit of {name} is toyd.service, which is {twin}'s"
    assert configs.load(b"", "/x")[1] == ()
    setup = own.load(str(config))
    assert states.PRODUCT_CONFLICT not in entries(doctor_host.findings(setup, settle.State(None, None), answer))
