# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases by version and channel from a source on loopback: the rows in their order, and what is asked of the network when."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
from typing import Any, Callable, Dict

import pytest
from agent.places import Place
from agent.sources import CONTENT, Fleet, artifact, name_of
from support.web import Act, Serve, answer

from slotcore import checks, codes, trust_record
from slotcore import product as products
from slotward import fetch, lock, manager, prepare, sourced

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "operator" / "source.md"


@pytest.fixture
def fleet(place: Place, serving: Serve) -> Fleet:
    """A host that runs 1.0.0, and an empty source."""
    return Fleet(place, serving)


def code_of(act: Callable[[], object]) -> str:
    """The code that it ends in."""
    with pytest.raises((codes.Refused, codes.Retryable)) as caught:
        act()
    return str(caught.value.code)  # type: ignore[attr-defined]


def test_a_release_by_version_is_found_chosen_and_fetched(fleet: Fleet) -> None:
    """Whoever asks says a version: the address, the file and its digest are the host's own to find."""
    fleet.release()
    setup, prepared = fleet.setup(), fleet.judged()
    assert (prepared.record.sequence, prepared.record.sha256) == (2, hashlib.sha256(CONTENT).hexdigest())
    assert (prepared.target.url, prepared.there, prepared.reuse) == ("", False, False)
    assert fleet.asked() == ["/pub/v1.1.0/manifest.json", "/pub/v1.1.0/withdrawn.json"]
    assert fetch.sources_of(setup, prepared.target) == (f"http://{fleet.host}/pub/v1.1.0/{name_of('1.1.0')}",)
    descriptor = fetch.stage(setup, prepared, None)
    assert os.pread(descriptor, 100, 0) == CONTENT
    os.close(descriptor)
    assert prepare.judged(setup, prepared.seen, prepared.target, prepare.Consent()).staged


# -- the rows of the page, in their order -----------------------------------------------------------------------------


def _in_progress(fleet: Fleet) -> str:
    def act() -> None:
        with lock.held(fleet.product, "upgrade to 1.1.0"), lock.held(fleet.product, "upgrade to 1.1.0"):
            raise AssertionError("two at once")

    return code_of(act)


def _staged(fleet: Fleet, content: bytes) -> str:
    fleet.release(artifacts=[artifact()])
    fleet.files[f"/pub/v1.1.0/{name_of('1.1.0')}"] = content
    setup, prepared = fleet.setup(), fleet.judged()
    return code_of(lambda: fetch.stage(setup, prepared, None))


def _refused(fleet: Fleet, **release: Any) -> str:
    fleet.release(**release)
    return code_of(fleet.judged)


def _found(fleet: Fleet, how: Dict[str, Any], **release: Any) -> str:
    """The refusal of a release that lies there, asked for so."""
    fleet.release(**release)
    return code_of(lambda: fleet.judged(**how))


def _answering(fleet: Fleet, act: Act) -> str:
    """The refusal where the source answers so for a manifest."""
    fleet.acts["/pub/v1.1.0/manifest.json"] = act
    return code_of(fleet.judged)


def _policy(**changes: Any) -> Dict[str, Any]:
    return {"policy": products.Policy(**changes)}


