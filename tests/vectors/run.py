# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold one interpreter, one library and one name of slotcore against all vectors: run.py [slotcore | ansible_collections…slotcore].

Standard library only, from Python 3.9 on, so that it runs on any host. One JSON line: what ran here, how many cases of each file
passed, and those that did not. Exit status 1 when one did not.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import platform
import sys
import tempfile
from typing import Any, Callable, Dict, List

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHORT = "slotcore"
LONG = "ansible_collections.slotward.fleet.plugins.module_utils.slotcore"
Case = Dict[str, Any]


class Engine:
    """The modules of slotcore under one name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, module: str) -> Any:
        return importlib.import_module(self.name + "." + module)


def prepare(name: str, scratch: str) -> Engine:
    """Let this process find slotcore under this name, and under no other."""
    if name == LONG:
        collection = os.path.join(scratch, "ansible_collections", "slotward")
        os.makedirs(collection)
        os.symlink(ROOT, os.path.join(collection, "fleet"))
        sys.path.insert(0, scratch)
    elif name == SHORT:
        sys.path.insert(0, os.path.join(ROOT, "plugins", "module_utils"))
    else:
        raise SystemExit("run.py: %s is neither %s nor %s" % (name, SHORT, LONG))
    return Engine(name)


def judge_signatures(core: Engine, case: Case) -> object:
    """Who signed, or the code of the refusal."""
    kinds = {kind.type.partition(".")[2]: kind for kind in core.documents.KINDS}
    data = case["published"].encode("utf-8")
    found = core.signatures.verify(data, kinds[case["kind"]], case["pins"], case["threshold"])
    if isinstance(found, core.codes.Refusal):
        return {"refused": found.code}
    return {"signers": sorted(found.signers)}


def judge_keys(core: Engine, case: Case) -> object:
    """Whether it verifies."""
    spki, message, sig = (base64.b64decode(case[name]) for name in ("spki", "message", "sig"))
    return {"verifies": core.keys.verify(case["alg"], spki, message, sig)}


def judge_canonical(core: Engine, case: Case) -> object:
    """The canonical form, which must be the only one that is taken as such."""
    data = base64.b64decode(case["bytes"])
    try:
        written = core.canonical.encode(core.canonical.parse(data))
    except core.canonical.NotJson:
        return {"refused": True}
    try:
        core.canonical.decode(data)
        is_canonical = True
    except core.canonical.NotCanonical:
        is_canonical = False
    if is_canonical is not (data == written):
        return {"canonical": "decode disagrees with encode"}
    return {"canonical": base64.b64encode(written).decode("ascii")}


def judge_semver(core: Engine, case: Case) -> object:
    """Whether it is a version, or which is older."""
    if "version" in case:
        return {"is": core.semver.is_version(case["version"])}
    return {"older": core.semver.older(core.semver.parse(case["one"]), core.semver.parse(case["other"]))}


def judge_rfc3339(core: Engine, case: Case) -> object:
    """The seconds of a time."""
    try:
        return {"seconds": core.rfc3339.parse(case["time"])}
    except ValueError:
        return {"refused": True}


def judge_toml(core: Engine, case: Case) -> object:
    """The values of a text."""
    document, problems = core.toml.scan(case["text"], "config.toml")
    return {"refused": True} if problems else {"values": document.values()}


def judge_pins(core: Engine, case: Case) -> object:
    """The pins of a list, or the pin of a key."""
    if "spki" in case:
        return {"pin": core.keys.pin_of(base64.b64decode(case["spki"]))}
    try:
        return {"holds": list(core.keys.parse_pins(case["pins"]))}
    except ValueError:
        return {"refused": True}


def judge_manifest(core: Engine, case: Case) -> object:
    """What a body says."""
    try:
        body = core.manifest.parse_body(case["body"].encode("utf-8"))[0]
    except core.manifest.BadManifest:
        return {"refused": True}
    return {"says": {name: getattr(body, name) for name in case.get("says", ())}}


JUDGES: Dict[str, Callable[[Engine, Case], object]] = {
    name[len("judge_") :]: judge for name, judge in sorted(globals().items()) if name.startswith("judge_")
}
OUTCOMES = ("refused", "signers", "verifies", "canonical", "is", "older", "seconds", "values", "holds", "pin", "says")


def play(core: Engine, file: str, judge: Callable[[Engine, Case], object]) -> Dict[str, Any]:
    """All cases of one file: how many passed, and what was wrong with the others."""
    with open(os.path.join(HERE, file + ".json"), encoding="utf-8") as opened:
        cases: List[Case] = json.load(opened)["cases"]
    wrong = []
    for case in cases:
        wanted = {name: case[name] for name in OUTCOMES if name in case}
        try:
            found: object = judge(core, case)
        except Exception as error:  # noqa: BLE001 # an exception here is a failed case like any other
            found = {"raised": "%s: %s" % (type(error).__name__, error)}
        if json.dumps(found, sort_keys=True) != json.dumps(wanted, sort_keys=True):
            wrong.append({"file": file, "case": case["name"], "wanted": wanted, "found": found})
    return {"passed": len(cases) - len(wrong), "wrong": wrong}


def play_published(core: Engine) -> Dict[str, Any]:
    """Every signed document that an earlier version published (published/README.md): two of three pinned keys, never three."""
    passed, wrong = 0, []
    top = os.path.join(HERE, "published")
    for place, _directories, files in sorted(os.walk(top)):
        version = os.path.relpath(place, top).split(os.sep)[0]
        for name in sorted(one for one in files if one.endswith(".json")):
            with open(os.path.join(place, name), "rb") as opened:
                data = opened.read()
            if b'"signatures"' not in data:
                continue  # the catalogue, which nobody signs
            with open(os.path.join(top, version, "pins.txt"), encoding="ascii") as opened:
                pins = opened.read().split()
            kind = core.documents.kind_of(core.manifest.parse_published(data).body)
            found = [core.signatures.verify(data, kind, pins, threshold) for threshold in (2, 3)]
            if [isinstance(one, core.codes.Refusal) for one in found] == [False, True]:
                passed += 1
            else:
                wrong.append({"file": "published", "case": os.path.join(version, name), "found": repr(found)[:300]})
    return {"passed": passed, "wrong": wrong}


def library() -> str:
    """The version of cryptography here."""
    try:
        import cryptography
    except ImportError:
        return "none"
    return str(cryptography.__version__)


def main(argv: List[str]) -> int:
    """Play everything under one name."""
    with tempfile.TemporaryDirectory() as scratch:
        core = prepare(argv[0] if argv else SHORT, scratch)
        found = {file: play(core, file, judge) for file, judge in JUDGES.items()}
        found["published"] = play_published(core)
        loaded = [name for name in sys.modules if name in (SHORT, LONG)]
    wrong = [one for row in found.values() for one in row["wrong"]]
    answer = {
        "name": loaded[0] if len(loaded) == 1 else "both",
        "python": platform.python_version(),
        "cryptography": library(),
        "passed": {file: row["passed"] for file, row in found.items()},
        "failed": wrong,
    }
    print(json.dumps(answer, sort_keys=True))
    return 1 if wrong or len(loaded) != 1 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
