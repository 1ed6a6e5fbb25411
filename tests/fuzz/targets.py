# SPDX-License-Identifier: GPL-3.0-or-later
"""What is fuzzed: for each parser one function from bytes, and what must hold whatever the bytes are.

Rules:

* Nothing but the parser's own refusal comes out: any other exception is a find.
* What is accepted means the same to an independent reader (``support.oracles``, ``tomllib``, ``cryptography``) and can
  be written and read again.
* No call takes a second, and none raises the peak of the memory by 64 MiB (``watched``).

The same functions run under atheris (``make fuzz``) and, over the checked-in seeds and finds, under pytest.
Not here yet, because not written yet: the parser of helper messages.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import resource
import time
from typing import Callable, Dict, List, Mapping, Optional

import tomllib
from support import oracles

from slotcore import (
    canonical,
    codes,
    config,
    keys,
    manifest,
    records,
    rfc3339,
    semver,
    signatures,
    strictjson,
    target,
    toml,
    toml_edit,
    trial,
)
from slotward import download_rules, elf

MAX_SECONDS = 1.0
MAX_GROWTH_KIB = 64 << 10
NAME = "config.toml"

Target = Callable[[bytes], None]


class Find(AssertionError):
    """A promise that these bytes break."""


def must(holds: bool, what: str) -> None:
    """Raise Find unless it holds."""
    if not holds:
        raise Find(what)


def watched(one: Target, data: bytes) -> None:
    """Run a target, and raise Find when it takes too long or too much."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    one(data)
    seconds = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    must(seconds < MAX_SECONDS, "%.2f s for %d bytes" % (seconds, len(data)))
    must(grown < MAX_GROWTH_KIB, "%d KiB more memory for %d bytes" % (grown, len(data)))


def text_of(data: bytes) -> str:
    """Any text: lone surrogates too, as JSON may bring them."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


# --- JSON, canonical form, base64 ---


def fuzz_json(data: bytes) -> None:
    """The strict reader takes what the standard library takes within our limits, as the same value, and nothing else."""
    try:
        found: object = ("read", strictjson.parse(data))
    except strictjson.NotJson:
        found = "refused"
    try:
        wanted: object = ("read", oracles.strict_json(data.decode("utf-8")))
    except (ValueError, RecursionError):
        wanted = "refused"
    must(found == wanted, "%r, the standard library: %r" % (found, wanted))
    if isinstance(found, tuple):
        must(repr(found) == repr(wanted), "a value changed its type")


def fuzz_canonical(data: bytes) -> None:
    """One spelling: what is written is read back, is the standard library's, and is the only one that decode takes."""
    try:
        value = canonical.parse(data)
    except canonical.NotJson:
        return
    written = canonical.encode(value)
    must(written == oracles.canonical_json(value), "another spelling than the standard library's")
    must(canonical.decode(written) == value, "does not read back")
    try:
        canonical.decode(data)
    except canonical.NotCanonical:
        must(data != written, "its own canonical form is refused")
    else:
        must(data == written, "two spellings are taken")


def fuzz_base64(data: bytes) -> None:
    """One spelling for each string of bytes."""
    text = data.decode("latin-1")
    try:
        found = canonical.decode_base64(text)
    except ValueError:
        return
    must(base64.b64encode(found).decode() == text, "two texts for the same bytes")


# --- manifests ---


def published_around(body: bytes, kid: str) -> bytes:
    """A published form of any body, with one signature."""
    fields = {"manifest": base64.b64encode(body).decode(), "signatures": [{"kid": kid, "sig": "QUFB"}]}
    return json.dumps(fields).encode()


def fuzz_published(data: bytes) -> None:
    """Any bytes where a published manifest should be: refused with a code, never taken, since nobody here can sign."""
    found = signatures.verify_release(data, ("sha256/" + "A" * 43 + "=",), 1)
    must(isinstance(found, codes.Refusal), "an unsigned manifest is taken")
    try:
        form = manifest.parse_published(data)
    except manifest.BadManifest:
        return
    fuzz_body(form.body)


