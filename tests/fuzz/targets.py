# SPDX-License-Identifier: GPL-3.0-or-later
"""What is fuzzed: for each parser one function from bytes, and what must hold whatever the bytes are.

Rules:

* Nothing but the parser's own refusal comes out: any other exception is a find.
* What is accepted means the same to an independent reader (``support.oracles``, ``tomllib``, ``cryptography``) and can
  be written and read again.
* No call takes a second, and none raises the peak of the memory by 64 MiB (``watched``).

The same functions run under atheris (``make fuzz``) and, over the checked-in seeds and finds, under pytest.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import os
import re
import resource
import tarfile
import time
from typing import Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

import tomllib
from support import oracles

from slotcore import (
    archive,
    audit,
    audit_chain,
    canonical,
    catalogue,
    clocks,
    codes,
    config,
    documents,
    keys,
    manifest,
    pem,
    program,
    protocol,
    recording,
    records,
    reply,
    rfc3339,
    semver,
    signatures,
    strictjson,
    target,
    toml,
    toml_edit,
    trial,
    trust,
    trust_record,
    unpacking,
)
from slotward import download_rules, elf

MAX_SECONDS = 1.0
MAX_GROWTH_KIB = 64 << 10
NAME = "config.toml"
NONCE = "ab" * 16
LIMITS = archive.Limits(entries=64, total=1 << 20, ratio=200)

Target = Callable[[bytes], None]
T = TypeVar("T")


class Find(AssertionError):
    """A promise that these bytes break."""


def must(holds: bool, what: str) -> None:
    """Raise Find unless it holds."""
    if not holds:
        raise Find(what)


def watched(one: Target, data: bytes) -> Tuple[float, int]:
    """Run a target, and raise Find when it takes too long or too much; its seconds and the KiB that the peak grew by."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    one(data)
    seconds = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    must(seconds < MAX_SECONDS, "%.2f s for %d bytes" % (seconds, len(data)))
    must(grown < MAX_GROWTH_KIB, "%d KiB more memory for %d bytes" % (grown, len(data)))
    return seconds, grown


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


def judged(data: bytes, kind: documents.Kind) -> Optional[documents.Body]:
    """Judge a body as if it were signed well: one kind's, in its one spelling, or a refusal with the code of what is wrong."""
    try:
        body, value = kind.parse(data)
    except documents.BadDocument:
        found = signatures.verify(published_around(data, "k"), kind, (), 1, lambda *_key: True)
        must(isinstance(found, codes.Refusal) and found.code == kind.bad_shape, repr(found))
        return None
    must(1 <= len(body.keys) <= manifest.MAX_KEYS, "keys")
    must(len({keys.pin_of(key.spki) for key in body.keys}) == len(body.keys), "one key under two pins")
    must(0 < body.sequence <= canonical.MAX_INT, "numbers")
    pins, published = (keys.pin_of(body.keys[0].spki),), published_around(data, body.keys[0].kid)
    found = signatures.verify(published, kind, pins, 1, lambda *_key: True)
    if data == oracles.canonical_json(value):
        must(isinstance(found, signatures.Verified) and found.body == body, repr(found))
    else:
        must(isinstance(found, codes.Refusal) and found.code == codes.NOT_CANONICAL, repr(found))
    must(isinstance(signatures.verify(published, kind, pins, 1), codes.Refusal), "a forged signature verifies")
    return body


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
    body = judged(data, documents.RELEASE)
    if isinstance(body, manifest.Manifest):
        must(body.issued_at < body.expires_at, "times")
        must(all("/" not in one.name and one.name[0] != "." for one in body.artifacts), "a name that is a path")


def fuzz_documents(data: bytes) -> None:
    """Any bytes as each kind of signed document: only the kind that they name takes them, and it writes the same again."""
    try:
        named = documents.kind_of(data)
    except documents.BadDocument:
        named = documents.KINDS[len(data) % len(documents.KINDS)]
    body = judged(data, named)
    for kind in documents.KINDS:
        if kind is not named:
            try:
                kind.parse(data)
            except documents.BadDocument:
                continue
            raise Find("one body of two kinds")
    if body is not None:
        must(bool(documents.named(body)), "without a name")
    if body is not None and not isinstance(body, manifest.Manifest):
        must(named.parse(documents.render(body))[0] == body, "does not read back")


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


