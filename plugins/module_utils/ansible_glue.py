# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: how a module asks the node agent and hands its answer back.

Rules:

* Whatever changes a host is asked of the agent by one command line and one JSON answer; a module decides nothing.
* Every outcome of a module has the same keys; what the agent did not say is null.
* The agent's exit status decides failure (docs/design/node.md, section 6); its ``code`` and text are handed on as they are.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

PRODUCT = "slotward"
EXECUTABLE = "/usr/local/bin/slotward"
ANSWER_BOUND_S = 60
TIMED_OUT = (124, 137)  # what coreutils' timeout ends with
CONFIG = "/etc/slotward/config.toml"
MUTE = (codes.BAD_ANSWER, codes.NOT_INSTALLED)
"""What is said in the stead of a program that gave no answer of its own, or could not be started."""
REPAIR = "--repair"
CALLER = {"SLOTWARD_WHO": os.environ.get("SLOTWARD_WHO") or "ansible"}
"""Who the host's audit log says has it done, beside the user behind sudo: whoever set the variable here says more."""

NODE_OPTIONS: Dict[str, Dict[str, Any]] = {
    "product": {"type": "str", "default": PRODUCT},
    "executable": {"type": "path", "default": EXECUTABLE},
    "config": {"type": "path", "default": CONFIG},
}

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

# What every command's result has, with what is said when nothing is known.
ANSWER_KEYS: Tuple[Tuple[str, Any], ...] = (
    ("product", None),
    ("state", None),
    ("code", None),
    ("reason", None),
    ("from", None),
    ("to", None),
    ("sequence", None),
    ("floor", None),
    ("digests", {"from": None, "to": None}),
    ("trial_id", None),
    ("deadline_s", None),
    ("boots_left", None),
    ("missing", []),
    ("retry", None),
    ("evidence", None),
)


class Answer(NamedTuple):
    """What the agent said: its exit status and its JSON object."""

    rc: int
    data: Dict[str, Any]

    @property
    def failed(self) -> bool:
        """True for every exit status but 0."""
        return self.rc != 0

    @property
    def code(self) -> str:
        """The reason's stable code."""
        return str(self.data.get("code") or (codes.BAD_ANSWER if self.failed else codes.OK))


def broken(code: str, message: str, state: str = "failed", rc: int = 1) -> Answer:
    """An answer in the agent's stead, when it could not give one."""
    return Answer(rc, {"state": state, "code": code, "message": message})


def not_installed(path: str) -> Answer:
    """The answer of a host without an agent."""
    text = "%s is not there or not executable: install the agent first (playbook slotward.fleet.install)" % path
    return broken(codes.NOT_INSTALLED, text)


def command(params: Dict[str, Any], words: Sequence[str]) -> List[str]:
    """The command line for one request; what has its default value is left out."""
    line = [params.get("executable") or EXECUTABLE]
    if (params.get("config") or CONFIG) != CONFIG:
        line += ["--config", params["config"]]
    line += list(words)
    if (params.get("product") or PRODUCT) != PRODUCT:
        line += ["--product", params["product"]]
    return line + ["--json"]


def parse(rc: int, out: str, err: str, line: Sequence[str]) -> Answer:
    """The agent's answer, or what came instead of one."""
    for text in reversed(out.splitlines()):
        if text.lstrip().startswith("{"):
            try:
                data = json.loads(text)
            except ValueError:
                continue
            return Answer(rc, data)
    tail = (err.strip() or out.strip())[-1000:] or "no output"
    return broken(
        codes.BAD_ANSWER, "%s ended with status %d and without a JSON answer: %s" % (" ".join(line), rc, tail)
    )


def installed(params: Dict[str, Any]) -> bool:
    """True when something that can be started is at the agent's path."""
    path = params.get("executable") or EXECUTABLE
    return os.path.isfile(path) and os.access(path, os.X_OK)


def ask(
    module: AnsibleModule,
    words: Sequence[str],
    stdin: Optional[str] = None,
    params: Optional[Dict[str, Any]] = None,
) -> Answer:
    """Run the agent once and return what it answers; a program that never answers (a release on trial?) is ended.

    With other `params` than the module's the agent is asked by those.
    """
    line = command(params or module.params, words)
    if not installed(module.params):
        return not_installed(line[0])
    bound_s = ANSWER_BOUND_S + int(module.params.get("wait_s") or 0)
    bounded = ["timeout", "--kill-after=5", str(bound_s)] + line
    rc, out, err = module.run_command(
        bounded, data=stdin, binary_data=True, handle_exceptions=False, environ_update=CALLER
    )
    if rc in TIMED_OUT and not out.strip():
        text = "%s gave no answer within %d s: what is installed there hangs; if it is a release on trial, the host goes back by itself"
        return broken(codes.BAD_ANSWER, text % (" ".join(line), bound_s))
    return parse(rc, out, err, line)


def told(params: Dict[str, Any], answer: Answer, seen: Optional[Answer] = None) -> Dict[str, Any]:
    """What every result begins with: of which product, in which state (as first `seen`), and why not if not."""
    first = answer if seen is None else seen
    return {
        "product": first.data.get("product") or params["product"],
        "state": first.data.get("state") or "failed",
        "code": answer.code,
        "reason": None if answer.code == codes.OK else answer.data.get("message"),
        "retry": None,
    }


def host_command(params: Dict[str, Any], name: str, *words: str) -> str:
    """What an operator runs on the host: one command of the agent, with these words."""
    line = [*command(params, [name])[:-1], *words]
    return " ".join([PRODUCT if line[0] == EXECUTABLE else line[0], *line[1:]])


