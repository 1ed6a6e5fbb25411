# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage: bring a release's bytes into the staging directory, verified, or open what a controller pushed (DESIGN 6)."""

from __future__ import annotations

import os
import sys
from typing import Optional, Tuple

from slotcore import checks, codes, sourcing
from slotward import download, effects, gate, own, prepare, staging

NOWHERE = "the target names no url, no file was given with --src and there are no mirrors: nothing to fetch"


def pushed(path: str) -> int:
    """A descriptor of a file that the controller put on the host, opened by the rules for staged files."""
    return staging.open_staged(os.path.dirname(os.path.abspath(path)), os.path.basename(path))


def transport_of(setup: own.Setup) -> download.Transport:
    """The one transport configuration for every fetch (field case N1)."""
    config, source = setup.config, setup.product.source
    found = download.Transport(allow_http=config.allow_http, ca_file=config.ca_file, proxy=config.proxy)
    if source is None:
        return found
    hosts = sourcing.hosts_of(source, setup.product.mirrors)
    return found._replace(hosts=hosts, redirect_hosts=source.redirect_hosts, budget_s=sourcing.BODY_S)


def stage(setup: own.Setup, wanted: prepare.Prepared, src: Optional[str]) -> int:
    """A descriptor of the verified bytes under the staging directory; what lies there already is not fetched again."""
    path = prepare.staged_path(setup, wanted.target.version)
    directory, name = os.path.split(path)
    try:
        staging.make_directory(directory)
        staging.tidy(directory, keep=(name, name + ".part"), product=setup.product.name)
        if wanted.staged:
            return staging.open_staged(directory, name)
        part = path + ".part"
        if src:
            _copy_pushed(src, part, wanted)
        else:
            _download(setup, wanted, part)
        staging.rename(directory, name + ".part", name)
        return staging.open_staged(directory, name)
    except codes.Refused:
        staging.remove(path + ".part")  # what cannot become the artifact is not kept to be resumed
        raise
    except OSError as error:
        raise effects.as_retryable(error, f"stage {setup.product.name} {wanted.target.version}") from error


def _copy_pushed(src: str, part: str, wanted: prepare.Prepared) -> None:
    descriptor = pushed(src)
    try:
        staging.copy_verified(descriptor, part, wanted.record.size, wanted.record.sha256)
    finally:
        os.close(descriptor)


def sources_of(setup: own.Setup, target: checks.Target, name: str = "") -> Tuple[str, ...]:
    """Where the target's file may come from, in order: this host's mirrors, then the address that the target names."""
    product = setup.product
    platform = gate.platform_of(product)
    name = name or checks.artifact_name(target.product, target.version, platform, product.variant)
    found = [f"{base.rstrip('/')}/{target.product}/{target.version}/{name}" for base in product.mirrors]
    return tuple(dict.fromkeys([*found, target.url] if target.url else found))


def _download(setup: own.Setup, wanted: prepare.Prepared, part: str) -> None:
    sources = sources_of(setup, wanted.target, wanted.name)
    download.fetch(
        sources[0],
        part,
        wanted.record.size,
        wanted.record.sha256,
        transport_of(setup),
        download.progress_to(sys.stderr, f"{setup.product.name} {wanted.target.version}"),
        others=sources[1:],
    )
