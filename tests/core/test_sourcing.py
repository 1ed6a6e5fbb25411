# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of a product's source: from root's template and the version alone, on hosts that root named."""

from __future__ import annotations

import string
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, manifest, sourcing, target
from slotcore import product as products

SOURCE = products.Source("https://releases.example/toy/v{version}/", ("releases.example",), ("*.cdn.example",))
HOSTS = ("releases.example", "[2001:db8::1]", "other.example:8443")
LED = ("cdn.example", "*.assets.example", "*.far.example:444")


def test_a_base_is_the_template_with_the_version_in_it() -> None:
    """Whoever asks says a version; every other character is root's."""
    assert sourcing.base_of(SOURCE, "1.2.0+b.1") == "https://releases.example/toy/v1.2.0+b.1"
    assert sourcing.places(SOURCE, "toy", "1.2.0", ()) == ("https://releases.example/toy/v1.2.0",)


def test_mirrors_are_asked_before_the_source() -> None:
    """A site's mirror keeps its hosts away from the origin (N8), and its host may be named as well."""
    mirrors = ("https://mirror.example:8443/pub/", "https://mirror.example:8443/pub")
    found = sourcing.places(SOURCE, "toy", "1.2.0", mirrors)
    assert found == ("https://mirror.example:8443/pub/toy/1.2.0", "https://releases.example/toy/v1.2.0")
    assert sourcing.hosts_of(SOURCE, mirrors) == ("releases.example", "mirror.example:8443")


@pytest.mark.parametrize(
    "url",
    [
        "https://releases.example/toy/v1.2.0/manifest.json",
        "https://RELEASES.example/x",
        "https://releases.example:443/x",
        "https://releases.example",
        "https://releases.example/x?token=1",
        "https://[2001:db8::1]/x",
        "https://other.example:8443/x",
    ],
)
def test_an_address_on_a_named_host_is_taken(url: str) -> None:
    """The host is compared by name and port, however it is spelled."""
    assert sourcing.check_address(url, HOSTS) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://releases.example/x", "expected https://"),
        ("https://evil.example/x", "its host is none of those"),
        ("https://releases.example.evil.example/x", "its host is none of those"),
        ("https://sub.releases.example/x", "its host is none of those"),
        ("https://releases.example:444/x", "its host is none of those"),
        ("https://other.example/x", "its host is none of those"),
        ("https://releases.example@evil.example/x", "expected a plain host"),
        ("https://releases.example\\@evil.example/x", "expected https://host/path"),
        ("https://evil.example#releases.example/", "expected https://host/path"),
        ("https://releases.example./x", "expected a plain host"),
        ("https://releases.example:99999/x", "expected a plain host"),
        ("https://releases.example:0/x", "expected a plain host"),
        ("https:///x", "expected a plain host"),
        ("https://releases.example /x", "expected https://host/path"),
        ("https://r\u00e9leases.example/x", "expected https://host/path"),
        ("file:///etc/passwd", "expected https://host/path"),
        ("", "cannot fetch from an empty address"),
        ("https://releases.example/" + "x" * 2024, "it has 2049 characters; at most 2048 are taken"),
    ],
)
def test_another_address_is_refused_with_the_reason(url: str, why: str) -> None:
    """Each way to another host, and each odd spelling, has its sentence and one code."""
    found = sourcing.check_address(url, HOSTS)
    assert found is not None
    assert (found.code, why in found.text) == (codes.BAD_URL, True), found.text


def test_the_longest_address_is_taken() -> None:
    """2,048 characters are a bound, not one too many."""
    assert sourcing.check_address("https://releases.example/" + "x" * 2023, HOSTS) is None


def test_http_needs_the_word_of_the_configuration() -> None:
    """A test may say so; its own port counts."""
    assert sourcing.check_address("http://releases.example:80/x", HOSTS, allow_http=True) is None
    assert sourcing.check_redirect("http://cdn.example/x", HOSTS, LED, allow_http=True) is None


def test_a_star_is_no_host_that_an_address_may_name() -> None:
    """Exact hosts are exact, even if somebody wrote a suffix among them."""
    assert sourcing.check_address("https://a.cdn.example/x", ("*.cdn.example",)) is not None


@pytest.mark.parametrize(
    "url",
    [
        "https://releases.example/x",
        "https://cdn.example/x",
        "https://a.assets.example/x?sig=1",
        "https://a.b.assets.example/x",
        "https://a.far.example:444/x",
    ],
)
def test_a_redirect_may_lead_to_named_hosts_and_below_suffixes(url: str) -> None:
    """The server chooses among them; the digest decides about the bytes."""
    assert sourcing.check_redirect(url, HOSTS, LED) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://cdn.example/x",
        "https://assets.example/x",
        "https://evilassets.example/x",
        "https://a.assets.example.evil.example/x",
        "https://a.far.example/x",
        "https://sub.cdn.example/x",
        "https://cdn.example:444/x",
        "https://user@cdn.example/x",
        "https://cdn.example/" + "x" * 2048,
        "//cdn.example/x",
    ],
)
def test_a_redirect_elsewhere_is_refused(url: str) -> None:
    """A suffix begins at a dot, and the bare suffix is not below itself."""
    found = sourcing.check_redirect(url, HOSTS, LED)
    assert found is not None
    assert found.code == codes.BAD_REDIRECT


