# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes into a release is looked at before it is signed: its name, and its first bytes (field case N7)."""

from __future__ import annotations

import struct
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import artifacts, codes, manifest, program


def elf(machine: int, bits: int = 2, order: int = 1, kind: int = 2) -> bytes:
    """The beginning of an ELF file."""
    end = "<" if order == 1 else ">"
    return b"\x7fELF" + bytes([bits, order, 1]) + bytes(9) + struct.pack(end + "HH", kind, machine) + bytes(44)


@pytest.mark.parametrize(
    ("platform", "head"),
    [
        ("linux-amd64", elf(62)),
        ("linux-amd64", elf(62, kind=3)),
        ("linux-x86_64", elf(62)),
        ("linux-386", elf(3, bits=1)),
        ("linux-arm64", elf(183)),
        ("linux-armv7", elf(40, bits=1)),
        ("linux-s390x", elf(22, order=2)),
        ("linux-riscv64", elf(243)),
        ("linux-amd64", b"#!/bin/sh\necho\n"),
        ("plan9-pdp11", b"#! /usr/bin/env python3\n"),
        ("linux-amd64", b"#!/bin/true"),
    ],
)
def test_a_program_for_the_platform_is_taken(platform: str, head: bytes) -> None:
    """ELF of that very machine; a script for any."""
    assert program.check("toy", head, platform) is None


@pytest.mark.parametrize(
    ("platform", "head", "code", "text"),
    [
        ("linux-amd64", elf(183), "wrong-machine", "is a program for aarch64 (64 bits, little-endian), the platform"),
        ("linux-amd64", elf(3, bits=1), "wrong-machine", "for i386 (32 bits, little-endian), the platform linux-amd64"),
        ("linux-amd64", elf(62, bits=1), "wrong-machine", "x86_64 (32 bits, little-endian)"),
        ("linux-ppc64le", elf(21, order=2), "wrong-machine", "ppc64 (64 bits, big-endian)"),
        ("linux-arm64", elf(999), "wrong-machine", "machine 999 (64 bits, little-endian)"),
        ("linux-pdp11", elf(62), "wrong-machine", "cannot tell whether it is a program for linux-pdp11"),
        ("darwin-amd64", elf(62), "wrong-machine", "cannot tell whether it is a program for darwin-amd64"),
        ("linux-amd64", elf(62, kind=1), "not-executable", "an ELF file of type 1"),
        ("linux-amd64", elf(62, bits=3), "not-executable", "a damaged ELF file"),
        ("linux-amd64", elf(62, order=0), "not-executable", "a damaged ELF file"),
        ("linux-amd64", elf(62)[:19], "not-executable", "a damaged ELF file"),
        ("linux-amd64", b"", "not-executable", "neither ELF nor a script, it is empty"),
        ("linux-amd64", b"<html>", "not-executable", "it begins with 3c 68 74 6d"),
        ("linux-amd64", b"\x1f\x8b\x08\x00", "not-executable", "begins with 1f 8b 08 00; an archive is named"),
        ("linux-amd64", b"#!python3\n", "not-executable", "does not name an interpreter by its whole path"),
        ("linux-amd64", b"#!\n", "not-executable", "does not name an interpreter"),
        ("linux-amd64", b"#!/" + b"x" * program.HEAD, "not-executable", "does not name an interpreter"),
    ],
)
def test_N7_what_is_no_program_for_the_platform_is_refused(platform: str, head: bytes, code: str, text: str) -> None:
    """Before anybody signs it, with what it is and what was wanted."""
    found = program.check("dir/toy", head, platform)
    assert found is not None
    assert found.code == code
    assert found.text.startswith("dir/toy")
    assert text in found.text


@given(st.binary(max_size=80).map(lambda data: b"\x7fELF" + data) | st.binary(max_size=80))
def test_any_bytes_are_a_program_or_not(head: bytes) -> None:
    """Nothing is raised."""
    found: Optional[codes.Refusal] = program.check("toy", head, "linux-amd64")
    assert found is None or found.code in (codes.NOT_EXECUTABLE, codes.WRONG_MACHINE)


@pytest.mark.parametrize(
    ("spec", "path", "platform", "kind"),
    [
        ("toy_1.1.0_linux_amd64", "toy_1.1.0_linux_amd64", "linux-amd64", "binary"),
        ("out/toy_1.1.0_linux_amd64.tar.gz", "out/toy_1.1.0_linux_amd64.tar.gz", "linux-amd64", "tar.gz"),
        ("toy_1.1.0_linux_x86_64:linux-amd64", "toy_1.1.0_linux_x86_64", "linux-amd64", "binary"),
        ("toy:linux-riscv64", "toy", "linux-riscv64", "binary"),
        ("toy:linux-arm64", "toy", "linux-arm64", "binary"),
        ("a:b_linux_amd64", "a:b_linux_amd64", "linux-amd64", "binary"),
        ("toy_1.1.0_linux_arm64:linux-arm64", "toy_1.1.0_linux_arm64", "linux-arm64", "binary"),
        ("toy-1.1.0.tar.gz:linux-arm64", "toy-1.1.0.tar.gz", "linux-arm64", "tar.gz"),
        ("build-2.0.0/toy:linux-arm64", "build-2.0.0/toy", "linux-arm64", "binary"),
        ("toy-1.1.0-for-glibc-2.36.0:linux-arm64", "toy-1.1.0-for-glibc-2.36.0", "linux-arm64", "binary"),
    ],
)
def test_a_file_says_what_it_is_for(spec: str, path: str, platform: str, kind: str) -> None:
    """By its name, or by what is given with it."""
    assert artifacts.source(spec, "toy", "1.1.0") == (path, platform, kind, None)
    assert kind in manifest.KINDS


