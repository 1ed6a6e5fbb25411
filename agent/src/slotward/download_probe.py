# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a server for one byte of a file: is it there, trusted, and of the right size? Changes nothing (field case N1)."""

from __future__ import annotations

import time

from slotcore import codes
from slotward import download, download_answer
from slotward import download_rules as rules


def size_of(url: str, transport: rules.Transport) -> int:
    """The size of the file at an address, as its server says it; raises as `probe` does."""
    refusal = rules.check_place(url, transport) or download.check_authorities(url, transport)
    if refusal is not None:
        raise codes.Refused(refusal)
    where = rules.shown_url(url)
    headers = {"Accept-Encoding": "identity", "Range": "bytes=0-0"}
    try:
        with download.session_of(transport) as session:
            response = download.follow(session, url, headers, transport, time.monotonic() + transport.budget_s)
            response.close()
        found = download_answer.whole_size(response)
    except download_answer.Later as error:
        raise codes.Retryable(error.code, "cannot reach %s: %s" % (where, error)) from error
    if found is None:
        text = "%s does not say how large the file is, and no manifest does: push the file (--src)"
        raise codes.refused(codes.SIZE_MISMATCH, text % where)
    return found


def probe(url: str, size: int, transport: rules.Transport) -> None:
    """Ask for one byte, once: is the server there, trusted, and has it a file of this size (field case N1)?

    Raises:
        Refused: what `fetch` would be refused with.
        Retryable: `download-failed`.

    """
    refusal = rules.check_place(url, transport) or download.check_authorities(url, transport)
    if refusal is not None:
        raise codes.Refused(refusal)
    headers = {"Accept-Encoding": "identity", "Range": "bytes=0-0"}
    where = rules.shown_url(url)
    try:
        with download.session_of(transport) as session:
            response = download.follow(session, url, headers, transport, time.monotonic() + transport.budget_s)
            response.close()
        download_answer.judge(response, 0, size)
    except download_answer.Stale as error:
        raise codes.refused(codes.SIZE_MISMATCH, "%s is another file: %s" % (where, error)) from error
    except download_answer.Later as error:
        raise codes.Retryable(error.code, "cannot reach %s: %s" % (where, error)) from error
    found = download_answer.offered(response)
    if found is not None and found != size:
        text = "%s offers %d bytes, the release says %d"
        raise codes.refused(codes.SIZE_MISMATCH, text % (where, found, size))
