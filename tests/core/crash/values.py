# SPDX-License-Identifier: GPL-3.0-or-later
"""One product, one trial and their records, as the tests of the engine use them."""

from __future__ import annotations

import hashlib
from typing import Dict, Mapping, Optional

from slotcore import listings, records, settle, trial
from slotcore import product as products
from slotcore import trust_record as trusts

BOOT = "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10"
NEXT_BOOT = "5c406b63-7010-4d40-8b4f-306010203021"
STARTED_S = 1000
AT = 1_700_000_000
LENGTH_S = 120

PRODUCT = products.Product(
    name="probe", unit="probe.service", entrypoint="/bin/probe", slots_dir="/slots", pins=("sha256/x",), base_floor=1
)
HELPED = PRODUCT._replace(helper_unit="probe-helper.service", helper_socket="/run/probe-helper/helper.sock")
"""The same daemon with a helper, which starts `/slots/helper`."""
TREES = PRODUCT._replace(layout=products.VERSIONS, program="probe")
"""The same daemon in trees: a slot is a link to `versions/<v>`, in which `probe` lies."""
VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0")
BYTES: Dict[str, bytes] = {
    version: f"#!/bin/sh\necho this is {version}\n".encode() for version in (*VERSIONS, "0.9.0-by-hand")
}
SEQUENCE: Dict[str, int] = {"0.9.0-by-hand": 0, **{version: number for number, version in enumerate(VERSIONS, 1)}}


def digest(version: str) -> str:
    """The SHA-256 of a version's bytes."""
    return hashlib.sha256(BYTES[version]).hexdigest()


def record(version: str) -> records.SlotRecord:
    """The slot record of a version."""
    return records.SlotRecord(version, SEQUENCE[version], digest(version), len(BYTES[version]))


def listing(version: str) -> bytes:
    """The listing of a version's tree, in which nothing is but the program."""
    entry = listings.Entry("probe", listings.FILE, 0o755, len(BYTES[version]), digest(version))
    return listings.render(listings.Listing(record(version), (entry,)))


TRIAL = trial.Trial(
    trial_id="9f8a6c1e22d04b57",
    product="probe",
    from_version="1.0.0",
    to_version="1.1.0",
    from_slot="a",
    to_slot="b",
    sequence=2,
    boot_id=BOOT,
    length_s=LENGTH_S,
    deadline_s=STARTED_S + LENGTH_S,
    boots_left=3,
    command="-",
    from_sha256=digest("1.0.0"),
    to_sha256=digest("1.1.0"),
)
RECORD = trial.render_trial(TRIAL)
PERMIT = trusts.Allowed("0123456789abcdef", "1.1.0", 2)
DOWNWARD = TRIAL._replace(from_version="1.2.0", from_sha256=digest("1.2.0"))
"""The trial of 1.1.0 on a host that was at 1.2.0, which only a permit allows."""
STARTED = trial.LOG_HEADER + b"start 1001\n"

IN_TIME = settle.Clock(STARTED_S + 1, BOOT)
OVER = settle.Clock(STARTED_S + LENGTH_S, BOOT)
REBOOTED = settle.Clock(30, NEXT_BOOT)


def slots(**versions: str) -> Dict[str, records.SlotRecord]:
    """Slot records by slot."""
    return {slot: record(version) for slot, version in versions.items()}


def state(
    current: Optional[str] = "a",
    good: Optional[str] = "a",
    back: Optional[str] = None,
    entrypoint: str = "ours",
    claim: Optional[Mapping[str, bytes]] = None,
    log: bytes = b"",
    update: records.Update = records.Update(floor=1),
    held: Optional[Mapping[str, records.SlotRecord]] = None,
) -> settle.State:
    """A state in use; `claim` holds the trial record under its name (`trial`, `confirm` or `revert`)."""
    claims = claim or {}
    return settle.State(
        current=current,
        good=good,
        back=back,
        in_use=True,
        entrypoint=entrypoint,
        trial=claims.get("trial"),
        confirm=claims.get("confirm"),
        revert=claims.get("revert"),
        log=log,
        slots=slots(a="1.0.0", b="1.1.0") if held is None else held,
        update=update,
    )


def on_trial(data: bytes = RECORD) -> settle.State:
    """The state of a trial whose release was started."""
    return state("b", "a", "a", claim={"trial": data}, log=STARTED)
