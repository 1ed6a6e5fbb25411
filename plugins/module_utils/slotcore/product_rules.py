# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold between the values of a product's file (products.md, section 1).

Rules:

* Each rule is a sentence that names the keys, their values and the way out; all of them are told at once.
* A value that has a problem of its own is not judged again with others.
* A section that lacks what it needs is dropped, so that nobody acts on half of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from . import config_table, product_sections, product_table
from . import product as products

if TYPE_CHECKING:
    from .product_config import Values

Bad = Set[Tuple[str, str]]
Disagreement = Tuple[Tuple[Tuple[str, str], ...], str]
"""The keys that do not go together, and the sentence."""
UPDATE = config_table.UPDATE
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_OF_KIND: Dict[str, Tuple[str, ...]] = {
    "command": ("command", "user"),
    "http": ("url", "status", "body", "ca_file"),
    "tcp": ("address",),
    "unit": ("unit", "for_s"),
    "file": ("path", "fresh_s"),
    "journal": ("pattern", "unit"),
}
_NEEDED = {"command": "command", "http": "url", "tcp": "address", "file": "path", "journal": "pattern"}
_COMMON = ("kind", "need", "timeout_s")


def days_of(parts: Sequence[str]) -> Tuple[int, ...]:
    """Days of the week, 0 is Monday, of days and ranges; a range may go over Sunday."""
    found: Set[int] = set()
    for part in parts:
        first, _dash, last = part.partition("-")
        low, high = DAYS.index(first), DAYS.index(last or first)
        found.update(day % 7 for day in range(low, high + 1 + (7 if high < low else 0)))
    return tuple(sorted(found))


def minutes_of(text: str) -> int:
    """Minutes of the day of `22:30`."""
    hours, _colon, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def slots_dir(top: Values, name: str) -> str:
    """Where the slots of the product `name` are."""
    return top.text("slots_dir") or config_table.SLOTS_HOME + "/" + name


def host_of(url: str) -> str:
    """The host of an address, with its port where it has one."""
    return url.partition("//")[2].partition("/")[0]


def judge(
    single: Mapping[str, Values], repeated: Mapping[str, List[Values]], bad: Bad, name: str
) -> Tuple[List[str], Set[str]]:
    """Every problem between values, and the sections that are dropped."""
    problems = [
        "%s is missing: it is %s" % (key, key_meaning("", key))
        for key in ("unit", "entrypoint")
        if not single[""].text(key) and ("", key) not in bad
    ]
    dropped: Set[str] = set()
    for row, sections in repeated.items():
        for values in sections:
            said = list(_section(row, values, bad))
            lacking = [key for section, key in product_table.REQUIRED if section == row and not values.text(key)]
            if said or lacking:
                dropped.add(values.section)
            problems += ["[%s]: %s" % (values.section, text) for text in said]
        if len(sections) > product_sections.MAX_REPEATED:
            kind = row.rstrip("*-")
            problems.append(
                "there are %d [%s] sections, at most %d are read: remove some"
                % (len(sections), kind + "-…", product_sections.MAX_REPEATED)
            )
    problems += [text for keys, text in _disagreements(single, repeated, dropped, name) if not set(keys) & bad]
    return problems, dropped


def key_meaning(section: str, name: str) -> str:
    """What the table says of a key that is required."""
    found = next(key for key in product_table.KEYS if (key.section, key.name) == (section, name))
    return found.meaning.replace("required: ", "")


def _section(row: str, values: Values, bad: Bad) -> Iterator[str]:
    for section, key in product_table.REQUIRED:
        if section == row and not values.text(key) and (values.section, key) not in bad:
            yield "%s is missing: it is %s" % (key, key_meaning(row, key))
    if row == product_sections.PROBE and values.text("kind"):
        yield from _probe(values, bad)
    elif row == product_sections.HOOK and values.name not in product_sections.HOOKS:
        yield "there is no hook %r: expected one of %s" % (values.name, ", ".join(product_sections.HOOKS))
    elif row == product_sections.HOOK and "when" in values.given and values.name != "snapshot":
        yield "when is for [hook-snapshot] alone: remove it"
    elif row == product_sections.WINDOW and values.text("from") and values.text("from") == values.text("to"):
        yield "from and to are both %s, so it is never open: for whole days say 00:00 to 24:00" % values.text("to")
    elif row == product_sections.FREEZE and values.text("from") > values.text("to") > "":
        yield "from (%s) is after to (%s): it would never begin" % (values.text("from"), values.text("to"))


def _probe(values: Values, bad: Bad) -> Iterator[str]:
    kind = values.text("kind")
    needed = _NEEDED.get(kind, "")
    if needed and not values.text(needed) and (values.section, needed) not in bad:
        yield "kind is %s, and %s is missing" % (kind, needed)
    for key in values.given:
        if key not in _COMMON and key not in _OF_KIND[kind]:
            yield "kind is %s, which has no %s: it has %s" % (kind, key, ", ".join(_OF_KIND[kind]))
    host, _colon, port = values.text("address").rpartition(":")
    if kind == "tcp" and values.text("address") and not (host and port.isdigit() and 0 < int(port) < 65536):
        yield "address is %r, which has no port from 1 to 65535: write host:port" % values.text("address")
    for low, _dash, high in (part.partition("-") for part in values.names("status")):
        if high and high < low:
            yield "status has the range %s-%s, which is empty" % (low, high)
    try:
        re.compile(values.text("pattern"))
    except re.error as error:
        yield "pattern is no pattern: %s" % error


