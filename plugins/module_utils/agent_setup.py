# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: which program sets a host up, and its bytes brought there and checked.

Rules:

* Installed already, by a link into the slots, with the bytes that the slot's record has: that program sets itself up again, and nothing
  is fetched. Where no record can be read, the installed program says so itself.
* Else the delivered program does, with its manifest: nothing is there, or what is there is gone or damaged. Only a plain file at the
  agent's path is taken as it is, for it is of another release. Its bytes are checked while they are copied to where only root can write, and they run from
  there; the interpreter reads them, so that a noexec place is no obstacle.
* The digest is the only thing believed of a download.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
from typing import Any, Dict, Iterator, List, Optional

from ansible.module_utils.urls import open_url
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, running
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, records

PYTHON = "/usr/bin/python3"
BLOCK = 1 << 18
LARGEST = 512 << 20
TIMEOUT_S = 30


def is_sound(executable: str) -> bool:
    """True when the agent's path is a link to a program that can be started, and its slot's record does not say otherwise."""
    if not (os.path.islink(executable) and os.path.isfile(executable) and os.access(executable, os.X_OK)):
        return False
    current = os.path.join(os.path.dirname(executable), os.readlink(executable))
    try:
        path = os.path.join(os.path.dirname(current), "slots.json")
        with open(path, "rb") as file:
            known = records.parse_slots(file.read(records.MAX_BYTES + 1), path)
        slot = os.readlink(current)
    except (OSError, codes.BrokenRecord):
        return True
    return slot in known and running.digest_of(executable) == known[slot].sha256


def is_adopted(executable: str) -> bool:
    """True when a plain file is at the agent's path: setup takes that one, whatever is delivered."""
    return os.path.lexists(executable) and not os.path.islink(executable)


def must_be_brought(params: Dict[str, Any]) -> bool:
    """True when only the controller has the program that is needed here, and has not sent it."""
    return params["delivery"] == "push" and not params["src"] and not is_sound(params["executable"])


def keep(pieces: Iterator[bytes], path: str, sha256: str, name: str) -> None:
    """Write a program to a new file of our own; raises Refused when it is not what it should be."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != sha256.lower():
        raise codes.refused(codes.DIGEST_MISMATCH, "%s has SHA-256 %s, not %s" % (name, digest.hexdigest(), sha256))


def read(path: str) -> Iterator[bytes]:
    """A file in pieces."""
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(BLOCK), b"")
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (path, error.strerror)) from None


def download(url: str, artifact: Dict[str, Any], params: Dict[str, Any]) -> Iterator[bytes]:
    """A program's pieces; raises Refused for what can never work and Retryable for what may later."""
    if not url.startswith("https://") and not (params["allow_http"] and url.startswith("http://")):
        raise codes.refused(codes.BAD_URL, "%s is not https; set allow_http for a test" % url)
    if params["proxy"]:
        os.environ["https_proxy"] = os.environ["http_proxy"] = params["proxy"]
    most = artifact.get("size") or LARGEST
    size = 0
    try:
        with open_url(url, timeout=TIMEOUT_S, ca_path=params["ca_file"], http_agent="slotward-fleet") as answer:
            if answer.geturl().startswith("http://") and not params["allow_http"]:
                raise codes.refused(codes.BAD_URL, "%s leads to %s, which is not https" % (url, answer.geturl()))
            for block in iter(lambda: answer.read(BLOCK), b""):
                size += len(block)
                if size > most:
                    raise codes.refused(codes.SIZE_MISMATCH, "%s has more than %d bytes" % (url, most))
                yield block
    except OSError as error:  # HTTP errors, timeouts and TLS failures are OSErrors too
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise codes.Retryable(codes.DOWNLOAD_FAILED, "%s cannot be fetched: %s" % (url, error)) from None


def delivered(params: Dict[str, Any], directory: str) -> str:
    """The delivered program as a file that is root's alone, its bytes checked while they were written."""
    artifact = ansible_glue.artifact_for(params["target"], ansible_glue.platform())
    path = os.path.join(directory, artifact["name"])
    source = params["src"] or artifact["url"]
    pieces = read(source) if params["src"] else download(source, artifact, params)
    keep(pieces, path, artifact["sha256"], source)
    return path


def write(text: str, directory: str, name: str) -> str:
    """A text as a file for the agent to read, in the directory that is root's alone."""
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def command(params: Dict[str, Any], directory: str, check: bool) -> List[str]:
    """The command line that sets this host up; what it needs lies in a directory that is root's alone."""
    words = ["setup"]
    words += ["--adopt"] if params["adopt"] else []
    words += ["--fix-directories"] if params["fix_directories"] else []
    words += ["--check"] if check else []
    if check and params["planned_config"]:
        words += ["--planned", write(params["planned_config"], directory, "planned.toml")]
    program: Optional[str] = None
    if not is_sound(params["executable"]):
        program = delivered(params, directory)
        words += ["--from", program]
        if params["target"]["manifest"] and params["verify"] and not is_adopted(params["executable"]):
            words += ["--manifest", write(params["target"]["manifest"], directory, "manifest.json")]
    line = ansible_glue.command(params, words)
    return line if program is None else [PYTHON, "-I", program] + line[1:]
