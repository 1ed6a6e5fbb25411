# SPDX-License-Identifier: GPL-3.0-or-later
"""Every reason this project gives, as a stable code, and the few errors that carry one.

Rules:

* A code is kebab-case, has one meaning and is never used again for another.
* ``CODES`` here and the tables of ``docs/design/codes.md`` are the only two lists; a test compares them.
* The errors that carry one stand in ``errors`` and are named by this module.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Union

from . import errors

Refusal = errors.Refusal
Refused = errors.Refused
refused = errors.refused
Retryable = errors.Retryable
BrokenRecord = errors.BrokenRecord
BrokenAudit = errors.BrokenAudit
BadConfig = errors.BadConfig

REFUSAL = "refusal"
RETRYABLE = "retryable"
BROKEN = "broken"
OUTCOME = "outcome"
KINDS = (REFUSAL, RETRYABLE, BROKEN, OUTCOME)


def error_of(refusal: Refusal) -> Union[Refused, Retryable]:
    """The error that carries it: one that passes by itself where its code is of that kind."""
    if CODES[refusal.code].kind == RETRYABLE:
        return Retryable(refusal.code, refusal.text)
    return Refused(refusal)


class CodeInfo(NamedTuple):
    """What a code means and who must act."""

    kind: str
    meaning: str


CODES: Dict[str, CodeInfo] = {}


def _code(code: str, kind: str, meaning: str) -> str:
    """Enter one code into the table."""
    CODES[code] = CodeInfo(kind, meaning)
    return code


# Trust: the checks of a release, in their order.
NOT_A_RELEASE = _code("not-a-release", REFUSAL, "the target's version is not a semantic version")
FAILED_BEFORE = _code("failed-before", REFUSAL, "this version failed on this host before and was not cleared")
BAD_DIGEST = _code("bad-digest", REFUSAL, "the target's SHA-256 is not 32 bytes in hexadecimal")
NO_PINS = _code("no-pins", REFUSAL, "the host's configuration pins no release keys")
NO_MANIFEST = _code("no-manifest", REFUSAL, "the target carries no signed manifest")
BAD_MANIFEST = _code("bad-manifest", REFUSAL, "the manifest has another shape than the format allows")
TOO_FEW_SIGNATURES = _code("too-few-signatures", REFUSAL, "fewer pinned keys signed than the threshold asks for")
NOT_CANONICAL = _code("not-canonical", REFUSAL, "the manifest is not byte for byte its canonical form")
WRONG_PRODUCT = _code("wrong-product", REFUSAL, "the manifest releases another product")
WRONG_VERSION = _code("wrong-version", REFUSAL, "the manifest releases another version than the target names")
BELOW_FLOOR = _code("below-floor", REFUSAL, "the sequence is below the release floor of this host")
OLDER_THAN_RUNNING = _code("older-than-running", REFUSAL, "no floor yet, and older than the running version")
EXPIRED = _code("expired", REFUSAL, "the manifest has expired")
NO_ARTIFACT = _code("no-artifact", REFUSAL, "no artifact for this platform has the target's SHA-256")
ARTIFACT_TOO_LARGE = _code("artifact-too-large", REFUSAL, "the artifact is larger than this host takes")
CHANNEL_NOT_ALLOWED = _code("channel-not-allowed", REFUSAL, "the manifest's channel is not one that this host takes")
WRONG_CHANNEL = _code("wrong-channel", REFUSAL, "the manifest is on another channel than was asked for")
WRONG_KIND = _code("wrong-kind", REFUSAL, "the artifact is of a kind that this product does not take")
WITHDRAWN = _code("withdrawn", REFUSAL, "the release was withdrawn by a signed notice")
BELOW_MIN_FROM = _code("below-min-from", REFUSAL, "the running version must pass a stepping stone first")
UPDATES_DISABLED = _code("updates-disabled", REFUSAL, "the host's configuration has updates off")
BELOW_MIN_VERSION = _code("below-min-version", REFUSAL, "older than the oldest version that this host takes")
TOO_FAR_BACK = _code("too-far-back", REFUSAL, "more minor versions back than this host goes")
OTHER_MAJOR = _code("other-major", REFUSAL, "another major version than the one that runs")
SEQUENCE_NOT_NEWER = _code("sequence-not-newer", REFUSAL, "this host takes only sequences above its floor")
KEYS_EXPIRED = _code("keys-expired", REFUSAL, "the key set that this host trusts has expired")
BAD_TARGET = _code("bad-target", REFUSAL, "the target file is not what the control side may send")

# Signed documents beside the manifest: key sets, permits, withdrawals.
BAD_DOCUMENT = _code("bad-document", REFUSAL, "the signed document has another shape than the format allows")
KEYS_NOT_NEWER = _code("keys-not-newer", REFUSAL, "the key set's sequence is not above that of the one in use")
NOT_PERMITTED = _code("not-permitted", REFUSAL, "the permit is not for this host, product or release")
PERMIT_USED = _code("permit-used", REFUSAL, "the permit was used on this host already")
RECORD_FULL = _code("record-full", REFUSAL, "the record of trust has no room for one more notice")
FLOOR_UNPROVEN = _code("floor-unproven", REFUSAL, "nothing proves the floor, so an operator must say it")

# Making releases.
BAD_KEY = _code("bad-key", REFUSAL, "a key file cannot be used: format, kind, passphrase or not part of the release")
BAD_RELEASE = _code("bad-release", REFUSAL, "the values given do not make a release")
RELEASES_DIFFER = _code("releases-differ", REFUSAL, "what is to be put together is of different releases")
ALREADY_EXISTS = _code("already-exists", REFUSAL, "a file with other contents is there and is never overwritten")
NOT_AGREED = _code("not-agreed", REFUSAL, "nobody agreed to what would be signed")
NO_CRYPTOGRAPHY = _code("no-cryptography", REFUSAL, "the Python library cryptography is missing or too old")
CANNOT_READ = _code("cannot-read", REFUSAL, "a file cannot be read")
CANNOT_WRITE = _code("cannot-write", REFUSAL, "a file cannot be written")

# The host before a switch.
NO_SYSTEMD = _code("no-systemd", REFUSAL, "the host does not run systemd, so nothing could end a trial")
GUARD_NOT_INSTALLED = _code("guard-not-installed", REFUSAL, "the guard or one of its units is not installed")
WATCHDOG_NOT_ARMED = _code("watchdog-not-armed", REFUSAL, "systemd does not report the deadline timer active")
UNIT_NOT_RUNNING = _code("unit-not-running", REFUSAL, "the product's unit is not running or not enabled")
ADOPT_NEEDS_CONSENT = _code("adopt-needs-consent", REFUSAL, "a plain file at the entrypoint and no consent to adopt it")
ENTRYPOINT_ELSEWHERE = _code("entrypoint-elsewhere", REFUSAL, "the entrypoint is a link to somewhere else")
ENTRYPOINT_UNSAFE = _code("entrypoint-unsafe", REFUSAL, "the file at the entrypoint is not root's alone")
STAGED_UNSAFE = _code("staged-unsafe", REFUSAL, "the staged file is not a plain file with one link")
DIGEST_MISMATCH = _code("digest-mismatch", REFUSAL, "the bytes have another SHA-256 than the manifest says")
SIZE_MISMATCH = _code("size-mismatch", REFUSAL, "the bytes have another size than the manifest says")
NOT_EXECUTABLE = _code("not-executable", REFUSAL, "the file is not a program that this system can start")
WRONG_MACHINE = _code("wrong-machine", REFUSAL, "the program is for another kind of machine")
NO_INTERPRETER = _code("no-interpreter", REFUSAL, "the interpreter that the program names is not on this host")
SMOKE_TEST_FAILED = _code("smoke-test-failed", REFUSAL, "the staged program did not answer its version as it should")
BAD_ARCHIVE = _code("bad-archive", REFUSAL, "the archive holds what is never unpacked, or is damaged")
NO_LABEL = _code("no-label", REFUSAL, "SELinux is on and the slot could not be given its label")
ALLOW_LIST = _code("allow-list", REFUSAL, "an allow-list of programs would not let the new release start")
NO_SPACE = _code("no-space", RETRYABLE, "not enough free space or inodes")
NOEXEC = _code("noexec", REFUSAL, "programs cannot run from the slots directory")
READ_ONLY = _code("read-only", REFUSAL, "the filesystem of the slots is read-only")
OVERLAY = _code("overlay", REFUSAL, "the slots are on a filesystem that a reboot empties")
BAD_URL = _code("bad-url", REFUSAL, "the download address is not one that this host takes")
DOWNLOAD_REFUSED = _code("download-refused", REFUSAL, "the server's answer cannot become the artifact, now or later")
CLOCK_BEHIND = _code(
    "clock-behind", RETRYABLE, "this host's clock is behind: what a server proves itself by begins later"
)
UNTRUSTED_SERVER = _code("untrusted-server", REFUSAL, "this host does not trust the download server's certificate")
NO_CA_ROOTS = _code("no-ca-roots", REFUSAL, "this host has no authorities to check a download server with")
USAGE = _code("usage", REFUSAL, "the words of the command do not go together")
NOT_ROOT = _code("not-root", REFUSAL, "the command changes the host and needs root")
DIRECTORY_UNSAFE = _code("directory-unsafe", REFUSAL, "others than root may change a place that root relies on")
NO_ACCOUNT = _code("no-account", REFUSAL, "the account that the configuration names is not on this host")
NOT_ALLOWED = _code("not-allowed", REFUSAL, "who asks, or what is asked, is not served here")
BAD_REQUEST = _code("bad-request", REFUSAL, "a request is not of the protocol's form")
PROTOCOL_MISMATCH = _code("protocol-mismatch", REFUSAL, "the two sides share no version of the protocol")
ID_REUSED = _code("id-reused", REFUSAL, "the operation's id was used for another request")
TOO_MANY = _code("too-many", RETRYABLE, "more is asked than is served at once")
HELPER_UNREACHABLE = _code("helper-unreachable", RETRYABLE, "the helper gives no answer")
DAEMON_UNREACHABLE = _code("daemon-unreachable", RETRYABLE, "the daemon's control socket gives no answer")
NOT_PROVEN = _code("not-proven", REFUSAL, "no proof that the unit's main process runs the new slot's bytes")
TRIAL_OVER = _code("trial-over", REFUSAL, "the trial has ended already")
NO_TRIAL = _code("no-trial", REFUSAL, "no trial is pending")
WRONG_TRIAL = _code("wrong-trial", REFUSAL, "another trial is pending than the one named")
WRONG_SOURCE = _code("wrong-source", REFUSAL, "who confirms is not a confirmation source of this host")
OS_ERROR = _code("os-error", RETRYABLE, "the operating system refused something that should work: the text names what")
UNKNOWN_PRODUCT = _code("unknown-product", REFUSAL, "no product of this name is configured on this host")
IN_PROGRESS = _code("in-progress", RETRYABLE, "another command holds the lock")
CANCELLED = _code("cancelled", RETRYABLE, "somebody ended it before the switch")
TRIAL_PENDING = _code("trial-pending", RETRYABLE, "a trial is pending and must end first")
SYSTEMD_FAILED = _code("systemd-failed", RETRYABLE, "systemd refused what it was asked or gave no answer in time")
DOWNLOAD_FAILED = _code("download-failed", RETRYABLE, "the download did not succeed")
RECORD_BROKEN = _code("record-broken", BROKEN, "a record on the host is missing, torn or damaged")
AUDIT_BROKEN = _code("audit-broken", BROKEN, "the audit log was changed or cut")
BAD_CONFIG = _code("bad-config", BROKEN, "the configuration has errors")

# Products: any daemon of the host (docs/design/products.md).
PACKAGE_OWNS_PATH = _code("package-owns-path", REFUSAL, "a package owns the path, and nobody agreed to divert it")
PRODUCT_CONFLICT = _code("product-conflict", REFUSAL, "another product or updater has the same unit, path or slots")
PART_MISSING = _code("part-missing", REFUSAL, "the release lacks a part that the product's file names")
BAD_UNIT = _code("bad-unit", REFUSAL, "systemd would not take the unit file that the release brings")
CANNOT_BE_UNDONE = _code(
    "cannot-be-undone", REFUSAL, "the release changes the data's epoch and nothing could restore it"
)
HELD = _code("held", REFUSAL, "an operator holds the product at what it runs")
OUTSIDE_WINDOW = _code("outside-window", RETRYABLE, "it is not one of the times at which the product may be updated")
FROZEN = _code("frozen", RETRYABLE, "updates are frozen for now")
NO_ZONE = _code("no-zone", REFUSAL, "the host does not know a time zone that the product's file names")
NO_EVIDENCE = _code("no-evidence", REFUSAL, "nothing is kept on this host of how that trial failed")
NOT_KEPT = _code("not-kept", REFUSAL, "the release to go back to is not kept on this host")
VETOED = _code("vetoed", RETRYABLE, "the product's workload says later")
SOURCE_DECIDES = _code("source-decides", REFUSAL, "an address was given, and the product's source decides addresses")
BAD_REDIRECT = _code("bad-redirect", REFUSAL, "the server leads to a host that the product's source does not name")
RESTORE_PENDING = _code("restore-pending", RETRYABLE, "the data of the version before is still to be restored")
STAGED_MANUAL = _code("staged-manual", OUTCOME, "the release is staged and waits for an operator's word")
PROBE_FAILED = _code("probe-failed", OUTCOME, "a required probe kept failing")
PROBE_FLAPPING = _code("probe-flapping", OUTCOME, "a required probe kept changing between passing and failing")
SNAPSHOT_FAILED = _code("snapshot-failed", OUTCOME, "the data could not be kept before the release's first start")
RESTORE_FAILED = _code("restore-failed", OUTCOME, "the data of the version before could not be restored")
TOO_MANY_STARTS = _code("too-many-starts", OUTCOME, "the release was started more often than its trial allows")

# What only who asks an agent says.
NOT_INSTALLED = _code("not-installed", REFUSAL, "there is no agent on the host")
UNREACHABLE = _code("unreachable", RETRYABLE, "the host cannot be reached")
BAD_ANSWER = _code("bad-answer", RETRYABLE, "the agent gave no answer that can be read")

# How a trial ended.
CRASH_LOOP = _code("crash-loop", OUTCOME, "the release kept exiting by itself")
DEADLINE_PASSED = _code("deadline-passed", OUTCOME, "nobody confirmed before the trial's deadline")
NO_BOOTS_LEFT = _code("no-boots-left", OUTCOME, "the host rebooted more often than a trial survives")
CANNOT_RECORD = _code("cannot-record", OUTCOME, "a reboot could not be written into the trial record")
SLOT_UNPROVEN = _code("slot-unproven", OUTCOME, "at boot the slot no longer held the bytes that had been verified")
BAD_RECORD = _code("bad-record", OUTCOME, "the trial record is damaged")
LOST_RECORD = _code("lost-record", OUTCOME, "the trial record is gone")
NEVER_STARTED = _code("never-started", OUTCOME, "the update ended before the release was started")
UNIT_FAILED = _code("unit-failed", OUTCOME, "the unit failed and systemd does not restart it")
UNIT_STOPPED = _code("unit-stopped", OUTCOME, "the release exited and systemd does not restart it")
OPERATOR = _code("operator", OUTCOME, "an operator asked to go back")
GAVE_UP = _code("gave-up", OUTCOME, "the release itself asked to go back")
DID_NOT_START = _code("did-not-start", OUTCOME, "the release went back and nobody could write down why")
NOT_CONFIRMED = _code("not-confirmed", OUTCOME, "the trial is not confirmed yet, or its end is not known here")
OK = _code("ok", OUTCOME, "all is well")