def clear_command(params: Dict[str, Any], version: str) -> str:
    """What an operator runs on the host to allow a version that failed there once more."""
    return host_command(params, "update", "--clear-failed", version)


def audit_problem(params: Dict[str, Any], data: Dict[str, Any]) -> Optional[str]:
    """Why nothing can be written to the audit log, by the answer of `update`; a broken record or configuration is told before it."""
    told = codes.CODES.get(str(data.get("code")))
    if data.get("audit", "") is not None or (told is not None and told.kind == codes.BROKEN):
        return None
    commands = tuple(host_command(params, "audit", word) for word in ("--verify", "--restart-chain"))
    return "the end of the audit log cannot be read, so updates are refused: see `%s` on the host, then `%s`" % commands


def shape(params: Dict[str, Any], answer: Answer, **known: Any) -> Dict[str, Any]:
    """A result with every key of ``ANSWER_KEYS``, from the agent's answer and from what the caller knows."""
    data = {**known, **{key: value for key, value in answer.data.items() if value is not None}}
    result: Dict[str, Any] = {}
    for key, unknown in ANSWER_KEYS:
        value = data.get(key)
        result[key] = (dict(unknown) if isinstance(unknown, dict) else unknown) if value is None else value
    trial = data.get("trial") or {}
    result["product"] = result["product"] or params.get("product") or PRODUCT
    result["state"] = result["state"] or "failed"
    result["code"] = answer.code
    result["reason"] = None if answer.code == codes.OK else data.get("message") or None
    result["digests"] = {"from": data.get("from_sha256"), "to": data.get("to_sha256")}
    result["trial_id"] = data.get("trial_id") or trial.get("id")
    result["deadline_s"] = trial.get("left_s")
    result["boots_left"] = trial.get("boots_left")
    result["missing"] = list(data.get("missing") or trial.get("missing") or [])
    if result["retry"] is None and result["to"] and answer.code == codes.FAILED_BEFORE:
        result["retry"] = clear_command(params, str(result["to"]))
    return result


def sentence(result: Dict[str, Any], message: str) -> str:
    """The ``msg`` of a result: the agent's own words, and the way out where there is a command for it."""
    text = message or "%s: %s" % (result["product"], result["state"])
    if result["retry"] and result["retry"] not in text:
        text += "; to allow this version again, run on the host: %s" % result["retry"]
    if result["code"] == codes.RECORD_BROKEN and REPAIR not in text:
        text += "; to mend it, run on the host: %s" % host_command({"product": result["product"]}, "update", REPAIR)
    return text


def before_after(product: str, before: Optional[str], after: Optional[str]) -> Dict[str, str]:
    """A diff of one line: which version ran and which one does."""

    def line(version: Optional[str]) -> str:
        return "%s %s\n" % (product, version) if version else ""

    return {
        "before_header": "%s before" % product,
        "after_header": "%s after" % product,
        "before": line(before),
        "after": line(after),
    }


def finish(module: AnsibleModule, answer: Answer, result: Dict[str, Any], changed: bool) -> None:
    """Leave with the result: failed by the agent's exit status, with the same keys either way."""
    result["changed"] = changed
    result["msg"] = sentence(result, str(answer.data.get("message") or ""))
    if answer.failed:
        module.fail_json(**result)
    module.exit_json(**result)


def platform() -> str:
    """This host as a release names platforms; an unknown machine keeps its own name and matches nothing."""
    name = os.uname()
    return "%s-%s" % (name.sysname.lower(), MACHINES.get(name.machine, name.machine))


def artifact_for(target: Dict[str, Any], here: str) -> Dict[str, Any]:
    """What a release has for a platform; raises Refused when it has nothing."""
    artifact: Optional[Dict[str, Any]] = target["artifacts"].get(here)
    if artifact is None:
        has = ", ".join(sorted(target["artifacts"])) or "none"
        text = "%s %s has no artifact for %s; it has %s" % (target["product"], target["version"], here, has)
        raise codes.refused(codes.NO_ARTIFACT, text)
    return artifact


def word_for(target: Dict[str, Any], here: str) -> Dict[str, Any]:
    """The control side's word to a host of one platform; raises Refused when the release has nothing for it."""
    artifact = artifact_for(target, here)
    word = {key: target[key] for key in ("product", "version")}
    word.update(url=artifact.get("url") or "", sha256=artifact["sha256"], signature=target["manifest"])
    return word


def trial_by_id(answer: Answer, trial_id: str) -> Answer:
    """What the ``update`` answer says of one trial: pending, how it ended, or that nobody knows of it."""
    trial, last = answer.data.get("trial"), answer.data.get("last")
    known = {"spec": 1, "product": answer.data.get("product"), "floor": answer.data.get("floor"), "changed": False}
    if trial and trial["id"] == trial_id:
        known.update(trial=trial, state="trial", code=codes.OK, message="the trial is pending")
    elif last and last["id"] == trial_id:
        known.update(state=last["state"], code=last["code"], message=last["why"])
        known.update({"from": last["from"], "to": last["to"], "evidence": answer.data.get("evidence")})
        return Answer(0 if last["state"] == "confirmed" else 6, known)
    elif trial:
        known.update(
            trial=trial,
            state="refused",
            code=codes.WRONG_TRIAL,
            message="trial %s is pending, not %s" % (trial["id"], trial_id),
        )
        return Answer(3, known)
    else:
        known.update(
            state="refused", code=codes.NO_TRIAL, message="no trial is pending, and %s is not the last one" % trial_id
        )
        return Answer(3, known)
    known.update({"from": trial["from"], "to": trial["to"], "sequence": trial["sequence"]})
    return Answer(0, known)
