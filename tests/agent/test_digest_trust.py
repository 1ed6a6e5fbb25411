# SPDX-License-Identifier: GPL-3.0-or-later
"""Trust `digest`: what an operator with root hands over is taken by its SHA-256, without floor, and that is told."""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import Any

import pytest
from agent.places import Place
from agent.sources import CONTENT, Fleet, name_of
from support.web import Serve, answer, chunked

from slotcore import checks, codes, records, trial
from slotcore import product as products
from slotward import by_version, doctor_trust, fetch, gate, looking, manager, own, prepare

SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def fleet(place: Place, serving: Serve) -> Fleet:
    """A host that takes digests, and a server."""
    found = Fleet(place, serving)
    found.product = found.product._replace(pins=(), threshold=1, trust=products.DIGEST, source=None)
    return found


def target(url: str = "", version: str = "1.1.0", sha256: str = SHA, channel: str | None = None) -> checks.Target:
    """What is handed over."""
    return checks.Target("probe", version, url, sha256, "", channel)


def url_of(fleet: Fleet, content: bytes = CONTENT) -> str:
    """The file on the server."""
    fleet.files["/x/probe"] = content
    return f"http://{fleet.host}/x/probe"


def test_a_digest_is_enough(fleet: Fleet) -> None:
    """No manifest is asked for, there is no sequence, and the size is what the server says."""
    wanted = fleet.told(target(url_of(fleet)))
    assert wanted.record == records.SlotRecord("1.1.0", 0, SHA, 0)
    sized = by_version.sized(fleet.setup(), wanted, None)
    assert sized.record.size == len(CONTENT)
    descriptor = fetch.stage(fleet.setup(), sized, None)
    assert os.pread(descriptor, 100, 0) == CONTENT
    os.close(descriptor)
    assert fleet.asked() == ["/x/probe", "/x/probe"]
    again = fleet.told(target(url_of(fleet)))
    assert again.staged
    assert by_version.sized(fleet.setup(), again, None).record.size == len(CONTENT)
    assert len(fleet.asked()) == 2


def test_other_bytes_of_that_length_are_refused(fleet: Fleet) -> None:
    """The digest is all there is, and it decides."""
    wanted = by_version.sized(fleet.setup(), fleet.told(target(url_of(fleet, CONTENT.upper()))), None)
    with pytest.raises(codes.Refused) as caught:
        fetch.stage(fleet.setup(), wanted, None)
    assert caught.value.code == codes.DIGEST_MISMATCH


