# SPDX-License-Identifier: GPL-3.0-or-later
"""Upgrades whose bytes come over the network: https with an own authority, http for tests, and servers that are wrong."""

from __future__ import annotations

import pathlib
import re

import pytest
from support import node as nodes
from support import releases, server

CA = "/etc/slotward/ca.pem"


@pytest.fixture
def authority(node: nodes.Node, tmp_path: pathlib.Path) -> server.Authority:
    """An authority that the host trusts for downloads, and nothing else does."""
    made = server.make_authority(tmp_path / "authority", [node.host.controller_address])
    node.host.put(made.ca, CA)
    node.configure(ca_file=CA)
    return made


def fetch(node: nodes.Node, release: releases.Release, url: str, *flags: str) -> nodes.Answer:
    """Upgrade by download."""
    return node.slotward("upgrade", "--target", node.target(release, url), "--no-wait", *flags)


@pytest.mark.host
def test_an_upgrade_over_https_with_an_own_authority(
    node: nodes.Node, authority: server.Authority, v110: releases.Release
) -> None:
    """Downloaded, verified, tried, confirmed; the staging directory is empty afterwards."""
    with server.FileServer(node.host.controller_address, authority) as files:
        answer = fetch(node, v110, files.url(v110.artifact))
        assert (answer.exit, answer.json["state"]) == (0, "trial"), answer
        assert files.requests == [f"/{v110.artifact.name}"]
    assert re.search(r"slotward 1\.1\.0: [0-9.]+ [KM]iB of [0-9.]+ [KM]iB \(100 %\)", answer.errors), answer.errors
    assert node.confirm(str(answer.json["trial"]["id"])).json["state"] == "confirmed"
    assert node.sh(f"sha256sum <{nodes.ENTRYPOINT}").split()[0] == answer.json["to_sha256"]


@pytest.mark.hosts
def test_N15_a_host_takes_a_release_from_whichever_place_has_it(
    node: nodes.Node, v110: releases.Release, v120: releases.Release, tmp_path: pathlib.Path
) -> None:
    """N15, N1: a mirror that nobody answers at, one with other bytes, one without the file, and at last the release's own address."""
    address, name = node.host.controller_address, v110.artifact.name
    lie = tmp_path / "lie"
    lie.write_bytes(v120.artifact.read_bytes()[: v110.artifact.stat().st_size].ljust(v110.artifact.stat().st_size))
    with server.FileServer(address) as files:
        url = files.url(v110.artifact)
        base = url.rpartition("/")[0]
        files.files[f"/lies/slotward/1.1.0/{name}"] = lie
        node.configure(mirrors=f"http://{address}:9/x, {base}/lies, {base}/behind", allow_http=True)
        asked = node.slotward("prepare", "--target", node.target(v110, url))
        assert [one["ok"] for one in asked.json["sources"]] == [False, True, False, True], asked
        assert "answers 404" in asked.json["sources"][2]["message"]
        files.requests.clear()
        answer = fetch(node, v110, url)
        assert answer.json["state"] == "trial", answer
        assert files.requests == [f"/lies/slotward/1.1.0/{name}", f"/behind/slotward/1.1.0/{name}", f"/{name}"]
    assert "the download has the SHA-256" in answer.errors
    assert node.confirm(str(answer.json["trial"]["id"])).json["state"] == "confirmed"
    node.runnable()


@pytest.mark.host
def test_what_was_staged_is_not_fetched_again(
    node: nodes.Node, authority: server.Authority, v110: releases.Release
) -> None:
    """--stage-only fetches and switches nothing; the upgrade then makes no request, and neither does a second staging."""
    with server.FileServer(node.host.controller_address, authority) as files:
        url = files.url(v110.artifact)
        staged = fetch(node, v110, url, "--stage-only")
        assert (staged.exit, staged.json["state"], node.link("current")) == (0, "staged", "a"), staged
        assert fetch(node, v110, url, "--stage-only").exit == 0
        answer = fetch(node, v110, url)
        assert len(files.requests) == 1
    assert node.confirm(str(answer.json["trial"]["id"])).exit == 0


