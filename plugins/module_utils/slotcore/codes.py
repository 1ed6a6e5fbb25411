# SPDX-License-Identifier: GPL-3.0-or-later
"""Every reason this project gives, as a stable code, and the few errors that carry one.

Rules:

* A code is kebab-case, has one meaning and is never used again for another.
* ``CODES`` here and the tables of ``docs/design/codes.md`` are the only two lists; a test compares them.
* Errors are named after who must act: ``Refused`` is final, ``Retryable`` passes by itself,
  ``BrokenRecord`` and ``BadConfig`` wait for an operator. A bug is none of them.
* Texts are lower case, name both values and the way out, and have no final period.
"""
from __future__ import annotations

from typing import Dict, NamedTuple, Sequence, Tuple

REFUSAL = "refusal"
RETRYABLE = "retryable"
BROKEN = "broken"
OUTCOME = "outcome"
KINDS = (REFUSAL, RETRYABLE, BROKEN, OUTCOME)

# Trust: the checks of a release, in their order.
NOT_A_RELEASE = "not-a-release"
FAILED_BEFORE = "failed-before"
BAD_DIGEST = "bad-digest"
NO_PINS = "no-pins"
NO_MANIFEST = "no-manifest"
BAD_MANIFEST = "bad-manifest"
TOO_FEW_SIGNATURES = "too-few-signatures"
NOT_CANONICAL = "not-canonical"
WRONG_PRODUCT = "wrong-product"
WRONG_VERSION = "wrong-version"
BELOW_FLOOR = "below-floor"
OLDER_THAN_RUNNING = "older-than-running"
EXPIRED = "expired"
NO_ARTIFACT = "no-artifact"
ARTIFACT_TOO_LARGE = "artifact-too-large"
CHANNEL_NOT_ALLOWED = "channel-not-allowed"
SEQUENCE_NOT_NEWER = "sequence-not-newer"
BELOW_MIN_FROM = "below-min-from"
BAD_TARGET = "bad-target"

# Making releases.
BAD_KEY = "bad-key"
BAD_RELEASE = "bad-release"
RELEASES_DIFFER = "releases-differ"
ALREADY_EXISTS = "already-exists"
NO_CRYPTOGRAPHY = "no-cryptography"
CANNOT_READ = "cannot-read"
CANNOT_WRITE = "cannot-write"

# The host before a switch.
NO_SYSTEMD = "no-systemd"
GUARD_NOT_INSTALLED = "guard-not-installed"
WATCHDOG_NOT_ARMED = "watchdog-not-armed"
UNIT_NOT_RUNNING = "unit-not-running"
ADOPT_NEEDS_CONSENT = "adopt-needs-consent"
ENTRYPOINT_ELSEWHERE = "entrypoint-elsewhere"
ENTRYPOINT_UNSAFE = "entrypoint-unsafe"
STAGED_UNSAFE = "staged-unsafe"
DIGEST_MISMATCH = "digest-mismatch"
SIZE_MISMATCH = "size-mismatch"
NOT_EXECUTABLE = "not-executable"
WRONG_MACHINE = "wrong-machine"
NO_INTERPRETER = "no-interpreter"
SMOKE_TEST_FAILED = "smoke-test-failed"
NO_SPACE = "no-space"
NOEXEC = "noexec"
READ_ONLY = "read-only"
OVERLAY = "overlay"
BAD_URL = "bad-url"
NOT_ROOT = "not-root"
CLOCK_BEHIND = "clock-behind"
NOT_PROVEN = "not-proven"
TRIAL_OVER = "trial-over"
NO_TRIAL = "no-trial"
WRONG_TRIAL = "wrong-trial"
IN_PROGRESS = "in-progress"
TRIAL_PENDING = "trial-pending"
DOWNLOAD_FAILED = "download-failed"
BROKEN_RECORD = "broken-record"
BAD_CONFIG = "bad-config"

# How a trial ended.
CRASH_LOOP = "crash-loop"
DEADLINE_PASSED = "deadline-passed"
NO_BOOTS_LEFT = "no-boots-left"
CANNOT_RECORD = "cannot-record"
BAD_RECORD = "bad-record"
LOST_RECORD = "lost-record"
NEVER_STARTED = "never-started"
UNIT_FAILED = "unit-failed"
UNIT_STOPPED = "unit-stopped"
OPERATOR = "operator"
NOT_CONFIRMED = "not-confirmed"
OK = "ok"