def fuzz_body(data: bytes) -> None:
    """Any bytes that were signed well: a manifest in its one spelling with every field in its bounds, or a refusal."""
    try:
        body, value = manifest.parse_body(data)
    except manifest.BadManifest:
        found = signatures.verify_release(published_around(data, "k"), (), 1, lambda *_key: True)
        must(isinstance(found, codes.Refusal) and found.code == codes.BAD_MANIFEST, repr(found))
        return
    must(1 <= len(body.keys) <= manifest.MAX_KEYS, "keys")
    must(len({keys.pin_of(key.spki) for key in body.keys}) == len(body.keys), "one key under two pins")
    must(0 < body.sequence <= canonical.MAX_INT and body.issued_at < body.expires_at, "numbers")
    must(all("/" not in one.name and one.name[0] != "." for one in body.artifacts), "a name that is a path")
    first = body.keys[0]
    pins, published = (keys.pin_of(first.spki),), published_around(data, first.kid)
    found = signatures.verify_release(published, pins, 1, lambda *_key: True)
    if data == oracles.canonical_json(value):
        must(isinstance(found, signatures.VerifiedManifest) and found.manifest == body, repr(found))
    else:
        must(isinstance(found, codes.Refusal) and found.code == codes.NOT_CANONICAL, repr(found))
    must(isinstance(signatures.verify_release(published, pins, 1), codes.Refusal), "a forged signature verifies")


def fuzz_keys(data: bytes) -> None:
    """Any bytes as a key and a signature: what has an algorithm has one encoding; nothing random verifies."""
    spki, signature, message = data[:91], data[91:155], data[155:]
    for key in (spki, manifest.SPKI_SHAPES[keys.ES256][0] + data[:64], manifest.SPKI_SHAPES[keys.EDDSA][0] + data[:32]):
        alg = manifest.alg_of(key)
        for said in keys.ALGORITHMS:
            must(not keys.verify(said, key, message, signature), "%s: a random signature verifies" % said)
        if alg is None:
            continue
        public = keys.public(key)
        must(keys.load_public(keys.public_pem(public)) == public, "does not read back")
        must(keys.is_pin(public.pin) and keys.parse_pins(public.pin) == (public.pin,), "its pin is none")
    with contextlib.suppress(ValueError):
        keys.parse_pins(data.decode("latin-1"))


def fuzz_target(data: bytes) -> None:
    """The control side's word: a target or `bad-target`."""
    try:
        found = target.parse(data)
    except codes.Refused as error:
        must(error.code == codes.BAD_TARGET, error.code)
        return
    again = json.dumps({key: value for key, value in found._asdict().items() if value is not None}).encode()
    must(target.parse(again) == found, "does not read back")
    target.platform_of(found.version)


# --- small grammars ---


def fuzz_semver(data: bytes) -> None:
    """The grammar is that of a reader that only splits; the order is total, and the same as that reader's."""
    texts = [text_of(part) for part in data.split(b"\0")[:3]]
    found = [semver.parse(text) for text in texts]
    wanted = [oracles.semver(text) for text in texts]
    must([one is None for one in found] == [one is None for one in wanted], "%r: %r" % (texts, wanted))
    pairs = [(one, other) for one, other in zip(found, wanted) if one is not None and other is not None]
    for one, first in pairs:
        for other, second in pairs:
            must(semver.older(one, other) is (first < second), "%s < %s" % (one.text, other.text))
            equal = not semver.older(one, other) and not semver.older(other, one)
            must(equal is (one.precedence == other.precedence), "%s and %s" % (one.text, other.text))


def fuzz_rfc3339(data: bytes) -> None:
    """A time is what the standard library's calendar says, and can be written again."""
    text = text_of(data)
    try:
        found: Optional[int] = rfc3339.parse(text)
    except ValueError:
        found = None
    must(found == oracles.rfc3339(text), "%r: %r, the calendar: %r" % (text, found, oracles.rfc3339(text)))
    if found is not None:
        must(rfc3339.render(found) == text[:19] + "Z", "does not read back")


