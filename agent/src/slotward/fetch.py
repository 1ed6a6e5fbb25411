# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage: bring a release's bytes into the staging directory, verified, or open what a controller pushed (DESIGN 6)."""

from __future__ import annotations

import os
import sys
from typing import Optional, Tuple

from slotcore import audit as audits
from slotcore import checks, codes, events, phases, sourcing
from slotward import audit, download, effects, own, prepare, progress, progress_file, staging

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
            _note_downloaded(setup, wanted)
        staging.rename(directory, name + ".part", name)
        return staging.open_staged(directory, name)
    except codes.Refused:
        staging.remove(path + ".part")  # what cannot become the artifact is not kept to be resumed
        raise
    except OSError as error:
        raise effects.as_retryable(error, f"stage {setup.product.name} {wanted.target.version}") from error


def _note_downloaded(setup: own.Setup, wanted: prepare.Prepared) -> None:
    if os.geteuid() != 0:
        return  # the log is root's, and so is what it tells
    audit.note(
        setup.product,
        audits.DOWNLOADED,
        why=events.size_text(wanted.record.size),
        from_version=wanted.from_version,
        to_version=wanted.target.version,
        sequence=wanted.record.sequence,
        sha256=wanted.record.sha256,
    )


def _copy_pushed(src: str, part: str, wanted: prepare.Prepared) -> None:
    descriptor = pushed(src)
    progress_file.phase(phases.STAGE)
    try:
        staging.copy_verified(descriptor, part, wanted.record.size, wanted.record.sha256)
    finally:
        os.close(descriptor)


def sources_of(setup: own.Setup, target: checks.Target, name: str = "") -> Tuple[str, ...]:
    """Where the target's file may come from, in order: this host's mirrors, then the product's source or the target's address.

    `name` is the artifact's own, as its manifest lists it; "" where none was asked for.
    """
    from slotward import sourced

    name, source = name or sourced.file_name(setup, target), setup.product.source
    if source is not None:
        bases = sourcing.places(source, target.product, target.version, setup.product.mirrors)
        return tuple(f"{base}/{name}" for base in bases)
    found = [f"{base.rstrip('/')}/{target.product}/{target.version}/{name}" for base in setup.product.mirrors]
    return tuple(dict.fromkeys([*found, target.url] if target.url else found))


def _told(label: str) -> progress.Progress:
    """On standard error, and in the file for whoever looks on."""
    return progress.Progress(sys.stderr, label, moved=progress_file.moved, waits=progress_file.waits)


def _download(setup: own.Setup, wanted: prepare.Prepared, part: str) -> None:
    progress_file.phase(phases.FETCH)
    sources = sources_of(setup, wanted.target, wanted.name)
    download.fetch(
        sources[0],
        part,
        wanted.record.size,
        wanted.record.sha256,
        transport_of(setup),
        _told(f"{setup.product.name} {wanted.target.version}"),
        others=sources[1:],
    )