class CodeInfo(NamedTuple):
    """What a code means and who must act."""

    kind: str
    meaning: str


CODES: Dict[str, CodeInfo] = {
    NOT_A_RELEASE: CodeInfo(REFUSAL, "the target's version is not a semantic version"),
    FAILED_BEFORE: CodeInfo(REFUSAL, "this version failed on this host before and was not cleared"),
    BAD_DIGEST: CodeInfo(REFUSAL, "the target's SHA-256 is not 32 bytes in hexadecimal"),
    NO_PINS: CodeInfo(REFUSAL, "the host's configuration pins no release keys"),
    NO_MANIFEST: CodeInfo(REFUSAL, "the target carries no signed manifest"),
    BAD_MANIFEST: CodeInfo(REFUSAL, "the manifest has another shape than the format allows"),
    TOO_FEW_SIGNATURES: CodeInfo(REFUSAL, "fewer distinct pinned keys signed than the threshold asks for"),
    NOT_CANONICAL: CodeInfo(REFUSAL, "the manifest is not byte for byte its canonical form"),
    WRONG_PRODUCT: CodeInfo(REFUSAL, "the manifest releases another product"),
    WRONG_VERSION: CodeInfo(REFUSAL, "the manifest releases another version than the target names"),
    BELOW_FLOOR: CodeInfo(REFUSAL, "the sequence is below the release floor of this host"),
    OLDER_THAN_RUNNING: CodeInfo(REFUSAL, "there is no floor yet and the version is older than the running one"),
    EXPIRED: CodeInfo(REFUSAL, "the manifest has expired"),
    NO_ARTIFACT: CodeInfo(REFUSAL, "the manifest lists no artifact for this platform with the target's SHA-256"),
    ARTIFACT_TOO_LARGE: CodeInfo(REFUSAL, "the artifact is larger than this host takes"),
    CHANNEL_NOT_ALLOWED: CodeInfo(REFUSAL, "the manifest's channel is not one that this host takes"),
    SEQUENCE_NOT_NEWER: CodeInfo(REFUSAL, "another version than the running one has the running release's sequence"),
    BELOW_MIN_FROM: CodeInfo(REFUSAL, "the running version is too old for this release: go by a stepping stone"),
    BAD_TARGET: CodeInfo(REFUSAL, "the target file is not what the control side may send"),
    BAD_KEY: CodeInfo(REFUSAL, "a key file cannot be used: format, kind, passphrase or not part of the release"),
    BAD_RELEASE: CodeInfo(REFUSAL, "the values given do not make a release"),
    RELEASES_DIFFER: CodeInfo(REFUSAL, "signed manifests to merge, or files to publish, are of different releases"),
    ALREADY_EXISTS: CodeInfo(REFUSAL, "a file with other contents is there and is never overwritten"),
    NO_CRYPTOGRAPHY: CodeInfo(REFUSAL, "the Python library cryptography is missing or too old"),
    CANNOT_READ: CodeInfo(REFUSAL, "a file cannot be read"),
    CANNOT_WRITE: CodeInfo(REFUSAL, "a file cannot be written"),
    NO_SYSTEMD: CodeInfo(REFUSAL, "the host does not run systemd, so nothing could end a trial"),
    GUARD_NOT_INSTALLED: CodeInfo(REFUSAL, "the guard or one of its units is not installed"),
    WATCHDOG_NOT_ARMED: CodeInfo(REFUSAL, "systemd does not report the deadline timer active"),
    UNIT_NOT_RUNNING: CodeInfo(REFUSAL, "the product's unit is not running or not enabled"),
    ADOPT_NEEDS_CONSENT: CodeInfo(REFUSAL, "a plain file is at the entrypoint and nobody agreed to adopt it"),
    ENTRYPOINT_ELSEWHERE: CodeInfo(REFUSAL, "the entrypoint is a link to somewhere else"),
    ENTRYPOINT_UNSAFE: CodeInfo(REFUSAL, "the file at the entrypoint is not root's alone"),
    STAGED_UNSAFE: CodeInfo(REFUSAL, "the staged file is not a plain file with one link, or changed its place"),
    DIGEST_MISMATCH: CodeInfo(REFUSAL, "the bytes have another SHA-256 than the manifest says"),
    SIZE_MISMATCH: CodeInfo(REFUSAL, "the bytes have another size than the manifest says"),
    NOT_EXECUTABLE: CodeInfo(REFUSAL, "the file is not a program that this system can start"),
    WRONG_MACHINE: CodeInfo(REFUSAL, "the program is for another kind of machine"),
    NO_INTERPRETER: CodeInfo(REFUSAL, "the interpreter that the program names is not on this host"),
    SMOKE_TEST_FAILED: CodeInfo(REFUSAL, "the staged program did not answer its version as it should"),
    NOEXEC: CodeInfo(REFUSAL, "programs cannot run from the slots directory"),
    READ_ONLY: CodeInfo(REFUSAL, "the filesystem of the slots is read-only"),
    OVERLAY: CodeInfo(REFUSAL, "the slots are on a filesystem that a reboot empties"),
    BAD_URL: CodeInfo(REFUSAL, "the download address is not one that this host takes"),
    NOT_ROOT: CodeInfo(REFUSAL, "the command changes the host and needs root"),
    NOT_PROVEN: CodeInfo(REFUSAL, "no proof that the unit's main process runs the new slot's bytes"),
    TRIAL_OVER: CodeInfo(REFUSAL, "the trial has ended already"),
    NO_TRIAL: CodeInfo(REFUSAL, "no trial is pending"),
    WRONG_TRIAL: CodeInfo(REFUSAL, "another trial is pending than the one named"),
    CLOCK_BEHIND: CodeInfo(RETRYABLE, "the host's clock is behind the time at which a release it trusts was issued"),
    NO_SPACE: CodeInfo(RETRYABLE, "not enough free space or inodes"),
    IN_PROGRESS: CodeInfo(RETRYABLE, "another command holds the lock"),
    TRIAL_PENDING: CodeInfo(RETRYABLE, "a trial is pending and must end first"),
    DOWNLOAD_FAILED: CodeInfo(RETRYABLE, "the download did not succeed"),
    BROKEN_RECORD: CodeInfo(BROKEN, "a record on the host is missing, torn or damaged"),
    BAD_CONFIG: CodeInfo(BROKEN, "the configuration has errors"),
    CRASH_LOOP: CodeInfo(OUTCOME, "the release kept exiting by itself"),
    DEADLINE_PASSED: CodeInfo(OUTCOME, "nobody confirmed before the trial's deadline"),
    NO_BOOTS_LEFT: CodeInfo(OUTCOME, "the host rebooted more often than a trial survives"),
    CANNOT_RECORD: CodeInfo(OUTCOME, "a reboot could not be written into the trial record"),
    BAD_RECORD: CodeInfo(OUTCOME, "the trial record is damaged"),
    LOST_RECORD: CodeInfo(OUTCOME, "the trial record is gone"),
    NEVER_STARTED: CodeInfo(OUTCOME, "the update ended before the release was started"),
    UNIT_FAILED: CodeInfo(OUTCOME, "the unit failed and systemd does not restart it"),
    UNIT_STOPPED: CodeInfo(OUTCOME, "the release exited and systemd does not restart it"),
    OPERATOR: CodeInfo(OUTCOME, "an operator asked to go back"),
    NOT_CONFIRMED: CodeInfo(OUTCOME, "the trial is not confirmed yet, or its end is not known here"),
    OK: CodeInfo(OUTCOME, "all is well"),
}


class Refusal(NamedTuple):
    """A terminal no: a stable code and a sentence."""

    code: str
    text: str


class Refused(Exception):
    """Raised by whoever executes when a decision was a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal

    @property
    def code(self) -> str:
        """The refusal's code."""
        return self.refusal.code

    @property
    def text(self) -> str:
        """The refusal's sentence."""
        return self.refusal.text


class Retryable(Exception):
    """It may work later with nothing changed: network, lock, space."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class BrokenRecord(Exception):
    """A record that the floor or the slots depend on cannot be believed."""

    code = BROKEN_RECORD

    def __init__(self, file: str, why: str) -> None:
        super().__init__("%s: %s" % (file, why))
        self.file = file
        self.why = why

    @property
    def text(self) -> str:
        """The file and what is wrong with it."""
        return "%s: %s" % (self.file, self.why)


class BadConfig(Exception):
    """The configuration has problems; each names file, line or key."""

    code = BAD_CONFIG

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems: Tuple[str, ...] = tuple(problems)

    @property
    def text(self) -> str:
        """All problems on one line."""
        return "; ".join(self.problems)
