# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at one product's slots and says which invariants they break (docs/design/faults.md, section 1).

Rules:
- Nothing of the product is imported, not even its names for files: the formats of docs/design/node.md are read by the few
  lines below, so that an error in the agent's own reading shows.
- It only looks, and follows links below --root as that host would. What it cannot read is a violation, never passed over.
- Standard library only, Python 3.9, one file: it is copied to hosts, and into disks that are mounted elsewhere.

Exit status: 0 without a violation, 1 with one, 2 when it was called wrongly.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

RECORDS = {
    "slots.json": {"spec", "slots"},
    "update.json": {"spec", "floor", "newest_issued", "failed", "last", "trust"},
    "trust.json": {"spec", "generation", "keys", "withdrawn", "permits", "allowed"},
}
SLOT = {"version", "sequence", "sha256", "size", "expires_at", "channel"}
FAILED = {"at", "code", "sequence", "sha256", "version", "why"}
LAST = {"at", "code", "from", "id", "state", "to", "why"}
TRIAL = {
    "SPEC": "1",
    "ID": "[0-9a-f]{16}",
    "PRODUCT": "[a-z][a-z0-9-]{0,63}",
    "FROM_VERSION": "[A-Za-z0-9._:/+=-]+",
    "TO_VERSION": "[A-Za-z0-9._:/+=-]+",
    "FROM_SLOT": "[ab]",
    "TO_SLOT": "[ab]",
    "SEQUENCE": "[0-9]{1,15}",
    "BOOT_ID": "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "LENGTH_S": "[0-9]{1,4}",
    "DEADLINE_S": "[0-9]{1,15}",
    "BOOTS_LEFT": "[0-9]",
    "STARTS": "0",
    "COMMAND": "[A-Za-z0-9._:/+=-]+",
    "FROM_SHA256": "[0-9a-f]{64}",
    "TO_SHA256": "[0-9a-f]{64}",
}
CLAIMS = ("confirm", "revert")
OF_A_TRIAL = ("trial", "trial.confirm", "trial.revert", "trial.log", "trial.sources", "back", "helper.back")
AT_REST = re.compile(
    r"a|b|versions|current|good|helper|(slots|update|trust)\.json(\.copy)?|(slots\.json|update\.json|trust\.json|trial)"
    r"\.broken-[0-9]+|(baseline|probes|progress|asked|hold|staged)\.json|staged\.(target|permit)|snapshots?|lock"
    r"|audit\.log(\.[0-9]+)?|audit\.broken-[0-9]+|staging|evidence"
)
ASIDE_KEPT = 4
"""How many of each record that was set aside may stay."""


class Unreadable(Exception):
    """What cannot be believed, and why."""


def resolve(root: str, path: str) -> str:
    """Where `path` of the host whose root is `root` leads, by its links; the last name need not be there."""
    found, left = "/", [word for word in path.split("/") if word]
    for _turn in range(4096):
        if not left:
            return found
        word = left.pop(0)
        if word in (".", ".."):
            found = os.path.dirname(found) if word == ".." else found
            continue
        here = os.path.join(found, word)
        if not os.path.islink(root + here):
            found = here
            continue
        target = os.readlink(root + here)
        found = "/" if target.startswith("/") else found
        left = [part for part in target.split("/") if part] + left
        if len(left) > 512:
            break
    raise Unreadable("%s is a circle of links" % path)


def digest(path: str) -> str:
    """The SHA-256 of a plain file that may be executed."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("%s is no plain file" % path)
        if not found.st_mode & 0o111:
            raise Unreadable("%s has mode %04o and cannot be executed" % (path, stat.S_IMODE(found.st_mode)))
        return contents_digest(path)
    except OSError as error:
        raise Unreadable("%s: %s" % (path, error.strerror)) from error


def contents_digest(path: str) -> str:
    """The SHA-256 of a file's bytes."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()