def _disagreements(
    single: Mapping[str, Values], repeated: Mapping[str, List[Values]], dropped: Set[str], name: str
) -> Iterator[Disagreement]:
    top, update, source = single[""], single[UPDATE], single["source"]
    pins, threshold = len(set(update.names("release_pins"))), update.integer("release_threshold")
    if threshold > max(pins, 1):
        text = "[update] release_threshold is %d and there are %d distinct pins, so no release could pass"
        yield ((UPDATE, "release_pins"), (UPDATE, "release_threshold")), text % (threshold, pins)
    yield from _of_update(update, source.text("url"))
    yield from _of_source(source)
    yield from _paths(top, name)
    yield from _of_trees(top, repeated)
    hooks = {values.name for values in repeated[product_sections.HOOK]} - {one.partition("-")[2] for one in dropped}
    if len(hooks & {"snapshot", "restore"}) == 1:
        text = "[hook-snapshot] and [hook-restore] belong together, and only [hook-%s] is there (or good)"
        yield (), text % min(hooks & {"snapshot", "restore"})
    if "snapshot" in hooks and single["restart"].text("method") == "reload":
        text = '[hook-snapshot] keeps the data while the daemon is down, and with method = "reload" it never is: use restart'
        yield (("restart", "method"),), text
    required = [one for one in repeated[product_sections.PROBE] if one.text("need") == "required"]
    if "probe" in update.names("confirm_sources") and not [one for one in required if one.section not in dropped]:
        yield ((UPDATE, "confirm_sources"),), "confirm_sources names probe, and there is no required [probe-…]"
    yield from _of_rounds(update, single["confirm"])


def _of_rounds(update: Values, confirm: Values) -> Iterator[Disagreement]:
    passes, interval_s = confirm.integer("passes"), confirm.integer("interval_s")
    settle_s, length_s = update.integer("settle_s"), update.integer("trial_length_s")
    rounds_s = (passes - 1) * interval_s
    if "probe" in update.names("confirm_sources") and settle_s < length_s <= settle_s + rounds_s:
        text = "[confirm] passes is %d, a round every %d s, after [update] settle_s, %d s: no trial of trial_length_s, %d s, could pass"
        keys = (("confirm", "passes"), ("confirm", "interval_s"), (UPDATE, "settle_s"), (UPDATE, "trial_length_s"))
        yield keys, text % (passes, interval_s, settle_s, length_s)


def _of_update(update: Values, url: str) -> Iterator[Disagreement]:
    length, pins = update.integer("trial_length_s"), update.names("release_pins")
    for key in ("settle_s", "health_window_s"):
        if update.integer(key) >= length:
            text = "[update] %s is %d and trial_length_s is %d, so no trial could pass: set a shorter %s"
            yield ((UPDATE, key), (UPDATE, "trial_length_s")), text % (key, update.integer(key), length, key)
    if update.text("trust") == products.DIGEST and pins:
        text = "[update] trust is digest, and release_pins would count for nothing: remove one of them"
        yield ((UPDATE, "trust"), (UPDATE, "release_pins")), text
    addresses = [("mirrors", base) for base in update.names("mirrors")] + [("[source] url", url)]
    for key, address in addresses:
        if address.startswith("http:") and not update.flag("allow_http"):
            yield ((UPDATE, "allow_http"),), "%s has an http:// address: make it https:// or set allow_http" % key


def _of_source(source: Values) -> Iterator[Disagreement]:
    url, hosts = source.text("url"), source.names("hosts")
    if not url and (hosts or source.names("redirect_hosts")):
        yield (("source", "url"),), "[source] has hosts and no url: set url, or remove them"
    elif url and "{version}" not in url:
        yield (("source", "url"),), "[source] url has no {version}, so every version would be the same"
    elif url and hosts and host_of(url) not in hosts:
        text = "[source] url names %s, which is none of hosts (%s)" % (host_of(url), ", ".join(hosts))
        yield (("source", "url"), ("source", "hosts")), text


def _inside(path: str, directory: str) -> bool:
    return (path + "/").startswith(directory + "/")


def _paths(top: Values, name: str) -> Iterator[Disagreement]:
    slots, entrypoint = slots_dir(top, name), top.text("entrypoint")
    if entrypoint and _inside(entrypoint, slots):
        text = "entrypoint (%s) lies inside slots_dir (%s): keep them apart" % (entrypoint, slots)
        yield (("", "entrypoint"), ("", "slots_dir")), text


def _of_trees(top: Values, repeated: Mapping[str, List[Values]]) -> Iterator[Disagreement]:
    if top.text("layout") == products.VERSIONS:
        places = [one.text("path") for one in repeated[product_sections.PART]] + [top.text("entrypoint")]
        twice = sorted({place for place in places if place and places.count(place) > 1})
        for place in twice:
            yield (), "%s is the place of two parts, or of a part and the entrypoint" % place
        return
    for key in ("program", "keep"):
        if key in top.given:
            yield (("", key), ("", "layout")), "%s is for layout versions, and layout is ab: remove one of them" % key
    if repeated[product_sections.PART]:
        yield (("", "layout"),), "a [part-…] needs layout versions, and layout is ab"
