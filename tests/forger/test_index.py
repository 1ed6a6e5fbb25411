# SPDX-License-Identifier: GPL-3.0-or-later
"""The auditor's index: where each attack that was asked for, and each clause of "manifest and signatures complete", is shown.

An entry is the name of a row in this directory, or ``file::test`` for what is shown elsewhere; this test fails when one is gone.
"""

from __future__ import annotations

import pathlib
from typing import Dict, Tuple

import pytest
from forger import test_hostile_server as server
from forger import test_replay_and_time as replay
from forger import test_signatures_and_keys as signed
from forger import test_spelling as spelling
from forger import test_trust_on_a_host as trusted

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROWS = {
    *(row.name for row in (*signed.ATTACKS, *spelling.ATTACKS, *replay.ATTACKS)),
    *(row.name for row in (*server.PROCESS, *server.ASKED, *server.PASSING)),
    *(row[0] for row in replay.FORGED),
    *(row.name for row in (*trusted.APPLIED, *trusted.PERMITS)),
    *("Content-Range " + name for name in server.RANGES),
}
HOSTILE = "forger/test_hostile_server.py::"

ATTACKS: Dict[str, Tuple[str, ...]] = {
    "other purpose": (
        "other purpose: a key set",
        "the purpose twice",
        "forger/test_replay_and_time.py::test_genuine_signatures_moved_to_a_document_of_another_kind",
    ),
    "other product": ("other product", "other product: the control side says so too"),
    "replayed older manifest": ("replayed older manifest", "replayed older manifest, where no floor is known"),
    "mixed keys": ("mixed keys: the forger lists his beside Ana's",),
    "kid swapped": ("kid swapped: each signature under the other's id", "kid swapped in the manifest"),
    "same key under two kids": ("the same key under two ids",),
    "same pin twice": ("the same pin configured twice", "one signed three times"),
    "key not listed": ("a pinned key that the manifest does not list", "the forger signed"),
    "SPKI with trailing bytes": ("SPKI with a trailing byte",),
    "SPKI with explicit parameters": ("SPKI with explicit parameters",),
    "SPKI in a second spelling": (
        "a compressed point",
        "a hybrid point",
        "BER: a long length",
        "BER: an indefinite length",
        "a non-canonical Ed25519 key: y = p + 3",
    ),
    "P1363 with wrong length": ("one byte short", "one byte long", "33 bytes for each number", "no bytes"),
    "P1363 zero": ("64 zero bytes", "r = 0", "s = 0"),
    "r or s >= n": ("r = n", "s = n", "r above n, the same modulo n"),
    "negative numbers": ("-r as 32 bytes", "-s as 32 bytes"),
    "DER instead of P1363": ("DER instead of P1363", "DER cut to 64 bytes"),
    "malleable signatures": (
        "one signed, and once more as (r, n - s)",
        "forger/test_signatures_and_keys.py::test_the_other_half_of_a_signature_verifies_and_gains_nothing",
        "S + L for S",
    ),
    "keys of small order": ("an Ed25519 key of small order", "an Ed25519 key of order 8"),
    "high bits in base64": ("unused bits in a signature", "unused bits in the body", "unused bits in a key"),
    "white space in base64": ("a line end behind the base64", "lines of 64", "a blank inside", "a tab in front"),
    "duplicate keys in JSON": (
        "a key twice",
        "a key twice, once in escapes",
        "two bodies",
        "a target with a field twice",
    ),
    "`Version` beside `version`": ("`Version` beside `version`",),
    "huge integers": ("2**53, where doubles lose one", "a number of 5,000 digits"),
    "1e3": ("1e3", "5E0"),
    "1.0": ("5.0", "-0"),
    "escapes that change the canonical form": ("a letter in escapes", "a solidus in escapes"),
    "BOM": ("a byte order mark", "a byte order mark before the published form", "a target behind a byte order mark"),
    "expired by the host's clock": ("expired by the host's clock",),
    "expired by the server's time": ("expired by the server's time",),
    "clock set back": ("clock set back: a newer release was verified here",),
    "endless body": ("endless body",),
    "slow body": ("slow body", "slow head"),
    "HTML error page": ("HTML error page with 200", "HTML page of the right size"),
    "redirect to http": (HOSTILE + "test_the_agent_leaves_tls_for_nobody",),
    "redirect loop": ("redirect loop",),
    "credentials in the URL": ("credentials in the URL", "redirect to credentials"),
    "200 to a Range request": (HOSTILE + "test_200_to_a_range_request_replaces_the_part",),
    "wrong Content-Range": tuple("Content-Range " + name for name in server.RANGES),
    "416": ("416 to no range", HOSTILE + "test_416_to_a_range_request_begins_anew"),
    "gzip content-encoding": ("gzip content-encoding",),
    "truncated at every byte": (HOSTILE + "test_truncated_at_every_byte",),
    "revoked keys": (
        "stolen keys sign a key set of the forger's",
        "stolen keys withdraw a release",
        "stolen keys permit a downgrade",
    ),
    "replayed key set": ("a replayed key set", "another key set of the same number"),
    "permit for others, or used": (
        "a permit for another host",
        "a permit that was used",
        "a permit whose hosts were added to",
    ),
    "a document of another kind": ("forger/test_replay_and_time.py::test_a_genuine_document_in_anothers_place",),
}
CLAUSES: Dict[str, Tuple[str, ...]] = {
    "ES256 and EdDSA": (
        "core/test_keys.py::test_published_vectors_verify",
        "core/test_keys.py::test_keys_and_signatures_of_openssl_are_taken",
        "core/test_keys.py::test_other_kinds_of_keys_are_refused",
    ),
    "1 to 16 keys": ("seventeen keys", "no key at all", "core/test_manifest.py::test_sixteen_keys_are_the_most"),
    "each pin counted once": (
        "one signed three times",
        "core/test_signatures.py::test_the_count_is_that_of_distinct_pinned_signers",
    ),
    "at most 16 signatures read": (
        "genuine signatures behind sixteen of junk",
        "core/test_signatures.py::test_sixteen_signatures_are_read",
    ),
    "purpose prefix": ("the body without a purpose", "the purpose without its end"),
    "exact fields: unknown": (
        "a field of a later spec",
        "core/test_manifest.py::test_no_field_may_be_added_or_spelled_otherwise",
    ),
    "exact fields: missing": ("core/test_manifest.py::test_no_field_may_be_missing",),
    "exact fields: doubled": ("a key twice", "a key twice, deep inside"),
    "exact fields: differently cased": ("`Version` instead of `version`",),
    "canonical form compared byte for byte": (
        "blanks between",
        "core/test_canonical.py::test_another_spelling_is_not_canonical",
    ),
    "UTF-16 key order": ("core/test_canonical.py::test_javascript_writes_the_same", "keys in another order"),
    "plain integers": (
        "1e3",
        "5.0",
        "05",
        "+5",
        "core/test_canonical.py::test_what_two_readers_could_take_differently_is_refused",
    ),
    "no lone surrogates": (
        "half of a surrogate pair in escapes",
        "half of a surrogate pair in bytes",
        "two first halves",
    ),
    "no NaN": ("NaN", "Infinity", "-Infinity"),
    "depth limit": ("nested 17 deep", "nested 100,000 deep", "core/test_canonical.py::test_limits_are_taken_in_full"),
    "size limits": (
        "a body over one mebibyte",
        "the published form over two mebibytes",
        "more values than anybody needs",
        "core/test_fuzz.py::test_the_worst_that_fits_costs_little",
    ),
    "RFC 3339 UTC only": (
        "a time with an offset",
        "a leap second",
        "core/test_rfc3339.py::test_another_spelling_is_refused",
    ),
    "semver by its grammar": (
        "a version with a line end",
        "a version with a leading zero",
        "core/test_semver.py::test_anything_else_is_not",
    ),
    "precedence right for pre-releases": (
        "a pre-release of what runs, where no floor is known",
        "core/test_semver.py::test_versions_rise_in_the_specified_order",
    ),
}


@pytest.mark.parametrize("asked", [*ATTACKS, *CLAUSES])
def test_what_was_asked_for_is_shown(asked: str) -> None:
    """Every entry of the index is a row, or a test that is there."""
    for entry in {**ATTACKS, **CLAUSES}[asked]:
        file, _colons, name = entry.partition("::")
        if name:
            assert f"\ndef {name}(" in (TESTS / file).read_text(encoding="utf-8"), entry
        else:
            assert entry in ROWS, entry


def test_no_two_rows_of_a_table_have_one_name() -> None:
    """Else one of them could go without the index's noticing."""
    for table in (signed.ATTACKS, spelling.ATTACKS, replay.ATTACKS, server.PROCESS, server.ASKED, server.PASSING):
        names = [row[0] for row in table]
        assert len(set(names)) == len(names), names
