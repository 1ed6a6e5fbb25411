# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a release is fetched from when whoever asks names a version and a channel, never an address (products.md, section 8).

Rules:

* Addresses come from root's template and the version alone: ``<base>/manifest.json``, ``<base>/<artifact's name>``.
* An address is https (http only where a test may), printable ASCII, at most 2,048 characters, without credentials.
* Its host is exactly one of those that are named. A redirect may lead to further ones, and to ``*.suffix``: there the
  server chooses, and the digest decides.
* A host is compared with its port; one that is written without a port has the scheme's own.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Sequence, Tuple, Union

from . import codes, manifest, target
from . import product as products

MAX_URL = 2048
MAX_HOPS = 5
METADATA_S, BODY_S = 30.0, 600.0
"""How long a manifest may take, and the release itself, all attempts together."""
MANIFEST, WITHDRAWN = "manifest.json", "withdrawn.json"
PLACE = "{version}"

_URL = re.compile(r"(https?)://([^/?#]*)((?:/[^?#]*)?)((?:\?[^#]*)?)")
_PLAIN = re.compile(r"[!-\[\]-~]+")  # no backslash, which some readers take for a slash
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(r"(%s(?:\.%s)*|\[[0-9a-f:.]{2,45}\])(?::([1-9][0-9]{0,4}))?" % (_LABEL, _LABEL))
_OWN_PORTS = {"https": 443, "http": 80}
_BELOW = "*."


class Host(NamedTuple):
    """A host by its name, in lower case, and its port."""

    name: str
    port: int


class Address(NamedTuple):
    """What counts of an address."""

    scheme: str
    host: Host


def parse(url: str) -> Union[Address, str]:
    """The address, or what is wrong with it."""
    if len(url) > MAX_URL:
        return "it has %d characters; at most %d are taken" % (len(url), MAX_URL)
    found = _URL.fullmatch(url) if _PLAIN.fullmatch(url) else None
    if found is None:
        return "expected https://host/path in printable ASCII, without a fragment"
    host = _host(found.group(2), found.group(1))
    return "expected a plain host, without credentials" if host is None else Address(found.group(1), host)


def _host(text: str, scheme: str) -> Optional[Host]:
    found = _HOST.fullmatch(text.lower())
    if found is None or int(found.group(2) or 0) > 65535:
        return None
    return Host(found.group(1), int(found.group(2) or _OWN_PORTS[scheme]))


def base_of(source: products.Source, version: str) -> str:
    """The base address of one release; the version is one."""
    return source.url.rstrip("/").replace(PLACE, version)


def check_address(url: str, hosts: Sequence[str], allow_http: bool = False) -> Optional[codes.Refusal]:
    """Whether something may be fetched from this address, which this host or a signed document named."""
    found = parse(url)
    problem = found if isinstance(found, str) else _scheme_problem(found, allow_http)
    if isinstance(found, Address) and not problem and not _is_one_of(found, hosts, below=False):
        problem = "its host is none of those that the product's source names ([source] hosts): %s" % ", ".join(hosts)
    return codes.Refusal(codes.BAD_URL, "cannot fetch from %s: %s" % (shown(url), problem)) if problem else None


def check_redirect(
    url: str, hosts: Sequence[str], redirect_hosts: Sequence[str], allow_http: bool = False
) -> Optional[codes.Refusal]:
    """Whether a server may lead here."""
    found = parse(url)
    problem = found if isinstance(found, str) else _scheme_problem(found, allow_http)
    if isinstance(found, Address) and not problem and not _is_one_of(found, (*hosts, *redirect_hosts), below=True):
        named = ", ".join((*hosts, *redirect_hosts))
        problem = "its host is none of those that redirects may lead to ([source] redirect_hosts): %s" % named
    text = "the server redirects to %s, which is not taken: %s"
    return codes.Refusal(codes.BAD_REDIRECT, text % (shown(url), problem)) if problem else None


def _is_one_of(found: Address, named: Sequence[str], below: bool) -> bool:
    return any(_fits(found, one, below) for one in named)


def _fits(found: Address, named: str, below: bool) -> bool:
    """Whether a host is the named one or, where `below` is allowed and ``*.`` stands before it, lies below that."""
    below = below and named.startswith(_BELOW)
    wanted = _host(named[len(_BELOW) :] if below else named, found.scheme)
    if wanted is None or found.host.port != wanted.port:
        return False
    return found.host.name.endswith("." + wanted.name) if below else found.host.name == wanted.name


def _scheme_problem(found: Address, allow_http: bool) -> str:
    if found.scheme == "https" or allow_http:
        return ""
    return "expected https:// (http only with [update] allow_http, for tests)"


def shown(url: str) -> str:
    """An address as a message may repeat it: without query and credentials, in plain characters, not too long."""
    scheme, colon, rest = url[: MAX_URL + 1].partition("?")[0].partition("#")[0].partition("://")
    where, slash, path = rest.partition("/")
    bare = scheme + colon + where.rpartition("@")[2] + slash + path
    return ascii(bare[:200])[1:-1] or "an empty address"


def choose(
    body: manifest.Manifest, platform: str, variant: Optional[str], kinds: Sequence[str]
) -> Union[manifest.Artifact, codes.Refusal]:
    """The file of a release that this host runs: of its platform and variant, and of the first of these kinds."""
    for kind in kinds:
        for one in target.named_for(body, platform):
            if (one.variant, one.kind) == (variant, kind):
                return one
    there = ", ".join(sorted(_said(one.name, one.variant, one.kind) for one in body.artifacts))
    name = target.artifact_name(body.product, body.version, platform, variant)
    wanted = _said(name, variant, " or ".join(kinds))
    text = "the release %s %s has no artifact for %s; it has %s"
    return codes.Refusal(codes.NO_ARTIFACT, text % (body.product, body.version, wanted, there))


def _said(name: str, variant: Optional[str], kind: str) -> str:
    return "%s (%s, variant %s)" % (name, kind, variant) if variant else "%s (%s)" % (name, kind)


def variant_problem(variant: str) -> str:
    """What is wrong with the variant that somebody asks for; empty when nothing is."""
    if not variant or manifest.is_variant(variant):
        return ""
    return "a variant is %s, not %s" % (manifest.VARIANT_RULE, ascii(variant)[:80])


def places(source: products.Source, product: str, version: str, mirrors: Sequence[str]) -> Tuple[str, ...]:
    """The base addresses of one release, in the order in which they are asked: this host's mirrors, then the source."""
    found = ["%s/%s/%s" % (one.rstrip("/"), product, version) for one in mirrors]
    return tuple(dict.fromkeys([*found, base_of(source, version)]))


def hosts_of(source: products.Source, mirrors: Sequence[str]) -> Tuple[str, ...]:
    """The hosts that an address of this product may name: the source's, and those of mirrors that root named."""
    named = [one.partition("//")[2].partition("/")[0] for one in mirrors]
    return tuple(dict.fromkeys([*source.hosts, *named]))