@pytest.mark.parametrize(
    ("spec", "path", "platform", "variant"),
    [
        ("toy_1.1.0_linux_amd64_full", "toy_1.1.0_linux_amd64_full", "linux-amd64", "full"),
        ("o/toy_1.1.0_linux_arm64_rk-35_8.tar.gz", "o/toy_1.1.0_linux_arm64_rk-35_8.tar.gz", "linux-arm64", "rk-35_8"),
        ("toy:linux-arm64:rockchip", "toy", "linux-arm64", "rockchip"),
        ("toy.tar.gz:linux-arm64:full", "toy.tar.gz", "linux-arm64", "full"),
        ("toy_1.1.0_linux_amd64:linux-amd64:full", "toy_1.1.0_linux_amd64", "linux-amd64", "full"),
        ("toy_1.1.0_linux_x86_64_full:linux-amd64", "toy_1.1.0_linux_x86_64_full", "linux-amd64", "full"),
        ("toy_1.1.0_linux_amd64_full:linux-amd64:full", "toy_1.1.0_linux_amd64_full", "linux-amd64", "full"),
        ("toy_1.1.0_linux_armv7_hf:linux-armv7_hf", "toy_1.1.0_linux_armv7_hf", "linux-armv7_hf", None),
    ],
)
def test_a_file_says_of_which_variant_it_is(spec: str, path: str, platform: str, variant: Optional[str]) -> None:
    """By what stands in its name after the platform, or by what is given after that."""
    found = artifacts.source(spec, "toy", "1.1.0")
    assert (found.path, found.platform, found.variant) == (path, platform, variant)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            "toy_1.1.0_linux_amd64_full:linux-amd64:lean",
            "toy_1.1.0_linux_amd64_full is for full by its name, and lean is given: rename it",
        ),
        ("toy_1.1.0_linux_amd64:linux-arm64:full", "is for linux-amd64 by its name, and linux-arm64 is given"),
        ("toy:linux-x86_64:full", "toy is for linux-x86_64, and no host calls itself that: write toy:linux-amd64"),
        ("toy:linux_amd64:full", "toy is for linux_amd64, and no host calls itself that: write toy:linux-amd64"),
        ("toy:linux-amd64:FULL", "cannot tell the platform of toy:linux-amd64:FULL: "),
        ("toy", "cannot tell the platform of toy: its name does not end in _os_arch; write toy:linux-amd64"),
        (
            "toy_1.1.0_linux_x86_64",
            "x86_64 is for linux-x86_64, and no host calls itself that: write toy_1.1.0_linux_x86_64:",
        ),
        (
            "toy:linux-x86_64",
            "toy is for linux-x86_64, and no host calls itself that: write toy:linux-amd64 (hosts are",
        ),
        ("toy:linux-aarch64", "write toy:linux-arm64 (hosts are linux-amd64 and linux-arm64)"),
        ("toy:linux_amd64", "toy is for linux_amd64, and no host calls itself that: write toy:linux-amd64"),
        ("toy:linux_x86_64", "write toy:linux-amd64 ("),
        ("my-toy_linux_x86_64", "my-toy_linux_x86_64 is for linux-x86_64, and no host calls itself that: write "),
        ("toy:linux_riscv64", "cannot tell the platform of toy:linux_riscv64: "),
        ("toy_1.1.0_linux_arm64:linux-x86_64", "write toy_1.1.0_linux_arm64:linux-amd64 ("),
        ("out/toy_1.0.0_linux_amd64", "out/toy_1.0.0_linux_amd64 is of version 1.0.0 by its name, not 1.1.0: give the"),
        ("toy_1.1.0-rc.1_linux_amd64", "is of version 1.1.0-rc.1 by its name, not 1.1.0"),
        ("yot_1.1.0_linux_amd64", "is of product yot by its name, not toy"),
        ("toy_1.0.0_linux_amd64:linux-amd64", "is of version 1.0.0 by its name, not 1.1.0"),
        ("toy-1.0.0:linux-amd64", "is of version 1.0.0 by its name, not 1.1.0"),
        ("toy-1.1.00:linux-amd64", "is of version 1.1.00 by its name, not 1.1.0"),
        ("toy-11.1.0.tar.gz:linux-amd64", "is of version 11.1.0 by its name, not 1.1.0"),
        ("toy_1.1.0_linux_amd64:linux-arm64", "is for linux-amd64 by its name, and linux-arm64 is given"),
    ],
)
def test_a_file_of_something_else_is_refused(spec: str, text: str) -> None:
    """Another product, version or platform than the release's, as far as the name tells."""
    with pytest.raises(codes.Refused) as error:
        artifacts.source(spec, "toy", "1.1.0")
    assert error.value.code == codes.BAD_RELEASE
    assert text in error.value.text


def test_a_pre_release_is_named_by_its_core_at_least() -> None:
    """In a free name; in the whole form it is compared exactly."""
    assert artifacts.source("toy-2.0.0-rc.1:linux-amd64", "toy", "2.0.0-rc.1").path == "toy-2.0.0-rc.1"
    assert artifacts.source("toy_2.0.0-rc.1+b_linux_amd64", "toy", "2.0.0-rc.1+b").platform == "linux-amd64"
