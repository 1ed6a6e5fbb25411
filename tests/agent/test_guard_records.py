# SPDX-License-Identifier: GPL-3.0-or-later
"""The trial record as the guard reads it: every kind of damage goes back, and sh and Python agree on what is sound."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Callable, Dict, Tuple

import pytest
from agent.guarding import SHELLS, Tree, record
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import guarding
from slotcore import trial as trials

GOOD = trials.render_trial(record())
LINES = GOOD.splitlines(keepends=True)


def _without(key: bytes) -> bytes:
    return b"".join(line for line in LINES if not line.startswith(key + b"="))


def _with(key: str, value: str) -> bytes:
    name = key.encode("ascii")
    return b"".join(
        name + b"=" + value.encode("latin-1") + b"\n" if line.startswith(name + b"=") else line for line in LINES
    )


DAMAGED: Dict[str, bytes] = {
    "empty": b"",
    "one-newline": b"\n",
    "torn-in-a-line": GOOD[:200],
    "torn-at-a-line": b"".join(LINES[:-1]),
    "no-last-newline": GOOD[:-1],
    "blank-line": GOOD + b"\n",
    "blank-line-inside": b"".join(LINES[:3]) + b"\n" + b"".join(LINES[3:]),
    "doubled-key": GOOD + LINES[9],
    "doubled-key-other-value": GOOD + b"LENGTH_S=3600\n",
    "doubled-key-for-another": _without(b"COMMAND") + LINES[9],
    "unknown-key": GOOD + b"MORE=1\n",
    "unknown-instead": _without(b"COMMAND") + b"COMMENT=-\n",
    "key-of-lower-case": _without(b"COMMAND") + b"command=-\n",
    "no-equals-sign": _without(b"COMMAND") + b"COMMAND\n",
    "empty-value": _with("COMMAND", ""),
    "space-in-value": _with("COMMAND", "a b"),
    "space-before": GOOD.replace(b"LENGTH_S", b" LENGTH_S"),
    "space-after": _with("LENGTH_S", "120 "),
    "tab": _with("LENGTH_S", "\t120"),
    "carriage-returns": GOOD.replace(b"\n", b"\r\n"),
    "one-carriage-return": _with("LENGTH_S", "120\r"),
    "negative": _with("LENGTH_S", "-120"),
    "negative-deadline": _with("DEADLINE_S", "-1"),
    "plus": _with("DEADLINE_S", "+1060"),
    "leading-zero": _with("DEADLINE_S", "01060"),
    "hexadecimal": _with("DEADLINE_S", "0x424"),
    "huge": _with("DEADLINE_S", "9" * 16),
    "huger": _with("DEADLINE_S", "9" * 60),
    "far-off": _with("DEADLINE_S", "9" * 15),
    "fraction": _with("DEADLINE_S", "1060.5"),
    "no-number": _with("DEADLINE_S", "soon"),
    "length-too-short": _with("LENGTH_S", "4"),
    "length-too-long": _with("LENGTH_S", "3601"),
    "too-many-boots": _with("BOOTS_LEFT", "10"),
    "sequence-of-text": _with("SEQUENCE", "x"),
    "starts-of-text": _with("STARTS", "x"),
    "other-spec": _with("SPEC", "2"),
    "other-product": _with("PRODUCT", "other"),
    "short-id": _with("ID", "9f8a"),
    "id-of-capitals": _with("ID", "9F8A6C1E22D04B57"),
    "odd-boot-id": _with("BOOT_ID", "here"),
    "boot-id-of-capitals": _with("BOOT_ID", guarding.BOOT.upper()),
    "same-slots": _with("TO_SLOT", "a"),
    "slot-of-another-kind": _with("TO_SLOT", "c"),
    "slot-of-a-path": _with("FROM_SLOT", "../a"),
    "short-digest": _with("TO_SHA256", "bb"),
    "digest-of-text": _with("FROM_SHA256", "g" * 64),
    "shell": _with("COMMAND", "$(reboot)"),
    "glob": _with("COMMAND", "*"),
    "backslash": _with("COMMAND", "a\\nb"),
    "nul-inside": GOOD.replace(b"LENGTH_S=120", b"LENGTH_S=1\x0020"),
    "nul-at-the-end": GOOD + b"\x00",
    "nul-before-newline": GOOD.replace(b"SPEC=1\n", b"SPEC=1\x00\n"),
    "zeros": b"\x00" * len(GOOD),
    "zeros-after-a-cut": GOOD[:256] + b"\x00" * (len(GOOD) - 256),
    "binary": bytes(range(256)),
    "latin": _with("COMMAND", "caf\xe9"),
    "utf-8": _with("COMMAND", "caf\xc3\xa9"),
    "form-feed": _with("COMMAND", "a\x0c"),
    "too-long": GOOD + b"#" * 4096,
    "too-long-by-value": _with("COMMAND", "x" * 4096),
    "megabyte": b"x" * (1 << 20),
}


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_record_goes_back(tmp_path: pathlib.Path, shell: Tuple[str, ...], data: bytes) -> None:
    """I2: whatever is wrong with the record, the trial is over and the good version is what starts."""
    tree = Tree(tmp_path, shell)
    tree.swap()
    (tree.slots / "trial").write_bytes(data)
    tree.run("start")
    assert tree.current() == "a"
    assert "trial" not in tree.names()
    assert (tree.slots / "trial.revert").read_bytes() == data + b"REASON=bad-record\n"


@pytest.mark.parametrize("mode", ["tick", "failed"])
def test_a_damaged_record_goes_back_in_every_mode(tmp_path: pathlib.Path, mode: str) -> None:
    """The timer and OnFailure= read the same record."""
    tree = Tree(tmp_path)
    tree.swap()
    (tree.slots / "trial").write_bytes(b"")
    tree.run(mode)
    tree.went_back("bad-record")


def test_a_damaged_record_of_a_switch_that_never_happened_is_cleared_away(tmp_path: pathlib.Path) -> None:
    """Current is good: a tick ends it, as never started; a start leaves it to the agent."""
    tree = Tree(tmp_path)
    tree.swap(switched=False)
    (tree.slots / "trial").write_bytes(b"")
    tree.run("start")
    assert "trial" in tree.names()
    tree.run("tick")
    tree.went_back("never-started")
    tree.swap(switched=False)
    tree.started()
    (tree.slots / "trial").write_bytes(b"")
    (tree.slots / "trial.revert").unlink()
    tree.run("tick")
    tree.went_back("bad-record")


def test_the_longest_sound_record_is_sound(tmp_path: pathlib.Path) -> None:
    """4,096 bytes are allowed."""
    for shell in SHELLS:
        tree = Tree(tmp_path / shell[0], shell)
        data = trials.render_trial(record(command="x" * (4096 - len(GOOD) + 1)))
        assert len(data) == trials.MAX_BYTES
        tree.swap()
        (tree.slots / "trial").write_bytes(data)
        tree.run("start")
        tree.goes_on()


def test_keys_may_stand_in_any_order(tmp_path: pathlib.Path) -> None:
    """The order of the lines means nothing."""
    for shell in SHELLS:
        tree = Tree(tmp_path / shell[0], shell)
        tree.swap()
        (tree.slots / "trial").write_bytes(b"".join(reversed(LINES)))
        tree.run("start")
        tree.goes_on()


def _flip(data: bytes, where: int, bit: int) -> bytes:
    at = where % len(data)
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


MUTATIONS: st.SearchStrategy[Callable[[bytes], bytes]] = st.one_of(
    st.builds(lambda where, bit: lambda data: _flip(data, where, bit), st.integers(0, 4095), st.integers(0, 7)),
    st.builds(lambda where: lambda data: data[: where % (len(data) + 1)], st.integers(0, 4095)),
    st.builds(
        lambda where, more: lambda data: data[:where] + more + data[where:], st.integers(0, 600), st.binary(max_size=3)
    ),
    st.builds(lambda line: lambda data: data + LINES[line], st.integers(0, len(LINES) - 1)),
    st.builds(lambda text: lambda data: data + text.encode() + b"\n", st.from_regex(r"\A[A-Z_]{1,9}=[a-z0-9]{0,9}\Z")),
)


@settings(max_examples=150)
@given(mutations=st.lists(MUTATIONS, max_size=2), shell=st.sampled_from(SHELLS))
def test_sh_and_python_agree_on_every_record(mutations: list[Callable[[bytes], bytes]], shell: Tuple[str, ...]) -> None:
    """What Python takes for a record of this trial, the guard does, and nothing else."""
    data = GOOD
    for mutate in mutations:
        data = mutate(data)
    with tempfile.TemporaryDirectory() as root:
        tree = Tree(pathlib.Path(root), shell)
        tree.swap()
        (tree.slots / "trial").write_bytes(data)
        tree.run("start")
        found = trials.parse_trial(data)
        sound = found is not None and found.product == "demo" and found.to_slot == "b"
        said = tree.reason()
        assert (said == "bad-record") == (not sound or _impossible(found)), (data, found, said)


def _impossible(found: trials.Trial | None) -> bool:
    return found is not None and found.boot_id == guarding.BOOT and found.deadline_s > guarding.NOW + found.length_s + 5