ROWS: Dict[str, Callable[[Fleet], str]] = {
    "1 in-progress": _in_progress,
    "2 updates-disabled": lambda fleet: code_of(lambda: fleet.judged(**_policy(enabled=False))),
    "3 channel-not-allowed": lambda fleet: code_of(lambda: fleet.judged(channel="nightly")),
    "4 not-a-release": lambda fleet: code_of(lambda: fleet.judged("latest")),
    "5 below-min-version": lambda fleet: code_of(lambda: fleet.judged(**_policy(min_version="1.2.0"))),
    "5 other-major": lambda fleet: code_of(lambda: fleet.judged("2.0.0", **_policy(same_major=True))),
    "5 too-far-back": lambda fleet: code_of(lambda: fleet.judged("0.9.0")),
    "6 bad-url": lambda fleet: code_of(
        lambda: fleet.judged(source=products.Source(f"http://{fleet.host}/v{{version}}", ("other.example",)))
    ),
    "6 source-decides": lambda fleet: code_of(
        lambda: fleet.told(checks.Target("probe", "1.1.0", f"http://{fleet.host}/x", "0" * 64, ""))
    ),
    "7 download-refused": lambda fleet: code_of(fleet.judged),
    "7 download-failed": lambda fleet: _answering(fleet, answer(503)),
    "8 too-few-signatures": lambda fleet: _refused(fleet, by=fleet.keys[:1]),
    "8 bad-manifest": lambda fleet: _answering(fleet, answer(200, {}, b"<html>")),
    "9 wrong-version": lambda fleet: _refused(fleet, version="1.1.1", at="1.1.0"),
    "9 wrong-product": lambda fleet: _refused(fleet, product="other"),
    "9 wrong-channel": lambda fleet: _found(
        fleet, {"channel": "beta", **_policy(allowed_channels=("stable", "beta"))}, channel="stable"
    ),
    "9 expired": lambda fleet: _refused(fleet, issuedAt="2020-01-01T00:00:00Z", expiresAt="2020-01-02T00:00:00Z"),
    "10 below-floor": lambda fleet: _found(fleet, {"base_floor": 2}, sequence=1),
    "10 sequence-not-newer": lambda fleet: _found(fleet, _policy(strict_sequence=True), sequence=1),
    "11 no-artifact": lambda fleet: _refused(fleet, artifacts=[artifact(platform="linux-arm64", name="x")]),
    "11 artifact-too-large": lambda fleet: _refused(fleet, artifacts=[artifact(size=(512 << 20) + 1)]),
    "12 digest-mismatch": lambda fleet: _staged(fleet, CONTENT.upper()),
    "12 size-mismatch": lambda fleet: _staged(fleet, b"<html>not found</html>"),
    "13 wrong-kind": lambda fleet: _refused(fleet, artifacts=[artifact(kind="tar.gz")]),
}


@pytest.mark.parametrize("row", ROWS)
def test_C10_each_row_has_its_code_and_none_before_the_seventh_asks_the_network(fleet: Fleet, row: str) -> None:
    """Seed 002's table, in order. Policy and addresses are judged before the first request is sent."""
    number, code = row.split()
    if row == "13 wrong-kind":  # an archive where a slot is one file: there is nothing to unpack, so nothing is fetched
        code = codes.NO_ARTIFACT
    assert ROWS[row](fleet) == code
    assert bool(fleet.asked()) == (int(number) >= 7)
    fetched = [path for path in fleet.asked() if path.endswith(name_of("1.1.0"))]
    assert bool(fetched) == (int(number) == 12)


