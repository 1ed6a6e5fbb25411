# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the releases beside one, which a host below its `minFrom` may have to pass first.

Rules:

* A stone is checked as the release is; a release that does not pass, or that was withdrawn, is none.
* In a directory they are what lies there; behind a URL the catalogue says where to look, and nothing else is believed of it.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence

from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import catalogue, codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import releases

WITHDRAWN = "withdrawn.json"
MAX_STONES = 32


def find(
    release: releases.Release,
    pins: Sequence[str] = (),
    threshold: int = 1,
    allow_http: bool = False,
    ca_file: Optional[str] = None,
) -> List[releases.Release]:
    """The releases beside this one that a host may have to pass first, the highest sequence first.

    Only a release with `minFrom` has any. Each is checked as this one was; what does not pass, or was withdrawn, is no stone:
    the way is then planned without it, and says so when there is none. A catalogue behind a URL is a hint for where to look.
    """
    if release.manifest.min_from is None:
        return []
    found = []
    for place in _beside(release, allow_http, ca_file):
        try:
            one = releases.read(place, pins, threshold, release.manifest.product, None, allow_http, ca_file)
        except (codes.Refused, codes.Retryable):
            continue
        if one.manifest.sequence < release.manifest.sequence:
            found.append(one)
    return sorted(found, key=lambda one: one.manifest.sequence, reverse=True)


def target(release: releases.Release, one: releases.Release, url: Optional[str]) -> Dict[str, Any]:
    """The word to any host for a stepping stone of `release`, which hosts fetch from `url`."""
    return releases.target(one, sibling(url, release.manifest.version, one.manifest.version))


def sibling(url: Optional[str], version: str, other: str) -> Optional[str]:
    """Where another version lies, by the address of this one; None when the address does not end in the version."""
    base, _slash, name = (url or "").rstrip("/").rpartition("/")
    return "%s/%s" % (base, other) if base and name == version else None


def _beside(release: releases.Release, allow_http: bool, ca_file: Optional[str]) -> List[str]:
    """Where the other releases of the product are, those that are known as withdrawn left out."""
    own = release.url or release.directory or ""
    base, _slash, name = own.rpartition("/")
    if release.url is None:
        places = [os.path.join(base, entry) for entry in sorted(os.listdir(base)) if entry != name]
        return [
            place
            for place in places
            if os.path.isfile(os.path.join(place, releases.MANIFEST))
            and not os.path.exists(os.path.join(place, WITHDRAWN))
        ]
    try:
        listed = catalogue.parse(releases.fetch("%s/%s" % (base, catalogue.NAME), allow_http, ca_file)).releases
    except (codes.Refused, codes.Retryable, catalogue.BadCatalogue):
        return []
    names = [one.version for one in listed if one.sequence < release.manifest.sequence and not one.withdrawn]
    return ["%s/%s" % (base, version) for version in names[:MAX_STONES]]
