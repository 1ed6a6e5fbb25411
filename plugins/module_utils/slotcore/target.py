# SPDX-License-Identifier: GPL-3.0-or-later
"""What the control side hands a host: a version, where its file is, and the manifest that vouches for it.

Rules:

* A target has exactly its fields, all strings; ``signature`` is the published manifest as text. Only ``channel`` and
  ``variant``, the channel and the variant of the build that are asked for, may be left out.
* The digest may be written in capitals; from here on it is lower case.
* The file that a host runs is named ``<product>_<version>_<os>_<arch>``; that of a variant may have ``_<variant>`` after it.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

from . import codes, fields, manifest

MAX_BYTES = 6 << 20

_PLATFORM_END = re.compile(r".+_([a-z][a-z0-9]*)_([a-z0-9]+)")


class Target(NamedTuple):
    """The control side's word to a host."""

    product: str
    version: str
    url: str
    sha256: str
    signature: str
    channel: Optional[str] = None
    variant: Optional[str] = None
    """The one that is asked for, where it is not the one that the product names."""


_NEEDED = Target._fields[:-2]


def parse(data: bytes) -> Target:
    """The target in `data`.

    Raises:
        codes.Refused: `bad-target`, naming the field.

    """
    try:
        found = fields.Fields(fields.read(data, "the target", MAX_BYTES), "", _NEEDED, ("channel", "variant"))
        channel = found.optional("channel", manifest.CHANNEL, manifest.CHANNEL_RULE)
        variant = found.optional("variant", manifest.VARIANT, manifest.VARIANT_RULE)
        target = Target._make([*(found.text(name) for name in _NEEDED), channel, variant])
    except fields.BadField as error:
        raise codes.refused(codes.BAD_TARGET, "the target is malformed: %s" % error) from None
    return target._replace(sha256=target.sha256.lower())


def artifact_name(product: str, version: str, platform: str, variant: Optional[str] = None) -> str:
    """The name of the file that a host of `platform` (``os-arch``) runs, and of that variant."""
    name = "%s_%s_%s" % (product, version, platform.replace("-", "_", 1))
    return "%s_%s" % (name, variant) if variant else name


def named_for(body: manifest.Manifest, platform: str) -> Tuple[manifest.Artifact, ...]:
    """The artifacts that a release has for this platform, each by its name too; which variant a host takes is its own matter."""
    named = (body.product, body.version, platform)
    return tuple(
        one
        for one in body.artifacts
        if one.platform == platform and one.name in (artifact_name(*named), artifact_name(*named, one.variant))
    )


def platform_of(name: str) -> Optional[str]:
    """The platform that a file name ends with, or None."""
    match = _PLATFORM_END.fullmatch(name)
    return "%s-%s" % match.groups() if match else None