def plain(path: str) -> bytes:
    """The bytes of a record: a plain file that nobody but its owner may write."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is no plain file")
        if found.st_mode & 0o022:
            raise Unreadable("its mode is %04o: others may write it" % stat.S_IMODE(found.st_mode))
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def demand(holds: bool, why: str) -> None:
    """What must hold of a record, or it is not believed."""
    if not holds:
        raise Unreadable(why)


def whole_number(value: Any) -> bool:
    """Whether this is a number that a record may hold."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_record(name: str, data: bytes) -> Dict[str, Any]:
    """One of the three JSON records."""
    try:
        value = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise Unreadable("it is not JSON (%d bytes): %s" % (len(data), error)) from error
    demand(isinstance(value, dict) and set(value) == RECORDS[name], "its fields are not those of node.md")
    demand(value["spec"] == 1, "its spec is %r" % value["spec"])
    if name == "slots.json":
        demand(isinstance(value["slots"], dict) and set(value["slots"]) <= {"a", "b"}, "its slots are not a and b")
        for slot, entry in value["slots"].items():
            demand(isinstance(entry, dict) and set(entry) - {"epoch"} == SLOT, "slot %s has other fields" % slot)
            demand(whole_number(entry["sequence"]) and whole_number(entry["size"]), "slot %s has odd numbers" % slot)
    elif name == "update.json":
        demand(all(whole_number(value[key]) for key in ("floor", "newest_issued", "trust")), "a number is odd")
        demand(isinstance(value["failed"], list), "failed is no list")
        demand(
            all(isinstance(one, dict) and set(one) == FAILED for one in value["failed"]), "a failure has other fields"
        )
        last = value["last"]
        demand(last is None or (isinstance(last, dict) and set(last) == LAST), "last has other fields")
    else:
        demand(whole_number(value["generation"]) and value["generation"] > 0, "its generation is odd")
    return dict(value)


def parse_copy(name: str, data: bytes) -> Dict[str, Any]:
    """A copy: a line with the digest of what follows, then the record."""
    line, _newline, rest = data.partition(b"\n")
    said = "sha256 %s" % hashlib.sha256(rest).hexdigest()
    demand(line == said.encode("ascii"), "its first line does not fit the rest (%d bytes)" % len(data))
    return parse_record(name, rest)


def parse_trial(data: bytes, claimed: bool) -> Dict[str, str]:
    """A trial's record; one that was claimed may have a reason after it, whole or torn."""
    lines = data.decode("latin-1").split("\n")
    if claimed and len(lines) > len(TRIAL) and lines[len(TRIAL)]:
        reason = lines[len(TRIAL)]
        demand("REASON=".startswith(reason[:7]) and re.fullmatch("[a-z0-9-]*", reason[7:]) is not None, "an odd reason")
        lines = [*lines[: len(TRIAL)], ""]
    demand(lines[-1] == "" and len(data) <= 4096, "its last line has no end, or it is too long")
    found = dict(line.partition("=")[::2] for line in lines[:-1])
    demand(set(found) == set(TRIAL) and len(lines) == len(TRIAL) + 1, "its keys are not those of node.md")
    for key, form in TRIAL.items():
        demand(re.fullmatch(form, found[key]) is not None, "%s is %r" % (key, found[key]))
    return found