def test_a_pushed_file_needs_no_server(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    """The controller brings it; its size is its own."""
    pushed = tmp_path / "pushed"
    pushed.write_bytes(CONTENT)
    wanted = by_version.sized(fleet.setup(), fleet.told(target()), str(pushed))
    assert wanted.record.size == len(CONTENT)
    os.close(fetch.stage(fleet.setup(), wanted, str(pushed)))
    assert fleet.asked() == []


def test_with_a_source_the_address_is_the_source_s(fleet: Fleet) -> None:
    """Whoever hands a digest over names no address either."""
    source = products.Source(f"http://{fleet.host}/pub/{{version}}", (fleet.host,))
    fleet.files[f"/pub/1.1.0/{name_of('1.1.0')}"] = CONTENT
    setup = fleet.setup(source=source)
    wanted = by_version.sized(setup, fleet.told(target(), source=source), None)
    os.close(fetch.stage(setup, wanted, None))
    with pytest.raises(codes.Refused) as caught:
        fleet.told(target(url_of(fleet)), source=source)
    assert caught.value.code == codes.SOURCE_DECIDES
    with pytest.raises(codes.Refused) as caught:
        fleet.told(target(sha256=""), source=source)
    assert caught.value.code == codes.BAD_DIGEST


@pytest.mark.parametrize(
    ("changes", "version", "code"),
    [
        ({"policy": products.Policy(enabled=False)}, "1.1.0", codes.UPDATES_DISABLED),
        ({"policy": products.Policy(min_version="1.2.0")}, "1.1.0", codes.BELOW_MIN_VERSION),
        ({}, "0.1.0", codes.TOO_FAR_BACK),
        ({"policy": products.Policy(strict_sequence=True)}, "1.1.0", codes.SEQUENCE_NOT_NEWER),
        ({"pins": ("sha256/x",)}, "1.1.0", codes.NO_MANIFEST),
        ({"trust": products.PINS}, "1.1.0", codes.NO_PINS),
    ],
)
def test_C10_the_policy_is_the_same(fleet: Fleet, changes: dict[str, Any], version: str, code: str) -> None:
    """And where keys are pinned a digest is never enough, nor is it without root's word."""
    with pytest.raises(codes.Refused) as caught:
        fleet.told(target(version=version), **changes)
    assert caught.value.code == code
    assert fleet.asked() == []


def test_the_other_slot_is_used_again_by_its_bytes(fleet: Fleet) -> None:
    """A record without a sequence is one of a digest here; with other bytes in the slot it proves nothing."""
    place = fleet.place
    place.write("b", CONTENT)
    slots = {**place.state().slots, "b": records.SlotRecord("1.1.0", 0, SHA, len(CONTENT))}
    place.write("slots.json", records.render_slots(slots))
    assert fleet.told(target()).reuse
    assert not fleet.told(target(version="1.1.1")).reuse
    place.write("b", b"other")
    assert not fleet.told(target()).reuse


@pytest.mark.parametrize("act", [answer(404), answer(503), chunked(CONTENT)], ids=["404", "503", "no-size"])
def test_a_server_that_does_not_say_a_size_ends_prepare(fleet: Fleet, act: Any) -> None:
    """Nothing is fetched blindly: whoever asks is told what the server said."""
    fleet.acts["/x/probe"] = act
    wanted = fleet.told(target(f"http://{fleet.host}/x/probe"))
    with pytest.raises((codes.Refused, codes.Retryable)):
        by_version.sized(fleet.setup(), wanted, None)


def test_a_server_that_says_too_much_is_refused(fleet: Fleet) -> None:
    """The bound of every artifact holds."""
    body = {"Content-Range": "bytes 0-0/536870913"}
    fleet.acts["/x/probe"] = answer(206, body, b"x")
    wanted = fleet.told(target(f"http://{fleet.host}/x/probe"))
    with pytest.raises(codes.Refused) as caught:
        by_version.sized(fleet.setup(), wanted, None)
    assert caught.value.code == codes.ARTIFACT_TOO_LARGE


def test_a_trial_without_a_sequence_leaves_the_floor_where_it_was(fleet: Fleet) -> None:
    """Confirming raises nothing, going back forgets nothing; all records hold 0 as they hold any number."""
    place, product = fleet.place, fleet.product
    place.write("b", CONTENT)
    entry = records.SlotRecord("1.1.0", 0, SHA, len(CONTENT))
    place.write("slots.json", records.render_slots({**place.state().slots, "b": entry}))
    release = manager.Release("1.1.0", entry, 0, "-", "ab" * 8)
    pending = manager._trial_of(product, manager.look(product), release)
    assert pending.sequence == 0
    for end in ("confirm", "go-back"):
        place.write("trial", trial.render_trial(pending))
        place.write("trial.log", trial.LOG_HEADER)
        place.link("good", "a")
        place.link("back", "a")
        place.link("current", "b")
        if end == "confirm":
            manager.confirm(product, manager.look(product))
        else:
            manager.go_back(product, manager.look(product), "no")
        state = place.state()
        assert state.broken is None
        assert state.update.floor == 1
        assert state.current == state.good == ("b" if end == "confirm" else "a")
    failure = place.state().update.failure_of("1.1.0")
    assert failure is not None
    assert (failure.sequence, failure.sha256) == (0, SHA)


def test_status_and_doctor_say_so(fleet: Fleet) -> None:
    """No one should take this host for one that checks signatures."""
    seen = looking.look(fleet.setup(), fleet.place.state())
    assert (seen["trust"]["source"], seen["pins"]) == ("digest", 0)
    name, state, message, run, _entry = doctor_trust.findings(seen, "/etc/x.toml")[0]
    assert (name, state) == ("release keys", "warn")
    assert "no signature" in message
    assert "/etc/x.toml" in run


def test_setup_of_another_way_is_not_touched(fleet: Fleet) -> None:
    """A product with keys takes a signed target as ever, and one by version where it has a source."""
    setup: own.Setup = fleet.setup(trust=products.PINS, pins=("sha256/x",))
    facts = gate.facts_of(setup, fleet.place.state(), target(), "1.0.0")
    assert not facts.by_digest
    assert prepare.Consent().noting is False
