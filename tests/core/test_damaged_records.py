# SPDX-License-Identifier: GPL-3.0-or-later
"""A damaged trial record means the same to the guard, under both shells, and to settling: go back (I2)."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

import pytest
from core.crash import damage, scenarios
from core.crash.host import SHELLS, STOPPED, Host, mapped
from core.crash.values import IN_TIME, RECORD, STARTED_S, TRIAL
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, settle, trial

LINES = RECORD.splitlines(keepends=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Dict[str, Host]]:
    """A host for each shell."""
    made = {shell: Host(shell) for shell in SHELLS}
    yield made
    for host in made.values():
        host.remove()


def agree(host: Host, data: bytes, clock: settle.Clock = IN_TIME) -> bool:
    """Give the record to settling and to the guard: whether both let the trial go on; fails when they differ."""
    host.put(mapped(host.product, scenarios.on_trial(trial=data)))
    decided = host.look(clock).settlement
    goes_on = decided.action is settle.Action.AWAIT
    assert goes_on or (decided.action, decided.reason) == (settle.Action.GO_BACK, codes.BAD_RECORD)
    assert host.guard("start", clock, STOPPED).status == 0
    state = host.look(clock).state
    if goes_on:
        assert (state.current, state.trial, state.revert) == ("b", data, None)
    else:
        claimed = host.tree()[host.product.path("trial.revert")]
        assert (state.current, state.trial, claimed) == ("a", None, data + b"REASON=bad-record\n")
    return goes_on


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", damage.ALL)
def test_any_damage_goes_back(hosts: Dict[str, Host], shell: str, name: str) -> None:
    """Empty, doubled, blank, negative, huge, binary, with carriage returns or leading zeros, unknown or oversize."""
    assert not agree(hosts[shell], damage.ALL[name])


@pytest.mark.parametrize("shell", SHELLS)
def test_a_sound_record_goes_on(hosts: Dict[str, Host], shell: str) -> None:
    """Else the tests above would show nothing; other orders of the lines and the longest record are sound."""
    room = trial.MAX_BYTES - len(RECORD) + 1
    for data in (RECORD, b"".join(reversed(LINES)), damage.changed("COMMAND", "x" * room)):
        assert agree(hosts[shell], data)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_record_torn_around_any_line_goes_back(hosts: Dict[str, Host], shell: str) -> None:
    """The cuts that leave whole lines, and one byte to either side."""
    ends = {sum(map(len, LINES[:count])) for count in range(len(LINES))}
    for length in sorted({max(0, end + off) for end in ends for off in (-1, 0, 1)}):
        assert not agree(hosts[shell], RECORD[:length])


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_a_record_torn_at_any_byte_goes_back(hosts: Dict[str, Host], shell: str) -> None:
    """All of them."""
    for length in range(len(RECORD)):
        assert not agree(hosts[shell], RECORD[:length])


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("off", [-1, 0])
def test_an_impossible_deadline_goes_back(hosts: Dict[str, Host], shell: str, off: int) -> None:
    """A deadline further off than the trial is long is damage; guard and settling draw the line at the same second."""
    clock = settle.Clock(STARTED_S - settle.SLACK_S + off, TRIAL.boot_id)
    assert agree(hosts[shell], RECORD, clock) == (off == 0)


@given(
    st.sampled_from(sorted(SHELLS)),
    st.lists(
        st.tuples(st.integers(0, len(RECORD) - 1), st.sampled_from(list(b"\n= 0a-\x00\r\xff/"))), min_size=1, max_size=2
    ),
)
def test_any_bytes_written_over_a_record_mean_the_same_to_both(
    hosts: Dict[str, Host], shell: str, changes: List[Tuple[int, int]]
) -> None:
    """Whatever a byte becomes, guard and settling agree on whether it is still a record of this trial."""
    data = bytearray(RECORD)
    for where, byte in changes:
        data[where] = byte
    found = trial.parse_trial(bytes(data))
    if found is None or found._replace(from_version="", to_version="", command="") == TRIAL._replace(
        from_version="", to_version="", command=""
    ):
        agree(hosts[shell], bytes(data))