def test_the_page_has_these_rows() -> None:
    """The operator's table of their codes and ours is what the rows above show."""
    shown = re.findall(
        r"^\| ([0-9]+) \| [^|]* \| ([^|]*) \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(number) for number, _theirs, _ours in shown] == list(range(1, 14))
    for number, _theirs, ours in shown:
        seen = {row.split()[1] for row in ROWS if row.split()[0] == number and row.split()[1] != "wrong-kind"}
        listed = set(re.findall(r"`([a-z-]+)`", ours))
        assert seen <= listed, number
        assert listed <= set(codes.CODES), number


# -- S14, S15, N1, N6, N7, N8, N15 ------------------------------------------------------------------------------------


def test_S14_the_version_that_runs_is_no_work_and_no_question(fleet: Fleet) -> None:
    """By its record; a target with the digest of what runs is none either, whatever it is called elsewhere."""
    assert fleet.judged("1.0.0").there
    assert fleet.asked() == []
    fleet.release("1.0.0", artifacts=[artifact((fleet.place.slots / "a").read_bytes(), "1.0.0")], at="1.0.0")
    assert fleet.judged("1.0.0", variant=None).there
    there = checks.Target("probe", "1.0.0", "", hashlib.sha256((fleet.place.slots / "a").read_bytes()).hexdigest(), "")
    assert fleet.told(there).there


def test_S15_older_than_what_runs_is_refused_by_the_window_without_a_question(fleet: Fleet) -> None:
    """Who stands at a newer version hears why, and nothing is fetched."""
    assert code_of(lambda: fleet.judged("0.1.0")) == codes.TOO_FAR_BACK
    assert fleet.asked() == []


def test_N6_a_page_instead_of_a_manifest_is_refused_by_what_it_is(fleet: Fleet) -> None:
    """An error page with status 200 is no manifest; nothing of it reaches the disk."""
    fleet.acts["/pub/v1.1.0/manifest.json"] = answer(200, {"Content-Type": "text/html"}, b"<html>sign in</html>")
    with pytest.raises(codes.Refused, match=r"manifest\.json: the release manifest is malformed") as caught:
        fleet.judged()
    assert caught.value.code == codes.BAD_MANIFEST


def test_N7_platform_and_variant_choose_before_a_download(fleet: Fleet) -> None:
    """This host's platform and the variant of the product's file or of whoever asks; another is refused with what there is."""
    listed = [
        artifact(),
        artifact(b"full", variant="full", name=name_of("1.1.0") + "_full"),
        artifact(b"arm", platform="linux-arm64", name=name_of("1.1.0", "linux-arm64")),
    ]
    fleet.release(artifacts=listed)
    digest = {variant: fleet.judged(variant=variant).record.sha256 for variant in (None, "full")}
    assert digest == {None: hashlib.sha256(CONTENT).hexdigest(), "full": hashlib.sha256(b"full").hexdigest()}
    prepared = fleet.judged(platform="linux-arm64")
    assert prepared.record.sha256 == hashlib.sha256(b"arm").hexdigest()
    by_file = fleet.judged(variant=None, platform="linux-amd64")
    assert by_file.record.sha256 == digest[None]
    setup = fleet.setup(variant="full")
    again = prepare.judged(
        setup, manager.look(setup.product), checks.Target("probe", "1.1.0", "", "", ""), prepare.Consent()
    )
    assert fetch.sources_of(setup, again.target)[-1].endswith("_full")
    with pytest.raises(codes.Refused, match=r"linux_amd64_small \(binary, variant small\); it has .*_full") as caught:
        fleet.judged(variant="small")
    assert caught.value.code == codes.NO_ARTIFACT


def test_N8_a_mirror_of_this_host_is_asked_before_the_origin(fleet: Fleet, serving: Serve) -> None:
    """For the manifest and for the file; the origin is left in peace."""
    published = fleet.release()
    mirror = serving(
        lambda handler: (
            answer(200, {}, published)(handler) if handler.path.endswith("manifest.json") else answer(404)(handler)
        )
    )
    base = "http://127.0.0.1:%d/m" % mirror.server_address[1]
    prepared = fleet.judged(mirrors=(base,))
    assert fleet.asked() == []
    assert [request.path for request in mirror.requests] == [
        "/m/probe/1.1.0/manifest.json",
        "/m/probe/1.1.0/withdrawn.json",
    ]
    places = fetch.sources_of(fleet.setup(mirrors=(base,)), prepared.target)
    assert [place.rpartition("/")[0] for place in places] == [f"{base}/probe/1.1.0", f"http://{fleet.host}/pub/v1.1.0"]


@pytest.mark.parametrize("lies", ["down", "page", "stale"])
def test_N15_a_mirror_that_cannot_be_taken_is_passed_over(
    fleet: Fleet, serving: Serve, capsys: pytest.CaptureFixture[str], lies: str
) -> None:
    """Down, an error page, or an older manifest that has expired: the origin is asked, with a warning."""
    stale = fleet.release(issuedAt="2020-01-01T00:00:00Z", expiresAt="2020-01-02T00:00:00Z")
    fleet.release()
    bodies = {"down": answer(503), "page": answer(200, {}, b"<html>"), "stale": answer(200, {}, stale)}
    mirror = serving(bodies[lies])
    prepared = fleet.judged(mirrors=("http://127.0.0.1:%d" % mirror.server_address[1],))
    assert prepared.record.sequence == 2
    assert "the release is taken from another place" in capsys.readouterr().err


def test_N1_manifest_notice_and_file_travel_by_one_transport(fleet: Fleet) -> None:
    """One configuration for every fetch: a proxy that is not there stops all of them, not just some."""
    fleet.release()
    setup = fleet.setup()
    behind = setup._replace(config=setup.config._replace(proxy="http://127.0.0.1:9"))
    target = checks.Target("probe", "1.1.0", "", "", "")
    with pytest.raises(codes.Retryable, match="through the proxy"):
        prepare.judged(behind, manager.look(setup.product), target, prepare.Consent())
    assert fleet.asked() == []


# -- what was withdrawn -----------------------------------------------------------------------------------------------


def test_a_notice_beside_the_release_refuses_it_and_is_kept(fleet: Fleet) -> None:
    """As if it had been applied: in the record of trust and in the audit log; looking alone keeps nothing."""
    fleet.release()
    fleet.withdraw()
    assert code_of(fleet.judged) == codes.WITHDRAWN
    assert "trust.json" not in fleet.place.names()
    before = fleet.place.names()
    with pytest.raises(codes.Refused, match="was withdrawn: loses mail"):
        fleet.told(checks.Target("probe", "1.1.0", "", "", ""), noting=True)
    assert fleet.place.names() - before >= {"trust.json"}
    state = fleet.place.state()
    assert [entry.version for entry in (state.trust or trust_record.Trust()).withdrawn] == ["1.1.0"]
    assert [event.event for event in fleet.place.noted()] == ["withdrawn"]
    del fleet.files["/pub/v1.1.0/withdrawn.json"]
    assert code_of(fleet.judged) == codes.WITHDRAWN
    fleet.told(checks.Target("probe", "1.0.0", "", "", ""), noting=True)


@pytest.mark.parametrize("lies", ["unsigned", "page", "keys", "other"])
def test_N2_a_notice_that_does_not_count_stops_nothing(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], lies: str
) -> None:
    """It is told, but a release does not hang on what anybody could have put there."""
    published = fleet.release()
    fleet.withdraw(by=fleet.keys[:1])
    if lies != "unsigned":
        fleet.withdraw()
        other = {"page": b"<html>", "keys": published, "other": fleet.files["/pub/v1.1.0/withdrawn.json"]}
        if lies == "other":
            fleet.withdraw("1.1.1", 3)
            other["other"] = fleet.files["/pub/v1.1.1/withdrawn.json"]
        fleet.files["/pub/v1.1.0/withdrawn.json"] = other[lies]
    assert fleet.judged().record.sequence == 2
    assert ("does not count" in capsys.readouterr().err) == (lies != "other")


