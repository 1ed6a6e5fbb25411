# SPDX-License-Identifier: GPL-3.0-or-later
"""How a product's file becomes a ``Product``; the keys are the rows of ``product_table`` (products.md, section 1).

Rules:

* ``load`` never raises for what a file says: it answers a ``Product`` and the problems, which refuse its updates (I8).
* A key with a problem counts as not set; a section that lacks what it needs counts as not there.
* Values that are good alone and not together are judged in ``product_rules``.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple, Union

from . import config_keys, config_scan, config_table, product_rules, product_sections, product_table, toml
from . import product as products

PRODUCT = re.compile(r"[a-z][a-z0-9-]{0,63}")

_DEFAULTS: Dict[Tuple[str, str], config_keys.Setting] = {
    (key.section, key.name): key.default for key in product_table.KEYS
}
_POLICY = products.Policy._fields
_SAME = (
    "confirm_sources",
    "trial_length_s",
    "settle_s",
    "max_boots",
    "adopt",
    "mirrors",
    "trust",
    "floor",
    "manual",
    "max_starts",
    "health_window_s",
)
"""Keys of `[update]` that are fields of the same name."""


class Values(NamedTuple):
    """What one section says, defaults included."""

    section: str
    given: Mapping[str, config_keys.Setting]
    row: str

    def text(self, name: str) -> str:
        """A text; "" when it is not set."""
        return str(self.get(name) or "")

    def integer(self, name: str) -> int:
        """A number."""
        return int(str(self.get(name)))

    def flag(self, name: str) -> bool:
        """True or false."""
        return self.get(name) is True

    def words(self, name: str) -> Tuple[str, ...]:
        """The words of a command."""
        return tuple(self.text(name).split())

    def names(self, name: str) -> Tuple[str, ...]:
        """The parts of a list."""
        value = self.get(name)
        return value if isinstance(value, tuple) else config_keys.split_names(self.text(name))

    def get(self, name: str) -> config_keys.Setting:
        """The value as it is."""
        return self.given.get(name, _DEFAULTS[(self.row, name)])

    @property
    def name(self) -> str:
        """Of a section that may be repeated, what stands behind the dash."""
        return self.section.partition("-")[2]


class Loaded(NamedTuple):
    """What a file says: the product, every reason to refuse its updates, and what its downloads need."""

    product: products.Product
    problems: Tuple[str, ...]
    allow_http: bool
    ca_file: str
    proxy: str


def load(text: Union[str, bytes], path: str, name: str) -> Loaded:
    """The product `name` by its file's text."""
    scanned = toml.scan(text, path)
    found, wrong = config_scan.take(scanned, product_table.KEYS, product_sections.NAME)
    given: Dict[str, Dict[str, config_keys.Setting]] = {section.name: {} for section in scanned[0].sections}
    for one in found:
        given[one.section][one.key.name] = one.value
    bad = {(one.section, one.name) for one in wrong}
    problems = [one.text for one in wrong]
    repeated: Dict[str, List[Values]] = {row: [] for row in product_sections.REPEATED}
    for section, values in given.items():
        row = section.partition("-")[0] + "-*"
        if row in repeated and re.fullmatch(product_sections.NAME, section.partition("-")[2]):
            repeated[row].append(Values(section, values, row))
    single = {
        row: Values(row, given.get(row, {}), row)
        for row in ("", config_table.UPDATE, "source", "smoke", "restart", "confirm")
    }
    said, dropped = product_rules.judge(single, repeated, bad, name)
    problems += ["%s: %s" % (path, one) for one in said]
    kept = {row: [one for one in ones if one.section not in dropped] for row, ones in repeated.items()}
    update = single[config_table.UPDATE]
    own = (update.flag("allow_http"), update.text("ca_file"), update.text("proxy"))
    return Loaded(_product(name, single, kept), tuple(problems), *own)


def _product(name: str, single: Mapping[str, Values], repeated: Mapping[str, List[Values]]) -> products.Product:
    top, update, smoke = single[""], single[config_table.UPDATE], single["smoke"]
    restart, confirm = single["restart"], single["confirm"]
    same: Dict[str, Any] = {key: update.get(key) for key in _SAME}
    base = products.Product(name, top.text("unit"), top.text("entrypoint"), product_rules.slots_dir(top, name))
    return base._replace(
        **same,
        pins=update.names("release_pins"),
        threshold=update.integer("release_threshold"),
        base_floor=update.integer("release_sequence"),
        least_floor=update.integer("release_sequence"),
        smoke_argv=smoke.words("arguments") if update.flag("smoke_test") else (),
        policy=products.Policy._make(update.get(field) for field in _POLICY),
        layout=top.text("layout"),
        program=top.text("program") or name,
        keep=top.integer("keep"),
        platform=top.text("platform"),
        variant=top.text("variant"),
        user=top.text("user"),
        smoke_expect=smoke.text("expect"),
        config_check=smoke.words("config_arguments"),
        reload=restart.text("method") == "reload",
        drain_s=restart.integer("drain_s"),
        confirming=products.Confirming._make(confirm.integer(key) for key in products.Confirming._fields),
        source=_source(single["source"]),
        probes=tuple(_probe(one) for one in repeated[product_sections.PROBE]),
        hooks=tuple(_hook(one) for one in repeated[product_sections.HOOK]),
        parts=tuple(_part(one) for one in repeated[product_sections.PART]),
        windows=tuple(_window(one) for one in repeated[product_sections.WINDOW]),
        freezes=tuple(_freeze(one) for one in repeated[product_sections.FREEZE]),
    )


def _freeze(values: Values) -> products.Freeze:
    return products.Freeze(values.name, *(values.text(key) for key in ("from", "to", "zone", "why")))


def _source(values: Values) -> Union[products.Source, None]:
    url = values.text("url")
    if not url:
        return None
    own = product_rules.host_of(url)
    return products.Source(url.rstrip("/"), values.names("hosts") or (own,), values.names("redirect_hosts"))


def _probe(values: Values) -> products.Probe:
    host, _colon, port = values.text("address").rpartition(":")
    statuses = [part.partition("-") for part in values.names("status")]
    return products.Probe(
        name=values.name,
        kind=values.text("kind"),
        required=values.text("need") == "required",
        timeout_s=values.integer("timeout_s"),
        command=values.words("command"),
        user=values.text("user"),
        url=values.text("url"),
        status=tuple((int(low), int(high or low)) for low, _dash, high in statuses),
        body=values.text("body"),
        ca_file=values.text("ca_file"),
        address=(host.strip("[]"), int(port or 0)),
        unit=values.text("unit"),
        for_s=values.integer("for_s"),
        path=values.text("path"),
        fresh_s=values.integer("fresh_s"),
        pattern=values.text("pattern"),
    )


def _hook(values: Values) -> products.Hook:
    always = values.text("when") == "always"
    return products.Hook(values.name, values.words("command"), values.integer("timeout_s"), values.text("user"), always)


def _part(values: Values) -> products.Part:
    return products.Part(values.name, values.text("from"), values.text("path"), values.text("kind") == "unit")


def _window(values: Values) -> products.Window:
    return products.Window(
        values.name,
        product_rules.days_of(values.names("days")),
        product_rules.minutes_of(values.text("from")),
        product_rules.minutes_of(values.text("to")),
        values.text("zone"),
    )
