# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new release or key set does that the ones before it would not make one expect.

Rules:

* Only documents whose signatures were verified are compared with; the newest is the one with the highest sequence.
* A jump is no error: each is a sentence with both values, shown before anybody signs, and must be accepted by name.
* The next sequence is one more than the highest; the same version again keeps its own.
"""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple, TypeVar

from . import documents, keys, manifest, rfc3339, semver

Body = TypeVar("Body", manifest.Manifest, documents.KeySet)
AHEAD_S = 86400
"""How far clocks may differ before a time of issue is a jump."""


def newest(before: Sequence[Body]) -> Optional[Body]:
    """The one with the highest sequence."""
    return max(before, key=lambda one: one.sequence, default=None)


def next_sequence(version: str, before: Sequence[manifest.Manifest]) -> Tuple[int, Optional[manifest.Manifest]]:
    """The sequence for a release of `version`, and the manifest that it was counted from."""
    last = newest([one for one in before if one.version == version]) or newest(before)
    if last is None:
        return 1, None
    return last.sequence if last.version == version else last.sequence + 1, last


def of_release(new: manifest.Manifest, before: Sequence[manifest.Manifest]) -> Tuple[str, ...]:
    """What jumps between the newest release before this one and this one; nothing when there is none before."""
    last = newest([one for one in before if one != new])
    if last is None:
        return ()
    found = _sequence(new.sequence, last.sequence, "release %s" % last.version)
    one, other = semver.parse(new.version), semver.parse(last.version)
    if one and other and semver.older(one, other):
        found.append("version %s is lower than %s" % (new.version, last.version))
    elif one and other and not semver.older(other, one):
        found.append("version %s is that of the release before, which has sequence %d" % (one.text, last.sequence))
    found += _keys(new.keys, last.keys)
    if new.channel != last.channel:
        found.append("channel %s; the release before was on %s" % (new.channel, last.channel))
    gone = sorted({one.platform for one in last.artifacts} - {one.platform for one in new.artifacts})
    found += ["nothing for %s any more" % platform for platform in gone]
    if new.issued_at < last.issued_at:
        times = (rfc3339.render(new.issued_at), rfc3339.render(last.issued_at))
        found.append("issued %s, before the release before it (%s)" % times)
    return tuple(found)


def of_key_set(new: documents.KeySet, before: Sequence[documents.KeySet]) -> Tuple[str, ...]:
    """What jumps between the newest key set before this one and this one."""
    last = newest([one for one in before if one != new])
    if last is None:
        return ()
    found = _sequence(new.sequence, last.sequence, "the key set before")
    if new.threshold < last.threshold:
        found.append("threshold %d; it was %d" % (new.threshold, last.threshold))
    if not set(new.pins) & set(last.pins):
        found.append("no pin of the key set before is kept")
    if new.expires_at < last.expires_at:
        times = (rfc3339.render(new.expires_at), rfc3339.render(last.expires_at))
        found.append("expires %s, earlier than the key set before (%s)" % times)
    return tuple(found)


def ahead(new: Body, now_s: int) -> Tuple[str, ...]:
    """The jump of a time of issue that has not come yet: hosts judge expiry by it from then on, and nothing takes it back."""
    if new.issued_at <= now_s + AHEAD_S:
        return ()
    text = "issued %s, %d days ahead of this machine's clock: hosts that take it judge every expiry by that time from then on"
    return (text % (rfc3339.render(new.issued_at), (new.issued_at - now_s) // 86400),)


def pin_lines(new: documents.KeySet, pins: Sequence[str]) -> List[str]:
    """Each pin of a key set beside those that count before it: new, kept or gone."""
    return [
        *("= %s (kept)" % pin if pin in pins else "+ %s (new)" % pin for pin in new.pins),
        *("- %s (gone)" % pin for pin in pins if pin not in new.pins),
    ]


def _sequence(new: int, last: int, what: str) -> List[str]:
    if new == last + 1:
        return []
    if new > last:
        return ["sequence %d; %s has %d, so %d would be next" % (new, what, last, last + 1)]
    return ["sequence %d is not above %d, that of %s: hosts would refuse it" % (new, last, what)]


def _keys(new: Sequence[manifest.Key], last: Sequence[manifest.Key]) -> List[str]:
    now, then = {one.spki for one in new}, {one.spki for one in last}
    return [
        *("key %s may sign now; it could not before" % keys.pin_of(one) for one in sorted(now - then)),
        *("key %s may not sign any more" % keys.pin_of(one) for one in sorted(then - now)),
    ]