class Look:
    """One look at a slots directory and its entrypoint: what is there, and what is wrong with it."""

    def __init__(self, root: str, slots: str, entrypoint: str, known: Mapping[str, Any]) -> None:
        self.root, self.slots, self.entrypoint = root.rstrip("/"), slots, entrypoint
        self.known = known
        self.violations: List[Dict[str, str]] = []
        self.records: Dict[str, Dict[str, Any]] = {}
        self.said: Dict[str, str] = {}
        self.copies: Dict[str, Dict[str, Any]] = {}
        self.in_use = os.path.lexists(self.path("current"))
        self.links = {name: self.slot_of(name) for name in ("current", "good", "back", "helper", "helper.back")}
        self.trial: Optional[Dict[str, str]] = None

    def bad(self, rule: str, what: str) -> None:
        """A violation."""
        self.violations.append({"rule": rule, "what": what})

    def path(self, name: str) -> str:
        """Where that name of the slots directory is for us."""
        return "%s%s/%s" % (self.root, self.slots, name)

    def slot_of(self, name: str) -> Optional[str]:
        """The slot that a link names; None where there is no such link."""
        path = self.path(name)
        if not os.path.islink(path):
            return None
        target = os.readlink(path)
        return target if target in ("a", "b") else "odd: " + target

    def names(self) -> List[str]:
        """What is in the slots directory."""
        try:
            return sorted(os.listdir(self.path("")))
        except FileNotFoundError:
            return []

    def program(self, link: str) -> str:
        """The program that a link's slot holds: the slot itself, or in a tree what the entrypoint names."""
        path = self.slots + "/" + link
        if not os.path.isdir(self.root + resolve(self.root, path)):
            return path
        target = os.readlink(self.root + self.entrypoint) if os.path.islink(self.root + self.entrypoint) else ""
        lead = self.slots + "/current/"
        demand(target.startswith(lead), "%s is a tree, and the entrypoint names no program in it" % path)
        return path + "/" + target[len(lead) :]

    def bytes_of(self, path: str) -> str:
        """The digest of the program that this path of the host leads to."""
        return digest(self.root + resolve(self.root, path))

    def read_records(self) -> None:
        """The JSON records and their copies."""
        for name in RECORDS:
            for file, parse, found in ((name, parse_record, self.records), (name + ".copy", parse_copy, self.copies)):
                self.said[file] = "missing"
                if not os.path.lexists(self.path(file)):
                    continue
                try:
                    found[name] = parse(name, plain(self.path(file)))
                    self.said[file] = "ok"
                except Unreadable as error:
                    self.said[file] = "bad"
                    self.said[file + " why"] = str(error)

    def believed(self, name: str) -> Dict[str, Any]:
        """A record, or its copy where that is lost."""
        return self.records.get(name) or self.copies.get(name) or {}

    def judge_records(self, at_rest: bool) -> None:
        """Each is whole, or its copy is; at rest each is whole (node.md, section 2)."""
        if not self.in_use:
            return
        for name in RECORDS:
            said, copy = self.said[name], self.said[name + ".copy"]
            if name == "trust.json" and said == "missing" and not self.believed("update.json").get("trust"):
                continue
            why = self.said.get(name + " why", said)
            if said != "ok" and copy != "ok":
                self.bad("records", "%s: %s; its copy: %s" % (name, why, self.said.get(name + ".copy why", copy)))
            elif said != "ok" and at_rest:
                self.bad("records", "%s was not written anew from its copy: %s" % (name, why))
            elif copy == "bad":
                self.bad("records", "%s.copy: %s" % (name, self.said[name + ".copy why"]))
        trust = self.believed("trust.json").get("generation", 0)
        least = self.believed("update.json").get("trust", 0)
        if trust < least:
            self.bad("records", "trust.json has generation %d, and update.json knows %d" % (trust, least))

    def judge_programs(self, demanded: bool) -> Dict[str, Optional[str]]:
        """I1 of the entrypoint, and of what going back would start; the digests that were found.

        An entrypoint that was not there before is not demanded: a first installation that was cut may be done again.
        """
        found: Dict[str, Optional[str]] = {"entrypoint": None, "good": None}
        there = os.path.lexists(self.root + self.entrypoint)
        wanted = [("entrypoint", self.entrypoint)] if there or (self.in_use and demanded) else []
        wanted += [("good", "")] if self.in_use else []
        for name, path in wanted:
            try:
                found[name] = self.bytes_of(path or self.program("good"))
                if self.known and found[name] not in self.known:
                    raise Unreadable("its bytes are %s, which nothing vouches for" % found[name])
            except (Unreadable, OSError) as error:
                self.bad("I1", "%s: %s" % (path or self.slots + "/good", error))
        return found

    def judge_slots(self) -> None:
        """The bytes of a slot are those of its record, or what starts is not what was verified (I1)."""
        for slot, entry in sorted(self.believed("slots.json").get("slots", {}).items()):
            path = self.path(slot)
            try:
                if os.path.islink(path):
                    self.judge_tree(os.readlink(path), entry)
                elif digest(path) != entry["sha256"]:
                    raise Unreadable("its bytes are %s, its record says %s" % (digest(path), entry["sha256"]))
            except (Unreadable, OSError, ValueError, LookupError, TypeError) as error:
                self.bad("I1", "slot %s: %s" % (slot, error))

    def judge_tree(self, target: str, entry: Dict[str, Any]) -> None:
        """A tree has what its listing has, and nothing else."""
        demand(re.fullmatch(r"versions/[^/]+", target) is not None, "it names %s" % target)
        top = self.path(target)
        listing = json.loads(plain(top + ".json").decode("utf-8"))
        demand(listing["record"]["sha256"] == entry["sha256"], "the listing of %s is of another release" % target)
        there: Set[str] = set()
        for place, directories, files in os.walk(top):
            there.update(os.path.relpath(os.path.join(place, one), top) for one in directories + files)
        demand(there == {one["path"] for one in listing["entries"]}, "%s holds other names than its listing" % target)
        for one in listing["entries"]:
            path = os.path.join(top, one["path"])
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            demand("%04o" % mode == one["mode"], "%s has mode %04o, not %s" % (path, mode, one["mode"]))
            if one["kind"] == "file":
                demand(not os.path.islink(path) and contents_digest(path) == one["sha256"], "%s has other bytes" % path)

    def read_trial(self) -> Tuple[Any, Optional[str]]:
        """The trial and who has claimed its end; at most one of its three names is there (I12)."""
        there = [name for name in ("trial", "trial.confirm", "trial.revert") if os.path.lexists(self.path(name))]
        if len(there) > 1:
            self.bad("I12", "at once: %s" % ", ".join(there))
        claim = next((one for one in CLAIMS if "trial." + one in there), None)
        if not there:
            return None, None
        try:
            self.trial = parse_trial(plain(self.path(there[-1])), claim is not None)
            keys = ("ID", "FROM_SLOT", "TO_SLOT", "FROM_VERSION", "TO_VERSION", "BOOTS_LEFT", "DEADLINE_S")
            return {key.lower(): self.trial[key] for key in keys}, claim
        except Unreadable as error:
            return "bad: %s" % error, claim

    def judge_rest(self) -> None:
        """Nothing of a trial is left, and no file that nobody knows (I2, I9); everybody may look into the directory."""
        mode = stat.S_IMODE(os.stat(self.path("")).st_mode) if self.in_use else 0o755
        if mode != 0o755:
            self.bad("I9", "%s has mode %04o, not 0755" % (self.slots, mode))
        current, good = self.links["current"], self.links["good"]
        if self.in_use and (current != good or current not in ("a", "b")):
            self.bad("I2", "current names %s, good names %s" % (current, good))
        if self.in_use and self.links["helper"] not in (None, current):
            self.bad("I2", "helper names %s, current names %s" % (self.links["helper"], current))
        aside: Dict[str, int] = {}
        for name in self.names():
            if name in OF_A_TRIAL:
                self.bad("I2", "%s is left" % name)
            elif AT_REST.fullmatch(name) is None:
                self.bad("I9", "%s is left in %s" % (name, self.slots))
            stem, _mark, seconds = name.partition(".broken-")
            aside[stem] = aside.get(stem, 0) + bool(seconds)
        for stem, count in aside.items():
            if count > ASIDE_KEPT and stem != "audit":
                self.bad("I9", "%d of %s were set aside and kept, not %d" % (count, stem, ASIDE_KEPT))
        for place in ("versions", "staging"):
            for name in sorted(os.listdir(self.path(place))) if os.path.isdir(self.path(place)) else ():
                if name.endswith((".partial", ".new", ".tmp")):
                    self.bad("I9", "%s is left in %s/%s" % (name, self.slots, place))

    def judge_before(self, state: Mapping[str, Any], before: Mapping[str, Any], cleared: Sequence[str]) -> None:
        """What an earlier look saw, and what may have become of it."""
        if before["bytes"]["entrypoint"] is not None and not os.path.lexists(self.root + self.entrypoint):
            self.bad("I1", "%s is gone" % self.entrypoint)
        floor = state["floor"]
        if before["floor"] is not None and floor is not None and floor < before["floor"]:
            self.bad("I3", "the floor is %d, and was %d" % (floor, before["floor"]))
        if "all" not in cleared and self.believed("update.json"):
            for version in before["failed"]:
                if version not in state["failed"] and version not in cleared:
                    self.bad("I3", "%s had failed here, and is not among the failed any more" % version)
        good = state["bytes"]["good"]
        if good is not None and good != before["bytes"]["good"]:
            self.judge_new_good(self.known.get(good), floor, state["last"] or {})

    def judge_new_good(self, known: Optional[Mapping[str, Any]], floor: Optional[int], last: Mapping[str, Any]) -> None:
        """`good` moves only after the floor or, where that stays behind, after what says that it was confirmed (I5)."""
        recorded = self.believed("slots.json").get("slots", {}).get(self.links["good"], {})
        release = known or recorded
        confirmed = last.get("state") == "confirmed" and last.get("to") == release.get("version")
        if not confirmed and (floor is None or floor < release.get("sequence", 1 << 62)):
            self.bad("I5", "good is %s now, and nothing confirmed that (floor %s)" % (release.get("version"), floor))

    def judge_running(self, unit: str) -> None:
        """The unit is active, and its main process has the bytes of `current` open; before it is adopted, of the entrypoint."""
        shown = subprocess.run(
            ["systemctl", "show", "--property=ActiveState,MainPID", "--", unit],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        pid = found.get("MainPID", "0")
        if found.get("ActiveState") != "active" or pid == "0":
            self.bad("I1", "%s is %s, its main process is %s" % (unit, found.get("ActiveState"), pid))
            return
        path = self.root + resolve(self.root, self.program("current") if self.links["current"] else self.entrypoint)
        wanted = os.stat(path)
        for one in ("exe", *("fd/" + each for each in os.listdir("/proc/%s/fd" % pid))):
            if self.same("/proc/%s/%s" % (pid, one), path, wanted):
                return
        self.bad("I1", "the main process %s of %s has not %s open" % (pid, unit, path))

    def same(self, opened: str, path: str, wanted: os.stat_result) -> bool:
        """Whether that is this file, or one with its bytes: what is adopted while it runs is a copy in its slot."""
        try:
            found = os.stat(opened)
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
            same_size = stat.S_ISREG(found.st_mode) and found.st_size == wanted.st_size
            return same_size and contents_digest(opened) == contents_digest(path)
        except OSError:
            return False


def judge(
    slots: str,
    entrypoint: str,
    root: str = "",
    known: Optional[Mapping[str, Any]] = None,
    before: Optional[Mapping[str, Any]] = None,
    cleared: Sequence[str] = (),
    at_rest: bool = False,
    running: str = "",
) -> Dict[str, Any]:
    """Look, and judge: what `main` prints."""
    look = Look(root, slots, entrypoint, known or {})
    look.read_records()
    look.judge_records(at_rest)
    earlier = before.get("state", before) if before is not None else None
    found = look.judge_programs(earlier is None or earlier["bytes"]["entrypoint"] is not None)
    look.judge_slots()
    trial, claim = look.read_trial()
    update = look.believed("update.json")
    state = {
        **{name: look.links[name] for name in ("current", "good", "back", "helper")},
        "floor": update.get("floor"),
        "failed": [one["version"] for one in update.get("failed", ())],
        "last": update.get("last"),
        "trial": trial,
        "claim": claim,
        "records": {key: said for key, said in look.said.items() if not key.endswith(" why")},
        "bytes": found,
        "names": look.names(),
    }
    if at_rest:
        look.judge_rest()
    if earlier is not None:
        look.judge_before(state, earlier, cleared)
    if running:
        look.judge_running(running)
    return {"violations": look.violations, "state": state}


def read_json(path: Optional[str]) -> Any:
    """What a file that was named says; None when none was."""
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main() -> int:
    """Print what was found."""
    parser = argparse.ArgumentParser(description="Which invariants do these slots break?")
    parser.add_argument("--slots", required=True, help="the slots directory, as its host names it")
    parser.add_argument("--entrypoint", required=True, help="what systemd starts, as its host names it")
    parser.add_argument("--root", default="", help="where that host's root directory is")
    parser.add_argument(
        "--known", help='a file {"<sha256>": {"version", "sequence"}} of all programs that are vouched for'
    )
    parser.add_argument("--before", help="what an earlier look printed")
    parser.add_argument("--cleared", action="append", default=[], help="a version that was cleared since, or all")
    parser.add_argument("--at-rest", action="store_true", help="everything has settled and no trial has time left")
    parser.add_argument("--running", metavar="UNIT", default="", help="ask systemd about this unit, too")
    args = parser.parse_args()
    try:
        answer = judge(
            args.slots,
            args.entrypoint,
            root=args.root,
            known=read_json(args.known),
            before=read_json(args.before),
            cleared=args.cleared,
            at_rest=args.at_rest,
            running=args.running,
        )
    except (OSError, ValueError, KeyError) as error:
        print("checker: cannot judge: %r" % error, file=sys.stderr)
        return 2
    print(json.dumps(answer, sort_keys=True))
    return 1 if answer["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