@pytest.mark.hosts
def test_D3_what_was_staged_and_then_passed_over_goes_with_the_next_switch(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """D3: a release that nobody came back for, and what a download left of another, do not lie there for ever."""
    target, src = node.target(v110), node.put(v110.artifact)
    staged = node.slotward("upgrade", "--target", target, "--src", src, "--stage-only")
    assert staged.json["state"] == "staged", staged
    others = f"{nodes.STAGING}/slotward-1.0.5.part {nodes.STAGING}/slotward-x-1.0.0"
    node.sh(f"touch {others}")
    node.upgraded(v120)  # pushed: it is not staged itself
    assert node.sh(f"ls {nodes.STAGING}").split() == ["slotward-x-1.0.0"], "what is another product's stays"
    node.sh(f"rm {nodes.STAGING}/slotward-x-1.0.0")


@pytest.mark.hosts
def test_a_release_that_went_back_is_taken_from_its_slot(node: nodes.Node, v110: releases.Release) -> None:
    """The other slot still holds its bytes: once it is allowed again, no download and no server is needed."""
    trial = node.on_trial(v110)
    node.slotward("rollback", "--id", trial)
    node.slotward("update", "--clear-failed")
    target = node.target(v110, "https://releases.invalid/none")
    told = node.slotward("prepare", "--target", target)
    assert (told.json["reuse"], told.json["artifact"]) == (True, None), told
    again = node.slotward("upgrade", "--target", target, "--no-wait")
    assert again.json["state"] == "trial", again
    assert node.confirm(str(again.json["trial"]["id"])).exit == 0


@pytest.mark.host
def test_a_server_without_a_trusted_certificate_gets_nothing(
    node: nodes.Node, authority: server.Authority, v110: releases.Release, tmp_path: pathlib.Path
) -> None:
    """Another authority of the same name is not trusted, and the refusal is final."""
    other = server.make_authority(tmp_path / "other", [node.host.controller_address])
    with server.FileServer(node.host.controller_address, other) as files:
        answer = fetch(node, v110, files.url(v110.artifact))
        assert (answer.exit, answer.code) == (3, "untrusted-server"), answer
        assert files.requests == []
    assert node.link("current") == "a"


@pytest.mark.host
def test_other_bytes_than_were_signed_never_reach_a_slot(
    node: nodes.Node, v110: releases.Release, v120: releases.Release, tmp_path: pathlib.Path
) -> None:
    """A server that is broken into can only waste time: size and digest are the manifest's."""
    node.configure(allow_http=True)
    with server.FileServer(node.host.controller_address) as files:
        same_size = tmp_path / "same-size"
        data = bytearray(v110.artifact.read_bytes())
        data[-1] ^= 1
        same_size.write_bytes(data)
        answer = fetch(node, v110, files.url(same_size))
        assert (answer.exit, answer.code) == (3, "digest-mismatch"), answer
        longer = tmp_path / "longer"
        longer.write_bytes(v110.artifact.read_bytes() + b"x")
        answer = fetch(node, v110, files.url(longer))
        assert (answer.exit, answer.code) == (3, "size-mismatch"), answer
        missing = fetch(node, v110, files.url(v110.artifact) + ".gone")
        assert (missing.exit, missing.code) == (3, "download-refused"), missing
    assert node.link("current") == "a"
    assert "b" not in node.names()
    assert node.names() <= nodes.AT_REST
    assert node.update()["failed"] == []
    node.upgraded(v110)


@pytest.mark.hosts
def test_a_server_that_is_not_there_is_no_refusal(node: nodes.Node, v110: releases.Release) -> None:
    """Nobody answers: try again later, and nothing on the host has changed."""
    with server.FileServer(node.host.controller_address) as files:
        url = files.url(v110.artifact)
    node.configure(allow_http=True)
    answer = fetch(node, v110, url)
    assert (answer.exit, answer.code) == (4, "download-failed"), answer
    assert node.update()["state"] == "idle"
    node.sh(f"rm -rf {nodes.STAGING}/*.part*")
