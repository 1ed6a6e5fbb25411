# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of `slotward release`; the text that teaches it is in `release_help.py`."""

from __future__ import annotations

import argparse
import time
from typing import Callable, Dict

from slotcore import keys, manifest, rfc3339
from slotward import release_help, release_signer


def parser() -> argparse.ArgumentParser:
    """The whole command line of `slotward release`."""
    top = argparse.ArgumentParser(
        prog="slotward release",
        description="Makes signed releases, checks and publishes them.",
        epilog=f"{release_help.TOUR}\n\n{release_help.EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subs = top.add_subparsers(dest="action", metavar="COMMAND", required=True)
    for name, fill in FILL.items():
        line = release_help.LINES[name]
        sub = subs.add_parser(
            name,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            epilog=f"{release_help.PAGES[name]}\n\n{release_help.EXITS}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("--json", action="store_true", help="print one JSON object on standard output")
        fill(sub)
    return top


def _keygen(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--output", required=True, metavar="NAME.pem", help="the private key's file, which must not be there"
    )
    sub.add_argument("--alg", choices=keys.ALGORITHMS, default=keys.ES256, help="default: %(default)s")
    lock = sub.add_mutually_exclusive_group()
    _passphrase(lock, "encrypt the private key with the first line of this file (default: ask on the terminal, twice)")
    lock.add_argument("--no-passphrase", action="store_true", help="leave the private key unencrypted")


def _build(sub: argparse.ArgumentParser) -> None:
    _release(sub)
    sub.add_argument(
        "--sequence",
        required=True,
        type=_sequence,
        metavar="N",
        help="higher than every release before, or next: one more than the highest verified at --previous",
    )
    _keys(sub, "a public key that may sign, 1 to 16 times")
    sub.add_argument(
        "--artifact",
        required=True,
        action="append",
        metavar="FILE[:OS-ARCH[:VARIANT]]",
        help="a program, or an archive .tar.gz; what it is for is read from a name that ends in _os_arch or _os_arch_variant",
    )
    sub.add_argument(
        "--program", metavar="NAME", help="what the program in an archive is called (default: the product)"
    )
    sub.add_argument(
        "--no-program-check",
        action="store_true",
        help="do not look whether artifacts are programs for their platforms",
    )
    sub.add_argument("--output", required=True, metavar="DIR", help="the base of all releases")
    sub.add_argument("--channel", default=manifest.DEFAULT_CHANNEL, help="default: %(default)s")
    sub.add_argument("--min-from", metavar="VERSION", help="releases below this one must pass a stepping stone first")
    sub.add_argument(
        "--epoch",
        type=_epoch,
        default=0,
        metavar="N",
        help="the format of the daemon's data, when a change of it must not be undone by an older release: default 0",
    )
    _times(sub, 365)
    _previous(sub, "manifests of earlier releases, or directories with them: what --sequence next counts")


def _inspect(sub: argparse.ArgumentParser) -> None:
    _document(sub, "the document to show")


def _sign(sub: argparse.ArgumentParser) -> None:
    _document(sub, "the document to sign, in place")
    key = sub.add_mutually_exclusive_group(required=True)
    key.add_argument("--key", metavar="KEY.pem", help="the private key: PEM or DER, as OpenSSL writes it")
    key.add_argument("--key-command", metavar="CMD", help="a command that signs its standard input, with its arguments")
    sub.add_argument("--public-key", metavar="PUB.pem", help="the public key of --key-command")
    sub.add_argument(
        "--key-timeout",
        type=_positive,
        default=release_signer.LIMIT_S,
        metavar="S",
        help="how long --key-command may take (default: %(default)s s)",
    )
    _passphrase(sub, "the first line of this file opens the private key (default: ask on the terminal)")
    sub.add_argument("--yes", action="store_true", help="do not ask; not enough for a jump")
    sub.add_argument("--accept-jump", action="store_true", help="sign in spite of what jumps")
    _previous(sub, "compare with the newest of these documents, files or directories, that verifies by the pins")


def _merge(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--output", required=True, metavar="FILE", help="where the merged document goes")
    sub.add_argument("file", nargs="+", metavar="FILE", help="a signed copy of the document")


def _verify(sub: argparse.ArgumentParser) -> None:
    _document(sub, "the published document")
    _pins(sub, required=True)
    sub.add_argument("--artifact", action="append", default=[], metavar="FILE", help="check this file too; repeatable")
    _at(sub)


def _publish(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--from", dest="source", required=True, metavar="DIR", help="the release's directory, or a signed withdrawal"
    )
    sub.add_argument("--to", required=True, metavar="BASE", help="the base of all published releases")
    _pins(sub, required=False)
    _at(sub)


def _withdraw(sub: argparse.ArgumentParser) -> None:
    _release(sub)
    _number(sub, "the sequence of the release that is withdrawn")
    sub.add_argument(
        "--why", required=True, metavar="TEXT", help="what is wrong with it: 1 to 500 printable characters"
    )
    _draft(sub)
    sub.add_argument("--issued-at", type=_time, default=_now(), metavar="TIME", help="default: now")


def _key_set(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--product", required=True, help="whose hosts trust it")
    _number(sub, "higher than that of the key set before")
    new = sub.add_mutually_exclusive_group(required=True)
    new.add_argument("--pin", action="append", default=[], metavar="PIN", help="a pin of the new set; repeatable")
    new.add_argument("--pins-file", metavar="FILE", help="the new set's pins, by commas, blanks or lines")
    sub.add_argument(
        "--threshold", required=True, type=_positive, metavar="N", help="signatures that the new set needs"
    )
    old = sub.add_mutually_exclusive_group(required=True)
    old.add_argument("--previous", metavar="FILE", help="the signed key set that hosts have now")
    old.add_argument("--old-pins", metavar="LIST", help="for the first key set: the pins of the hosts' configuration")
    old.add_argument("--old-pins-file", metavar="FILE", help="the same in a file")
    sub.add_argument(
        "--old-threshold",
        type=_positive,
        default=1,
        metavar="N",
        help="with --old-pins: signatures needed (default: 1)",
    )
    sub.add_argument("--accept-gap", action="store_true", help="make it although the set before has expired")
    _draft(sub)
    _times(sub, 365)


def _permit(sub: argparse.ArgumentParser) -> None:
    _release(sub)
    _number(sub, "the sequence of the release that is permitted")
    sub.add_argument(
        "--host", required=True, action="append", metavar="MACHINEID", help="as /etc/machine-id has it; repeatable"
    )
    sub.add_argument("--id", metavar="HEX", help="the permit's id, 16 to 64 of 0-9 and a-f (default: a random one)")
    _draft(sub)
    _times(sub, 7)


FILL: Dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "keygen": _keygen,
    "build": _build,
    "inspect": _inspect,
    "sign": _sign,
    "merge": _merge,
    "verify": _verify,
    "publish": _publish,
    "withdraw": _withdraw,
    "key-set": _key_set,
    "permit": _permit,
}


def _release(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--product", required=True, help="a-z, 0-9 and -, a letter first")
    sub.add_argument("--version", required=True, help="semantic version, such as 1.4.0")


def _number(sub: argparse.ArgumentParser, text: str) -> None:
    sub.add_argument("--sequence", required=True, type=_positive, metavar="N", help=text)


def _keys(sub: argparse.ArgumentParser, text: str) -> None:
    sub.add_argument("--key", required=True, action="append", metavar="PUB.pem", help=text)


def _draft(sub: argparse.ArgumentParser) -> None:
    _keys(sub, "a public key that may sign it, 1 to 16 times")
    sub.add_argument("--output", required=True, metavar="FILE", help="the unsigned document, which must not be there")


def _document(sub: argparse.ArgumentParser, text: str) -> None:
    sub.add_argument("--manifest", "--document", dest="manifest", required=True, metavar="FILE", help=text)


def _previous(sub: argparse.ArgumentParser, text: str) -> None:
    sub.add_argument("--previous", action="append", default=[], metavar="PATH", help=text)
    _pins(sub, required=False)


def _pins(sub: argparse.ArgumentParser, required: bool) -> None:
    pins = sub.add_mutually_exclusive_group(required=required)
    pins.add_argument("--pins", metavar="LIST", help="comma-separated sha256/<base64>")
    pins.add_argument("--pins-file", metavar="FILE", help="the same in a file, by commas, blanks or lines")
    sub.add_argument(
        "--threshold", type=_positive, default=1, metavar="N", help="distinct pinned keys needed (default: 1)"
    )


def _times(sub: argparse.ArgumentParser, days: int) -> None:
    sub.add_argument(
        "--expires-days",
        type=_days,
        default=days,
        metavar="N",
        help="hosts refuse it after that (default: %(default)s)",
    )
    sub.add_argument(
        "--issued-at", type=_time, default=_now(), metavar="TIME", help="such as 2026-01-31T12:00:00Z (default: now)"
    )


def _at(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--at", type=_time, default=_now(), metavar="TIME", help="judge expiry at this time (default: now)"
    )


def _passphrase(sub: argparse._ActionsContainer, text: str) -> None:
    sub.add_argument("--passphrase-file", metavar="FILE", help=text)


def _now() -> int:
    return int(time.time())


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def _sequence(text: str) -> str:
    return text if text == "next" else str(_positive(text))


def _epoch(text: str) -> int:
    return 0 if text == "0" else _positive(text)


def _days(text: str) -> int:
    found = _positive(text)
    if found > 36500:
        raise argparse.ArgumentTypeError(f"{found} days; at most 36500 are taken")
    return found


def _time(text: str) -> int:
    try:
        return rfc3339.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
