# SPDX-License-Identifier: GPL-3.0-or-later
"""Every kind of damage to a trial record, as one table for the parser, the guard and settling."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from core.crash import values

RECORD = values.RECORD


def changed(key: str, value: str) -> bytes:
    """The sound record with another value for one key."""
    line = f"{key}={value}".encode("latin-1")
    return re.sub(rb"(?m)^%s=.*$" % key.encode(), lambda _found: line, RECORD)


BAD_VALUES: List[Tuple[str, str]] = [
    ("SPEC", "2"),
    ("SPEC", "01"),
    ("ID", "9f8a6c1e22d04b5"),
    ("ID", "9f8a6c1e22d04b577"),
    ("ID", "9F8A6C1E22D04B57"),
    ("PRODUCT", ""),
    ("PRODUCT", "pro be"),
    ("TO_VERSION", "1.1.0\t"),
    ("TO_VERSION", "1.1.0'"),
    ("TO_VERSION", "1.1.0\\"),
    ("TO_VERSION", "*"),
    ("FROM_VERSION", "1.0.0\r"),
    ("FROM_VERSION", "1.0.\xe9"),
    ("FROM_SLOT", "b"),
    ("FROM_SLOT", "c"),
    ("TO_SLOT", "a"),
    ("TO_SLOT", "../b"),
    ("TO_SLOT", "versions/1.1.0"),
    ("SEQUENCE", "-2"),
    ("SEQUENCE", "+2"),
    ("SEQUENCE", "02"),
    ("SEQUENCE", "0x2"),
    ("SEQUENCE", "2.0"),
    ("SEQUENCE", "1" * 16),
    ("BOOT_ID", "4b3f6a52"),
    ("BOOT_ID", "-" * 36),
    ("BOOT_ID", "4b3f6a52-6f0e-4c39-9a3e--f6f0a1f2f10"),
    ("BOOT_ID", "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f1g"),
    ("BOOT_ID", "4b3f6a5206f0e04c3909a3e02f6f0a1f2f10"),
    ("BOOT_ID", values.BOOT.upper()),
    ("LENGTH_S", "4"),
    ("LENGTH_S", "3601"),
    ("LENGTH_S", "9" * 16),
    ("LENGTH_S", "9" * 400),
    ("DEADLINE_S", "-1"),
    ("DEADLINE_S", "1e9"),
    ("DEADLINE_S", ""),
    ("DEADLINE_S", "1120 "),
    ("DEADLINE_S", " 1120"),
    ("BOOTS_LEFT", "10"),
    ("BOOTS_LEFT", "-1"),
    ("BOOTS_LEFT", "00"),
    ("STARTS", "a"),
    ("STARTS", "00"),
    ("COMMAND", "a b"),
    ("COMMAND", "$(reboot)"),
    ("COMMAND", "`reboot`"),
    ("FROM_SHA256", "0" * 63),
    ("TO_SHA256", "G" * 64),
]
BAD_FILES: Dict[str, bytes] = {
    "empty": b"",
    "a newline": b"\n",
    "no newline at the end": RECORD[:-1],
    "an empty line at the end": RECORD + b"\n",
    "an empty line at the front": b"\n" + RECORD,
    "carriage returns": RECORD.replace(b"\n", b"\r\n"),
    "a doubled key": RECORD + b"SPEC=1\n",
    "the whole twice": RECORD + RECORD,
    "an unknown key": RECORD + b"COLOUR=red\n",
    "an unknown key for a known one": RECORD.replace(b"COMMAND=", b"COLOUR="),
    "a missing key": RECORD.replace(b"STARTS=0\n", b""),
    "a reason in a trial that nobody ended": RECORD + b"REASON=operator\n",
    "a key in small letters": RECORD.replace(b"SPEC=", b"spec="),
    "a line without a value": RECORD.replace(b"COMMAND=-", b"COMMAND"),
    "a value without a key": RECORD.replace(b"COMMAND=-", b"=-"),
    "a blank before a key": RECORD.replace(b"SPEC=", b" SPEC="),
    "a blank before the value": RECORD.replace(b"SPEC=", b"SPEC= "),
    "a NUL": RECORD.replace(b"COMMAND=-", b"COMMAND=-\x00"),
    "a NUL at the end": RECORD + b"\x00",
    "a NUL in a number": RECORD.replace(b"DEADLINE_S=1120", b"DEADLINE_S=11\x0020"),
    "all NUL": b"\x00" * len(RECORD),
    "NUL after a cut": RECORD[:256] + b"\x00" * (len(RECORD) - 256),
    "a byte order mark": b"\xef\xbb\xbf" + RECORD,
    "oversize": RECORD.replace(b"COMMAND=-", b"COMMAND=" + b"x" * 4096),
    "huge": b"A" * 1_000_000,
    "binary": bytes(range(256)) * 2,
}
ALL: Dict[str, bytes] = {
    **{f"{key}={value!r:.30}": changed(key, value) for key, value in BAD_VALUES},
    **BAD_FILES,
}