def test_a_notice_that_cannot_be_fetched_is_told(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    """The server is busy with it alone."""
    fleet.release()
    fleet.acts["/pub/v1.1.0/withdrawn.json"] = answer(503)
    assert fleet.judged().record.sequence == 2
    assert "cannot say whether probe 1.1.0 was withdrawn" in capsys.readouterr().err


# -- targets of a product with a source -------------------------------------------------------------------------------


def test_a_target_without_an_address_is_fetched_from_the_source(fleet: Fleet) -> None:
    """The control side may bring the manifest: what is staged for an operator's word is asked for so again."""
    prepared = fleet.judged() if fleet.release() else None
    assert prepared is not None
    asked = len(fleet.asked())
    again = fleet.told(prepared.target)
    assert (again.record, len(fleet.asked())) == (prepared.record, asked)
    assert fetch.sources_of(fleet.setup(), again.target)[0].startswith(f"http://{fleet.host}/pub/v1.1.0/")


def test_a_digest_alone_is_no_release_where_keys_are_pinned(fleet: Fleet) -> None:
    """Trust is root's to choose, never whoever asks."""
    target = checks.Target("probe", "1.1.0", "", hashlib.sha256(CONTENT).hexdigest(), "")
    assert code_of(lambda: fleet.told(target)) == codes.NO_MANIFEST
    assert code_of(lambda: fleet.told(target, trust=products.DIGEST)) == codes.NO_MANIFEST
    assert code_of(lambda: fleet.told(target, source=None)) == codes.NO_MANIFEST
    assert fleet.asked() == []


def test_what_a_command_line_asks_for(fleet: Fleet) -> None:
    """A product without a source, an odd channel or variant: refused before anything else is looked at."""
    import argparse

    def args(**given: Any) -> argparse.Namespace:
        return argparse.Namespace(**{"version": "1.1.0", "channel": None, "variant": None, **given})

    assert sourced.asked(fleet.setup(), args(channel="beta", variant="full")) == checks.Target(
        "probe", "1.1.0", "", "", "", "beta", "full"
    )
    for setup, given in (
        (fleet.setup(source=None), {}),
        (fleet.setup(), {"channel": "a b"}),
        (fleet.setup(), {"variant": "Full"}),
    ):
        with pytest.raises(codes.Refused) as caught:
            sourced.asked(setup, args(**given))
        assert caught.value.code == codes.BAD_TARGET