def test_a_refusal_repeats_no_secret() -> None:
    """Queries and credentials of an address stay out of messages, and so does what would move a cursor."""
    found = sourcing.check_redirect("https://u:secret@evil.example/p?sig=secret\x1b[2J", HOSTS, LED)
    assert found is not None
    assert "secret" not in found.text
    assert "\x1b" not in found.text
    assert "evil.example/p" in found.text


@given(
    st.text(alphabet=string.printable + "\u00e9\u202e\x00", max_size=80), st.sampled_from(["", "https://", "http://"])
)
def test_what_is_taken_leads_where_the_library_goes(rest: str, scheme: str) -> None:
    """Whatever is taken, the library that downloads reads the same host out of it."""
    url = scheme + rest
    if sourcing.check_address(url, HOSTS, allow_http=True) is None:
        parts = urlsplit(url)
        where = parts.hostname or ""
        assert where in ("releases.example", "2001:db8::1", "other.example"), url
        assert parts.username is None


@given(
    st.sampled_from(HOSTS + LED + ("evil.example",)),
    st.sampled_from(["", "a.", "a.b.", "-", "a-"]),
    st.sampled_from(["", ":443", ":444", ":8443"]),
)
def test_a_host_is_one_by_name_and_port(name: str, before: str, port: str) -> None:
    """The rule against a plain reading of it."""
    url = "https://" + before + name.replace("*", "x").partition(":")[0] + port + "/f"
    if name.startswith("["):
        url = "https://" + name + port + "/f"
    parts = urlsplit(url)
    where, at = parts.hostname or "", parts.port or 443
    exact = {("releases.example", 443), ("2001:db8::1", 443), ("other.example", 8443)}
    assert (sourcing.check_address(url, HOSTS) is None) == ((where, at) in exact)
    led = (where, at) in exact | {("cdn.example", 443)} or (where.endswith(".assets.example") and at == 443)
    led = led or (where.endswith(".far.example") and at == 444)
    led = led and "-." not in where and not where.startswith("-") and "-x." not in where[:2]
    assert (sourcing.check_redirect(url, HOSTS, LED) is None) == led, url


def _body(*artifacts: manifest.Artifact) -> manifest.Manifest:
    return manifest.Manifest("toy", "1.2.0", 2, 1, 2, (), artifacts)


def _artifact(platform: str, variant: str | None = None, kind: str = "binary", name: str = "") -> manifest.Artifact:
    name = name or target.artifact_name("toy", "1.2.0", platform, variant)
    return manifest.Artifact(name, platform, "0" * 64, 1, kind, variant)


def test_the_artifact_is_of_this_platform_variant_and_kind() -> None:
    """The first kind that the product takes wins; variants never stand in for each other."""
    full, plain = _artifact("linux-amd64", "full", "tar.gz"), _artifact("linux-amd64")
    archive = _artifact("linux-amd64", "tree", "tar.gz")
    body = _body(full, plain, archive, _artifact("linux-amd64", "tree"), _artifact("linux-arm64"))
    assert sourcing.choose(body, "linux-amd64", "full", ("tar.gz", "binary")) == full
    assert sourcing.choose(body, "linux-amd64", None, ("tar.gz", "binary")) == plain
    assert sourcing.choose(body, "linux-amd64", "tree", ("tar.gz", "binary")) == archive
    assert isinstance(sourcing.choose(body, "linux-amd64", "full", ("binary",)), codes.Refusal)


def test_N7_a_release_without_this_hosts_artifact_says_which_there_are() -> None:
    """Refused before a download, with what there is instead; a file of another name is none of this host's."""
    body = _body(_artifact("linux-arm64"), _artifact("linux-amd64", "full"), _artifact("linux-amd64", name="toy.bin"))
    found = sourcing.choose(body, "linux-amd64", None, ("binary",))
    assert found == codes.Refusal(
        codes.NO_ARTIFACT,
        "the release toy 1.2.0 has no artifact for toy_1.2.0_linux_amd64 (binary); it has toy.bin (binary), "
        "toy_1.2.0_linux_amd64_full (binary, variant full), toy_1.2.0_linux_arm64 (binary)",
    )


def test_a_variant_has_the_form_that_manifests_give_it() -> None:
    """None is one too: the release without variants."""
    assert sourcing.variant_problem("") == ""
    assert sourcing.variant_problem("rockchip-2_x") == ""
    assert "not 'Full/x'" in sourcing.variant_problem("Full/x")
