# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file that goes into a release says about itself by its name.

Rules:

* ``FILE``, ``FILE:os-arch`` or ``FILE:os-arch:variant``; without the platform the name must end in ``_os_arch``, and what
  the name and what is given say must not disagree.
* A name ``<product>_<version>_<os>_<arch>``, or one with ``_<variant>`` after it, names the very product and version that
  are released.
* Any other name that has versions in it has the released one among them.
* A platform is spelled as hosts spell their own: ``linux-amd64``, not ``linux-x86_64``.
* A name that ends in ``.tar.gz`` is an archive, everything else a program.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

from . import codes, manifest, target

ARCHIVE_END = ".tar.gz"
HOSTS = ("linux-amd64", "linux-arm64")
"""What the hosts that the agent is made for call themselves."""
ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of machines that hosts have another name for."""
_WHOLE = re.compile(
    r"([a-z][a-z0-9-]*)_([0-9][^_]*)_([a-z][a-z0-9]*)_(x86_64|[a-z0-9]+)(?:_([a-z0-9][a-z0-9_-]{0,31}))?"
)
_CORE = re.compile(r"(?<![0-9.])[0-9]+\.[0-9]+\.[0-9]+(?![0-9])")


class Source(NamedTuple):
    """A file, the platform it is for, its kind, and of which variant of the build it is, if of any."""

    path: str
    platform: str
    kind: str
    variant: Optional[str] = None


def source(spec: str, product: str, version: str) -> Source:
    """The file that `spec` names, for a release of this product and version. Raises Refused."""
    path, given, variant = _given(spec)
    name = path.rpartition("/")[2]
    archive = name.endswith(ARCHIVE_END)
    stem = name[: -len(ARCHIVE_END)] if archive else name
    platform, named = _check_name(path, stem, product, version)
    if not (given or platform):
        text = "cannot tell the platform of %s: its name does not end in _os_arch; write %s:linux-amd64 (hosts are %s)"
        raise codes.refused(codes.BAD_RELEASE, text % (path, path, " and ".join(HOSTS)))
    if named and given == "%s_%s" % (platform, named):
        platform, named = given, ""  # an arch with an underscore in it, as it is given
    found = given or platform
    if hosts_name(found) != found:
        raise _unspelled(path, found, hosts_name(found))
    for what, first, second in (
        ("platform", given, hosts_name(platform) if platform else ""),
        ("variant", variant, named),
    ):
        if first and second and first != second:
            text = "%s is for %s by its name, and %s is given: rename it, or give what it is for"
            raise codes.refused(codes.BAD_RELEASE, text % (path, (platform if what == "platform" else second), first))
    return Source(path, found, manifest.KINDS[1] if archive else manifest.KINDS[0], variant or named or None)


def _given(spec: str) -> Tuple[str, str, str]:
    """The path, the platform and the variant that stand in `spec`; "" for what does not."""
    path, _colon, last = spec.rpartition(":")
    before, _colon, platform = path.rpartition(":")
    if before and (manifest.is_platform(platform) or _is_unspelled(platform)) and manifest.is_variant(last):
        path, last, variant = before, platform, last
    else:
        variant = ""
    if path and _is_unspelled(last):  # linux_amd64, as it stands in names of files
        raise _unspelled(path, last, hosts_name(last.replace("_", "-", 1)))
    if path and manifest.is_platform(last):
        return path, last, variant
    return spec, "", ""


def _is_unspelled(given: str) -> bool:
    return not manifest.is_platform(given) and hosts_name(given.replace("_", "-", 1)) in HOSTS


def hosts_name(platform: str) -> str:
    """The platform as hosts of it spell it."""
    system, _dash, arch = platform.partition("-")
    return "%s-%s" % (system, ARCHES.get(arch, arch))


def _unspelled(path: str, found: str, right: str) -> codes.Refused:
    text = "%s is for %s, and no host calls itself that: write %s:%s (hosts are %s)"
    return codes.refused(codes.BAD_RELEASE, text % (path, found, path, right, " and ".join(HOSTS)))


def _check_name(path: str, stem: str, product: str, version: str) -> Tuple[str, str]:
    """The platform and the variant in the name, or nothing; refused when it is of another product or version."""
    whole = _WHOLE.fullmatch(stem)
    if whole is None:
        found = _CORE.findall(stem)
        if found and version.partition("-")[0].partition("+")[0] not in found:
            raise _other(path, "version %s" % found[0], version)
        plain = target.platform_of(re.sub("_x86_64$", "_amd64", stem)) or ""
        return (plain.replace("-amd64", "-x86_64") if stem.endswith("_x86_64") else plain), ""
    if whole.group(1) != product:
        raise _other(path, "product %s" % whole.group(1), product)
    if whole.group(2) != version:
        raise _other(path, "version %s" % whole.group(2), version)
    return "%s-%s" % whole.groups()[2:4], whole.group(5) or ""


def _other(path: str, found: str, wanted: str) -> codes.Refused:
    text = "%s is of %s by its name, not %s: give the right file, or rename it when its name is wrong"
    return codes.refused(codes.BAD_RELEASE, text % (path, found, wanted))