def fuzz_audit(data: bytes) -> None:
    """A log: a chain or a fault, never an exception; a line that is taken has one spelling and can be followed."""
    lines = data.split(b"\n")
    found = audit_chain.verify(lines)
    if isinstance(found, audit_chain.Chain):
        must(audit_chain.facts(lines).confirmed >= 0, "a sequence below zero")
    for one in lines:
        try:
            line = audit.parse(one)
        except audit.BadLine:
            continue
        must(audit.render(line) == one, "two spellings of a line")
        if line.number == audit.MAX_INT:
            continue
        more = audit.append(one, line.event)
        must(audit_chain.follow(audit.head_of(one), more).number == line.number + 1, "the next line does not follow")
    sealed = recording.unsealed(data)
    must(sealed is None or recording.sealed(sealed) == data, "two spellings of a copy")
    must(recording.unsealed(recording.sealed(data)) == data, "a copy does not prove itself")


def fuzz_records(data: bytes) -> None:
    """Each of the three records is read or broken; what is read can be written again as the same value."""
    with contextlib.suppress(codes.BrokenRecord):
        slots = records.parse_slots(data, "slots.json")
        must(records.parse_slots(records.render_slots(slots), "slots.json") == slots, "slots do not read back")
    with contextlib.suppress(codes.BrokenRecord):
        update = records.parse_update(data, "update.json")
        must(update.floor >= 0, "a floor below zero")
        must(records.parse_update(records.render_update(update), "update.json") == update, "update does not read back")
    with contextlib.suppress(codes.BrokenRecord):
        record = trust_record.parse(data, "trust.json")
        must(record.generation > 0, "a generation that was never written")
        must(trust_record.parse(trust_record.render(record), "trust.json") == record, "trust does not read back")


def fuzz_trust(data: bytes) -> None:
    """Any bytes given to a host as a key set, withdrawal or permit: refused, since nobody here can sign."""
    facts = trust.Facts("toy", ("sha256/" + "A" * 43 + "=",), 1, 0, clocks.Clocks(1, 1, 1), "0" * 32)
    none = trust_record.Trust()
    for published in (data, published_around(data, "k0")):
        must(isinstance(trust.apply(facts, none, [("x", published)]), codes.Refusal), "an unsigned document is taken")
        must(isinstance(trust.permit(facts, none, published), codes.Refusal), "an unsigned permit is taken")


# --- what the unprivileged side and root's say to each other ---


def fuzz_protocol(data: bytes) -> None:
    """Any bytes as a greeting, a request of a connection or of a file, an answer: read and written again, or its own error."""
    for nonce in (None, NONCE):
        try:
            request = protocol.parse_request(data, nonce)
        except codes.Refused as error:
            must(error.code in (codes.BAD_REQUEST, codes.PROTOCOL_MISMATCH), error.code)
            continue
        for name in (request.target, request.permit):
            must(name is None or ("/" not in name and name[0] != "."), "a name that is a path")
        written = protocol.render_request(request)
        must(len(written) <= protocol.MAX_REQUEST, "longer than a request may be")
        must(protocol.parse_request(written, nonce) == request, "does not read back")
    _said_again(data, protocol.parse_hello, protocol.render_hello)
    _said_again(data, reply.parse, reply.render)


def _said_again(data: bytes, read: Callable[[bytes], T], write: Callable[[T], bytes]) -> None:
    """What is read can be written, short enough, and read again."""
    try:
        found = read(data)
    except codes.Retryable as error:
        must(error.code == codes.BAD_ANSWER, error.code)
        return
    again = write(found)
    must(len(again) <= protocol.MAX_ANSWER, "longer than an answer may be")
    must(read(again) == found or 6 * len(data) > protocol.MAX_ANSWER, "does not read back")


