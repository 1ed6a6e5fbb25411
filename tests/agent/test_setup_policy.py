# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward setup --from`: a program that does not say what it is is judged by what its signed manifest says."""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib

import pytest
from core import making
from support import signing

from slotcore import codes
from slotward import cmd_setup, gate, manager, own

KEY = signing.key()
PROGRAM = b"#!/bin/sh\nexit 0\n"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="setup takes only what is root's")


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ('min_version = "1.1.1"', codes.BELOW_MIN_VERSION),
        ('allowed_channels = "lts"', codes.CHANNEL_NOT_ALLOWED),
        ("release_sequence = 3", codes.BELOW_FLOOR),
    ],
)
def test_a_program_that_names_no_version_is_the_release_of_its_manifest(
    tmp_path: pathlib.Path, policy: str, code: str
) -> None:
    """As an unknown version it would pass every row that compares versions, and none of it would be remembered."""
    program = tmp_path / "program"
    program.write_bytes(PROGRAM)
    program.chmod(0o755)
    name = f"slotward_1.1.0_{gate.this_platform().replace('-', '_')}"
    one = making.artifact_fields(
        name=name, platform=gate.this_platform(), sha256=hashlib.sha256(PROGRAM).hexdigest(), size=len(PROGRAM)
    )
    fields = {"product": "slotward", "version": "1.1.0", "sequence": 2, "expiresAt": "2126-01-01T00:00:00Z"}
    body = making.body(**fields, keys=[making.key_fields(KEY.public)], artifacts=[one])
    (tmp_path / "manifest.json").write_bytes(making.published(body, [KEY]))
    text = f'[update]\nslots_dir = "{tmp_path}/slots"\nentrypoint = "{tmp_path}/bin/x"\nrelease_pins = "{KEY.public.pin}"\n'
    (tmp_path / "config.toml").write_text(f"{text}{policy}\n")
    setup = own.load(str(tmp_path / "config.toml"))
    assert setup.problems == ()
    args = argparse.Namespace(manifest=str(tmp_path / "manifest.json"))
    with pytest.raises(codes.Refused) as caught:
        cmd_setup._install(setup, manager.look(setup.product), "install", str(program), args)
    assert caught.value.code == code
    assert not (tmp_path / "slots").exists()
