# SPDX-License-Identifier: GPL-3.0-or-later
"""Each key explained: from the one table, with the value in force and where it was set."""

from __future__ import annotations

from typing import Dict, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import config, config_explain, config_keys, product_sections, product_table

TEXT = """\
log_level = "debug"

[update]
rollback_grace = 3
release_threshold = 2
max_boots = 12
proxy = "http://user:secret@proxy.example:3128"
surprise = 1
"""


def by_name(text: Union[str, bytes, None]) -> Dict[str, config_explain.Explained]:
    """The explanations by key."""
    return {one.key: one for one in config_explain.explain(text, "f")}


def test_every_key_of_the_table_is_explained_in_its_order() -> None:
    """With the words of the table; without a file each has its default and was set nowhere."""
    found = config_explain.explain(None, "f")
    assert [(one.section, one.key, one.meaning) for one in found] == [
        (key.section, key.name, key.meaning) for key in config.KEYS
    ]
    for one, key in zip(found, config.KEYS):
        assert one.value == config_keys.describe(key)
        assert (one.current, one.set_at, one.problem) == (one.default, "", "")
    assert by_name(None)["trial_length_s"].default == "120"
    assert by_name(None)["release_pins"].default == by_name(None)["ca_file"].default == ""
    assert by_name(None)["enabled"].default == "true"
    assert by_name(None)["allowed_channels"].default == '"stable"'


def test_a_value_says_where_it_was_set() -> None:
    """File and line; what has a problem counts as not set, and says why."""
    found = by_name(TEXT)
    assert found["log_level"][5:] == ('"debug"', "f:1", "")
    assert found["rollback_grace"][4:] == ("1", "3", "f:4", "")
    assert found["max_boots"][5:] == (
        "3",
        "",
        "f:6:13: [update] max_boots: expected an integer from 0 to 9, found 12",
    )
    assert found["slots_dir"].set_at == ""
    both = "f: [update] release_threshold is 2 and there are 0 distinct pins, so no release could pass"
    assert found["release_threshold"][5:] == ("2", "f:5", both)
    assert found["release_pins"].problem == both
    assert not any("surprise" in one.problem for one in found.values())


def test_a_password_is_never_shown() -> None:
    """A proxy may carry one."""
    assert by_name(TEXT)["proxy"].current == '"http://***@proxy.example:3128"'
    assert "secret" not in repr(config_explain.explain(TEXT, "f"))


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        (
            "rollback_grace",
            (
                "[update] rollback_grace = 3 (f:4)",
                "    minor versions below the running one that may be taken",
                "    an integer from 0 to 100; default: 1",
            ),
        ),
        (
            "ca_file",
            (
                "[update] ca_file = nothing (default)",
                "    PEM file of the authorities to believe for downloads, instead of the system's",
                "    an absolute path without . or .. or unusual characters; default: none",
            ),
        ),
        (
            "max_boots",
            (
                "[update] max_boots = 3 (default)",
                "    reboots that a trial survives",
                "    an integer from 0 to 9; default: 3",
                "    problem: f:6:13: [update] max_boots: expected an integer from 0 to 9, found 12",
            ),
        ),
    ],
)
def test_the_lines_for_people(key: str, lines: object) -> None:
    """Value and place, meaning, bounds and default, and what is wrong."""
    assert config_explain.lines_of(by_name(TEXT)[key]) == lines


@given(st.binary(max_size=100))
def test_whatever_the_file_holds_every_key_is_explained(raw: bytes) -> None:
    """I8: a file of something else is explained as all defaults."""
    assert len(config_explain.explain(raw, "f")) == len(config.KEYS)


PRODUCT = """\
unit = "x.service"
keep = "many"

[probe-web]
kind = "http"
url = "http://127.0.0.1/"

[probe-disk]
kind = "unit"
"""


def test_another_table_is_explained_by_its_rows() -> None:
    """A section that may be repeated once, or each of the file's own; with what counts, where it is set and what is wrong."""
    found = config_explain.of_rows(product_table.KEYS, PRODUCT, "f", product_sections.NAME)
    named = {(one.section, one.key): one for one in found}
    assert (named["", "unit"].current, named["", "unit"].set_at) == ('"x.service"', "f:1")
    assert named["", "keep"].current == "3"
    assert named["", "keep"].set_at == ""
    assert "keep" in named["", "keep"].problem
    assert named["probe-web", "url"].current == '"http://127.0.0.1/"'
    assert named["probe-disk", "kind"].set_at == "f:9"
    assert named["probe-disk", "url"].current == ""
    assert ("probe-*", "kind") not in named
    assert named["hook-*", "command"].set_at == ""
    nothing = config_explain.of_rows(product_table.KEYS, None, "f", product_sections.NAME)
    assert len(nothing) == len(product_table.KEYS)