# --- what a server or a release's maker says ---


def taken_archive(pieces: List[bytes]) -> Optional[List[archive.Entry]]:
    """What the archive holds, or nothing when it is refused as it should be; each file has all its bytes."""
    found: List[archive.Entry] = []
    left = 0
    try:
        for one in archive.read(pieces, LIMITS):
            if isinstance(one, bytes):
                left -= len(one)
                continue
            must(left == 0, "%d bytes of a file are missing" % left)
            found.append(one)
            left = one.size
    except codes.Refused as error:
        must(error.code == codes.BAD_ARCHIVE, error.code)
        return None
    must(left == 0, "%d bytes of the last file are missing" % left)
    return found


def fuzz_archive(data: bytes) -> None:
    """A gzip file and, compressed here, a tar: refused, or plain names that tarfile finds too, however the pieces fall."""
    packed = gzip.compress(data, 1, mtime=0)
    taken_archive([data])
    found = taken_archive([packed])
    must(found == taken_archive([packed[at : at + 7] for at in range(0, len(packed), 7)]), "pieces decide")
    if found is None:
        return
    for one in found:
        parts = one.name.split("/")
        must(one.name == "" or not {"", ".", ".."} & set(parts), "a name with %r" % one.name)
        must("\0" not in one.name and "\\" not in one.name and not (one.directory and one.size), "an odd member")
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", encoding="utf-8", errors="strict") as tar:
        theirs = [(os.path.normpath(one.name), one.size, one.isdir()) for one in tar if one.isreg() or one.isdir()]
    must([(one.name or ".", one.size, one.directory) for one in found] == theirs, "tarfile finds %r" % theirs)
    unpacking.lay_out(found, "t")


def fuzz_elf(data: bytes) -> None:
    """The first bytes of a program: a header, a script, or words for what they look like."""
    found = elf.parse(io.BytesIO(data))
    must(isinstance(found, (elf.Elf, elf.Script)) or bool(found), "nothing is said")


def fuzz_catalogue(data: bytes) -> None:
    """A catalogue is read or bad, and can be written again; a file before it is published is a program or refused."""
    with contextlib.suppress(catalogue.BadCatalogue):
        found = catalogue.parse(data)
        again = catalogue.parse(catalogue.encode(found.product, found.releases))
        must(again == found, "does not read back")
    for platform in ("linux-amd64", "linux-arm64", "darwin-arm64", "x"):
        refusal = program.check("x", data[:256], platform)
        must(refusal is None or bool(refusal.text), "nothing is said")
    block = pem.find(data)
    if block is not None:
        with contextlib.suppress(ValueError):
            written = pem.find(pem.write(block.label, block.der()))
            must(written is not None and written.der() == block.der(), "a block does not read back")


def fuzz_download(data: bytes) -> None:
    """Addresses, redirects and headers of a server: decisions, never exceptions, and never a way around https."""
    first, _nul, second = text_of(data).partition("\0")
    for allow_http in (False, True):
        refusal = download_rules.check_url(first, allow_http)
        if refusal is None:
            must(first.lower().startswith("https://" if not allow_http else "http"), "another scheme")
            after = download_rules.next_url(first, second)
            checked = download_rules.check_url(after, allow_http)
            place = re.split("[/?#]", after.partition("://")[2])[0]
            must(checked is not None or "@" not in place, "credentials")
    download_rules.shown_url(first)
    if download_rules.check_range(first, 5, 9) == "":
        said = [int(number) for number in re.findall("[0-9]+", first)]
        must(said in ([5, 5, 9], [5, 6, 9], [5, 7, 9], [5, 8, 9]), "another range")
    waited = download_rules.parse_retry_after(first, second)
    must(waited is None or waited >= 0, "a wait before now")
    download_rules.strong_etag(first)
    download_rules.certificate_problem(first)
    must(bool(download_rules.describe_bytes(data)), "nothing is said")


TARGETS: Dict[str, Target] = {
    name[len("fuzz_") :]: one for name, one in sorted(globals().items()) if name.startswith("fuzz_") and callable(one)
}
