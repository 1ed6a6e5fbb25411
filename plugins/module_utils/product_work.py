# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: a product described and set up on a host, or removed, with nothing half-done left.

Rules:

* Before anything is written the agent judges the text (``config check -``) and says what setup would do, or why not.
* When setup refuses all the same, and would still do all that it would have done before, nothing was done: the old file comes back.
* What setup has begun is left for the next run, which completes it; the file stays, for without it nobody could.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, config_file, product_file

Changes = List[Dict[str, str]]


class Outcome(NamedTuple):
    """How it ended: the agent's last answer, everything that was changed or would be, and the difference of the file."""

    answer: ansible_glue.Answer
    changes: Changes
    diff: List[Dict[str, str]]


def _changes(answer: ansible_glue.Answer) -> Changes:
    return list(answer.data.get("changes") or [])


def _setup_words(params: Dict[str, Any]) -> List[str]:
    words = ["setup"]
    words += ["--adopt"] if params["adopt"] else []
    words += ["--divert"] if params["divert"] else []
    words += ["--version", params["version"]] if params["version"] else []
    words += ["--from", params["src"]] if params["src"] else []
    return words + (["--manifest", params["manifest"]] if params["manifest"] else [])


def _asked(module: AnsibleModule, text: str) -> ansible_glue.Answer:
    """What setup would do, were `text` the product's file; or why that is no file for a product."""
    checked = ansible_glue.ask(module, ["config", "check", "-"], stdin=text)
    if checked.failed:
        return checked
    with tempfile.TemporaryDirectory(prefix="slotward-product-") as directory:
        planned = os.path.join(directory, module.params["product"] + ".toml")
        with os.fdopen(os.open(planned, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        return ansible_glue.ask(module, [*_setup_words(module.params), "--check", "--planned", planned])


def present(module: AnsibleModule, path: str) -> Outcome:
    """Describe and set up; in check mode say what that would change. Raises BadConfig and OSError before anything is written."""
    found, planned = product_file.plan(module.params, path)
    writes: Changes = [{"path": path, "what": "create" if found.data is None else "write"}]
    differs = planned.differs(found)
    asked = _asked(module, planned.text)
    due = (writes if differs else []) + _changes(asked)
    diff = config_file.difference(path, found, planned)
    if asked.failed:
        return Outcome(asked, [], [])
    if module.check_mode or not due:
        return Outcome(asked, due, diff)
    if differs:
        config_file.write(path, planned, module.atomic_move)
    done = ansible_glue.ask(module, _setup_words(module.params))
    if done.failed and differs and _nothing_done(module, planned.text, asked, done):
        product_file.put_back(path, found, planned, module.atomic_move)
        return Outcome(done, [], [])
    return Outcome(done, (writes if differs else []) + _changes(done), diff)


def _nothing_done(module: AnsibleModule, text: str, before: ansible_glue.Answer, failed: ansible_glue.Answer) -> bool:
    """Whether setup failed at its door: it would do now exactly what it would have done before, or refuses that in the same way."""
    now = _asked(module, text)
    return now.code == failed.code if now.failed else _changes(now) == _changes(before)


def absent(module: AnsibleModule, path: str) -> Outcome:
    """Remove; in check mode say what that would change. A product without a file is none."""
    before = _text(path)
    if before is None:
        nothing = {
            "state": "absent",
            "code": "ok",
            "message": "%s is no product of this host" % module.params["product"],
        }
        return Outcome(ansible_glue.Answer(0, nothing), [], [])
    words = ["remove"] + (["--purge"] if module.params["purge"] else [])
    answer = ansible_glue.ask(module, [*words, "--check"] if module.check_mode else words)
    if not answer.failed and not module.check_mode:
        product_file.tidy(path)
    gone = [] if answer.failed else [{"before_header": path, "after_header": path, "before": before, "after": ""}]
    return Outcome(answer, _changes(answer), gone)


def _text(path: str) -> Optional[str]:
    found = config_file.read(path).data
    return None if found is None else found.decode("utf-8", "replace")