def fuzz_toml(data: bytes) -> None:
    """Scanning never raises; what is accepted tomllib reads as the same values, and the writer keeps and makes it."""
    document, problems = toml.scan(data, NAME)
    if problems:
        try:
            toml.parse(data, NAME)
        except codes.BadConfig:
            return
        raise Find("scan has problems and parse has none")
    text = data.decode("utf-8")
    ours = document.values()
    theirs: Dict[str, object] = dict(tomllib.loads(text))
    flat: Dict[str, Dict[str, object]] = {
        toml.TOP: {key: value for key, value in theirs.items() if not isinstance(value, dict)}
    }
    flat.update({key: value for key, value in theirs.items() if isinstance(value, dict)})
    must(repr(sorted_twice(ours)) == repr(sorted_twice(flat)), "ours %r, tomllib's %r" % (ours, flat))
    must(toml_edit.replace_sections(text, {}) == text, "writing nothing changes the text")
    written = toml_edit.render(ours)
    if len(written.encode("utf-8")) <= toml.MAX_BYTES:
        must(toml.parse(written, NAME).values() == ours, "the writer's text reads otherwise")


def sorted_twice(values: Mapping[str, Mapping[str, object]]) -> List[object]:
    """Sections and keys in one order, types kept."""
    return [(name, sorted(values[name].items())) for name in sorted(values)]


def fuzz_config(data: bytes) -> None:
    """Whatever a configuration holds, the daemon gets one to run with, and check refuses exactly what has problems (I8)."""
    found, problems = config.load(data, NAME)
    must(all(problem.startswith(NAME) for problem in problems), "a problem without its file")
    must(found.slots_dir.startswith("/") and found.trial_length_s >= 5, "a value out of its bounds")
    try:
        checked = config.check(data, NAME)
    except codes.BadConfig:
        must(bool(problems), "check refuses what load takes")
    else:
        must(not problems and checked == found, "check takes what load refuses")


# --- records ---


def fuzz_trial(data: bytes) -> None:
    """A trial record is read or is bad, never an exception; what is read can be written again."""
    found = trial.parse_trial(data)
    if found is not None:
        must(trial.parse_trial(trial.render_trial(found)) == found, "does not read back")
    reverted, reason = trial.parse_revert(data)
    must(reverted is None or trial.parse_trial(trial.render_trial(reverted)) == reverted, "a reverted one does not")
    must(reason is None or len(reason) <= 64, "a long reason")
    trial.count_crashes(data)
    trial.was_started(data)


def fuzz_records(data: bytes) -> None:
    """A record is read or broken; what is read can be written again as the same value."""
    try:
        slots = records.parse_slots(data, "slots.json")
    except codes.BrokenRecord:
        pass
    else:
        must(records.parse_slots(records.render_slots(slots), "slots.json") == slots, "slots do not read back")
    try:
        update = records.parse_update(data, "update.json")
    except codes.BrokenRecord:
        return
    must(update.floor >= 0, "a floor below zero")
    must(records.parse_update(records.render_update(update), "update.json") == update, "update does not read back")


# --- what a server or a release's maker says ---


def fuzz_elf(data: bytes) -> None:
    """The first bytes of a program: a header, a script, or words for what they look like."""
    found = elf.parse(io.BytesIO(data))
    must(isinstance(found, (elf.Elf, elf.Script)) or bool(found), "nothing is said")


def fuzz_download(data: bytes) -> None:
    """Addresses, redirects and headers of a server: decisions, never exceptions, and never a way around https."""
    first, _nul, second = text_of(data).partition("\0")
    for allow_http in (False, True):
        refusal = download_rules.check_url(first, allow_http)
        if refusal is None:
            must(first.lower().startswith("https://" if not allow_http else "http"), "another scheme")
            after = download_rules.next_url(first, second)
            checked = download_rules.check_url(after, allow_http)
            must(checked is not None or "@" not in after.split("/")[2], "credentials")
    download_rules.shown_url(first)
    if download_rules.check_range(first, 5, 9) == "":
        must(first.startswith("bytes 5-") and first.endswith("/9"), "another range")
    waited = download_rules.parse_retry_after(first, second)
    must(waited is None or waited >= 0, "a wait before now")
    download_rules.strong_etag(first)
    download_rules.certificate_problem(first)
    must(bool(download_rules.describe_bytes(data)), "nothing is said")


TARGETS: Dict[str, Target] = {
    name[len("fuzz_") :]: one for name, one in sorted(globals().items()) if name.startswith("fuzz_") and callable(one)
}
