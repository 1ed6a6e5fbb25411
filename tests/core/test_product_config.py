# SPDX-License-Identifier: GPL-3.0-or-later
"""A product's file: every key, every rule between keys, and that a problem never takes the rest with it."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest
import tomllib
from hypothesis import given
from hypothesis import strategies as st

from slotcore import config_keys, product_config, product_rules, product_sections, product_table
from slotcore import product as products

PIN = "sha256/" + "A" * 43 + "="
MINIMAL = 'unit = "redis-server.service"\nentrypoint = "/usr/bin/redis-server"\n'
FULL = f"""\
unit = "redis@main.service"
entrypoint = "/usr/bin/redis-server"
slots_dir = "/srv/slots/redis"
layout = "versions"
program = "redis-server"
keep = 7
platform = "linux-arm64"
variant = "full"
user = "redis"

[update]
release_pins = "{PIN}"
release_threshold = 1
release_sequence = 12
trial_length_s = 300
settle_s = 20
max_boots = 2
confirm_sources = "probe,controller"
adopt = true
allowed_channels = "stable,beta"
min_version = "7.0.0"
rollback_grace = 2
same_major = true
strict_sequence = true
mirrors = "https://m.example/a"
floor = "previous"
manual = true
max_starts = 4
health_window_s = 45

[source]
url = "https://git.example/r/releases/v{{version}}/"
hosts = "git.example, cdn.example:8443"
redirect_hosts = "*.cdn.example"

[smoke]
arguments = "--version --short"
expect = "v={{version}}"
config_arguments = "--check /etc/redis.conf"

[restart]
method = "restart"
drain_s = 5

[confirm]
interval_s = 4
passes = 5
failures = 6

[probe-ping]
kind = "command"
command = "/usr/bin/redis-cli ping"
user = "nobody"
need = "wanted"
timeout_s = 9

[probe-web]
kind = "http"
url = "https://127.0.0.1:9121/metrics"
status = "200,300-302"
body = "redis_up 1"
ca_file = "/etc/ca.pem"

[probe-port]
kind = "tcp"
address = "[::1]:6379"

[probe-up]
kind = "unit"
for_s = 30

[probe-beat]
kind = "file"
path = "/run/beat"
fresh_s = 10

[probe-log]
kind = "journal"
pattern = "Fatal|panic"

[hook-snapshot]
command = "/etc/redis/keep --all"
when = "always"
timeout_s = 90

[hook-restore]
command = "/etc/redis/give-back"
user = "redis"

[part-unit]
from = "lib/redis.service"
path = "/etc/systemd/system/redis@main.service"
kind = "unit"

[part-conf]
from = "etc/defaults.conf"
path = "/etc/redis/defaults.conf"

[window-night]
days = "sat-mon,wed"
from = "22:00"
to = "04:30"
zone = "Europe/Berlin"

[freeze-year]
from = "2026-12-20"
to = "2027-01-03"
zone = "UTC"
why = "the shop's busy weeks"
"""


def load(text: str) -> Tuple[products.Product, Tuple[str, ...]]:
    """As the agent does."""
    found = product_config.load(text, "f.toml", "redis")
    return found.product, found.problems


def problems(*lines: str) -> Tuple[str, ...]:
    """What is wrong with a minimal file and these lines."""
    return load(MINIMAL + "\n".join(lines) + "\n")[1]


def test_every_key_reaches_the_product() -> None:
    """None is forgotten between file and product: each value here is other than its default."""
    product, found = load(FULL)
    assert found == ()
    assert product == products.Product(
        name="redis",
        unit="redis@main.service",
        entrypoint="/usr/bin/redis-server",
        slots_dir="/srv/slots/redis",
        pins=(PIN,),
        threshold=1,
        base_floor=12,
        least_floor=12,
        confirm_sources=("probe", "controller"),
        trial_length_s=300,
        settle_s=20,
        max_boots=2,
        smoke_argv=("--version", "--short"),
        adopt=True,
        policy=products.Policy(True, ("stable", "beta"), "7.0.0", 2, True, True),
        mirrors=("https://m.example/a",),
        layout="versions",
        program="redis-server",
        keep=7,
        platform="linux-arm64",
        variant="full",
        user="redis",
        floor="previous",
        manual=True,
        max_starts=4,
        health_window_s=45,
        smoke_expect="v={version}",
        config_check=("--check", "/etc/redis.conf"),
        reload=False,
        drain_s=5,
        confirming=products.Confirming(4, 5, 6),
        source=products.Source(
            "https://git.example/r/releases/v{version}", ("git.example", "cdn.example:8443"), ("*.cdn.example",)
        ),
        probes=(
            products.Probe("ping", "command", False, 9, ("/usr/bin/redis-cli", "ping"), user="nobody", fresh_s=60),
            products.Probe(
                "web",
                "http",
                url="https://127.0.0.1:9121/metrics",
                status=((200, 200), (300, 302)),
                body="redis_up 1",
                ca_file="/etc/ca.pem",
                fresh_s=60,
            ),
            products.Probe("port", "tcp", address=("::1", 6379), fresh_s=60),
            products.Probe("up", "unit", for_s=30, fresh_s=60),
            products.Probe("beat", "file", path="/run/beat", fresh_s=10),
            products.Probe("log", "journal", pattern="Fatal|panic", fresh_s=60),
        ),
        hooks=(
            products.Hook("snapshot", ("/etc/redis/keep", "--all"), 90, always=True),
            products.Hook("restore", ("/etc/redis/give-back",), user="redis"),
        ),
        parts=(
            products.Part("unit", "lib/redis.service", "/etc/systemd/system/redis@main.service", unit=True),
            products.Part("conf", "etc/defaults.conf", "/etc/redis/defaults.conf"),
        ),
        windows=(products.Window("night", (0, 2, 5, 6), 22 * 60, 4 * 60 + 30, "Europe/Berlin"),),
        freezes=(products.Freeze("year", "2026-12-20", "2027-01-03", "UTC", "the shop's busy weeks"),),
    )


def test_any_toml_parser_reads_the_same_file() -> None:
    """The language is TOML, read by the standard library's parser too."""
    read = tomllib.loads(FULL)
    assert read["probe-web"]["status"] == "200,300-302"
    assert read["freeze-year"]["why"] == "the shop's busy weeks"
    given = {(section, key) for section, values in read.items() if isinstance(values, dict) for key in values}
    rows = {(key.section, key.name) for key in product_table.KEYS}
    for section, name in given:
        assert (
            section
            if section in ("update", "source", "smoke", "restart", "confirm")
            else section.partition("-")[0] + "-*",
            name,
        ) in rows


def test_a_small_file_is_all_defaults() -> None:
    """A unit and an entrypoint are all that must be said."""
    product, found = load(MINIMAL)
    assert found == ()
    assert product == products.Product(
        "redis",
        "redis-server.service",
        "/usr/bin/redis-server",
        "/opt/slotward/redis",
        smoke_argv=("version",),
        program="redis",
    )
    assert product.program_path("current") == "/opt/slotward/redis/current"
    assert product.hook("veto") is None


def test_going_forward_by_a_reload_is_for_data_that_is_not_kept() -> None:
    """The key alone; what keeps data while the daemon is down has another test."""
    product, said = load(MINIMAL + '[restart]\nmethod = "reload"\n')
    assert (product.reload, said) == (True, ())


def test_a_tree_s_program_lies_in_it() -> None:
    """And a hook is found by its name."""
    product, _found = load(FULL)
    assert product.program_path("a") == "/srv/slots/redis/a/redis-server"
    assert product.hook("restore") == product.hooks[1]


def test_no_smoke_test_runs_nothing() -> None:
    """As in the agent's own configuration."""
    assert load(MINIMAL + "[update]\nsmoke_test = false\n")[0].smoke_argv == ()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['colour = "red"'], "f.toml:3:1: colour: unknown key, expected one of unit, entrypoint,"),
        (["[probe]"], "f.toml:3:1: [probe]: unknown section, expected [update] or"),
        (["[probe-Web]", 'kind = "tcp"'], "f.toml:3:1: [probe-Web]: unknown section"),
        (["[update]", "url = 1"], "f.toml:4:1: [update] url: unknown key here, it belongs into [source]"),
        (["[probe-x]", 'kind = "smell"'], 'expected one of command, http, tcp, unit, file, journal, found "smell"'),
        (["[probe-x]", 'need = "wanted"'], "[probe-x]: kind is missing: it is what is looked at"),
        (["[probe-x]", 'kind = "http"'], "[probe-x]: kind is http, and url is missing"),
        (["[probe-x]", 'kind = "tcp"', 'address = "localhost"'], "which has no port from 1 to 65535"),
        (["[probe-x]", 'kind = "tcp"', 'address = "localhost:70000"'], "which has no port from 1 to 65535"),
        (["[probe-x]", 'kind = "unit"', 'url = "http://x/"'], "[probe-x]: kind is unit, which has no url"),
        (
            ["[probe-x]", 'kind = "http"', 'url = "http://x/"', 'status = "299-200"'],
            "the range 299-200, which is empty",
        ),
        (["[probe-x]", 'kind = "journal"', 'pattern = "("'], "[probe-x]: pattern is no pattern: "),
        (["[probe-x]", 'kind = "command"', 'command = "id"'], "expected an absolute path and words"),
        (["[hook-early]", 'command = "/bin/true"'], "there is no hook 'early': expected one of snapshot,"),
        (["[hook-veto]", 'command = "/bin/true"', 'when = "always"'], "[hook-veto]: when is for [hook-snapshot] alone"),
        (["[hook-veto]"], "[hook-veto]: command is missing"),
        (["[hook-snapshot]", 'command = "/bin/true"'], "belong together, and only [hook-snapshot] is there"),
        (
            [
                *("[hook-snapshot]", 'command = "/bin/true"', "[hook-restore]", 'command = "/bin/true"'),
                *("[restart]", 'method = "reload"'),
            ],
            'with method = "reload" it never is: use restart',
        ),
        (["[window-x]", 'from = "10:00"', 'to = "10:00"', 'zone = "UTC"'], "so it is never open"),
        (
            ["[window-x]", 'from = "25:00"', 'to = "10:00"', 'zone = "UTC"'],
            'a time of the day, as 22:30, found "25:00"',
        ),
        (["[window-x]", 'from = "10:00"', 'to = "24:00"'], "[window-x]: zone is missing"),
        (["[freeze-x]", 'from = "2027-01-02"', 'to = "2027-01-01"', 'zone = "UTC"'], "it would never begin"),
        (["[update]", "release_threshold = 2"], "release_threshold is 2 and there are 0 distinct pins"),
        (["[update]", "settle_s = 120"], "settle_s is 120 and trial_length_s is 120, so no trial could pass"),
        (["[update]", "health_window_s = 500"], "set a shorter health_window_s"),
        (
            ["[update]", 'confirm_sources = "probe"', "[confirm]", "passes = 56", "[probe-a]", 'kind = "unit"'],
            "passes is 56, a round every 2 s, after [update] settle_s, 10 s: no trial of trial_length_s, 120 s, could",
        ),
        (["[update]", 'trust = "digest"', f'release_pins = "{PIN}"'], "release_pins would count for nothing"),
        (["[update]", 'mirrors = "http://m.example"'], "mirrors has an http:// address"),
        (["[source]", 'url = "http://h/{version}"'], "[source] url has an http:// address"),
        (["[source]", 'url = "https://h/x"'], "[source] url has no {version}"),
        (["[source]", 'hosts = "h"'], "[source] has hosts and no url"),
        (["[source]", 'url = "https://h/{version}"', 'hosts = "g,i"'], "url names h, which is none of hosts (g, i)"),
        (['slots_dir = "/usr/bin"'], "entrypoint (/usr/bin/redis-server) lies inside slots_dir (/usr/bin)"),
        (["keep = 2"], "keep is for layout versions, and layout is ab"),
        (["[part-x]", 'from = "a"', 'path = "/etc/a"'], "a [part-…] needs layout versions"),
        (["[update]", 'confirm_sources = "probe"'], "names probe, and there is no required [probe-…]"),
        (
            ['layout = "versions"', "[part-x]", 'from = "a"', 'path = "/usr/bin/redis-server"'],
            "is the place of two parts, or of a part and the entrypoint",
        ),
    ],
)
def test_each_problem_is_told(lines: List[str], expected: str) -> None:
    """With the file, the keys, both values and the way out; and it is the only one."""
    found = problems(*lines)
    assert len(found) == 1
    assert found[0].startswith("f.toml:")
    assert expected in found[0]


@pytest.mark.parametrize("missing", ["unit", "entrypoint"])
def test_what_must_be_said_is_asked_for(missing: str) -> None:
    """Once, also where its value is wrong."""
    lines = [line for line in MINIMAL.splitlines() if not line.startswith(missing)]
    product, found = load("\n".join(lines) + "\n")
    assert getattr(product, missing) == ""
    assert len(found) == 1
    assert found[0].startswith(f"f.toml: {missing} is missing: it is the ")
    wrong = load("\n".join([*lines, f'{missing} = "x y"']) + "\n")[1]
    assert len(wrong) == 1


def test_a_section_with_a_problem_is_dropped_and_the_others_stay() -> None:
    """Nobody acts on half a probe; what confirms still has the whole ones."""
    text = MINIMAL + '[probe-a]\nkind = "tcp"\n[probe-b]\nkind = "unit"\n[hook-veto]\nuser = "x"\n'
    product, found = load(text)
    assert [probe.name for probe in product.probes] == ["b"]
    assert product.hooks == ()
    assert len(found) == 2


def test_there_are_at_most_so_many() -> None:
    """Of one kind."""
    sections = "".join(f'[probe-p{number}]\nkind = "unit"\n' for number in range(33))
    assert "there are 33 [probe-…] sections, at most 32 are read" in load(MINIMAL + sections)[1][0]


def test_days_go_over_sunday() -> None:
    """As an operator writes them."""
    assert product_rules.days_of(["fri-mon"]) == (0, 4, 5, 6)
    assert product_rules.days_of(["mon-sun"]) == tuple(range(7))
    assert product_rules.days_of(["wed", "wed"]) == (2,)


def test_downloads_have_their_own_keys() -> None:
    """As the product's file says, not the agent's."""
    text = MINIMAL + '[update]\nallow_http = true\nca_file = "/etc/ca.pem"\nproxy = "http://p:3128"\n'
    assert product_config.load(text, "f", "redis")[2:] == (True, "/etc/ca.pem", "http://p:3128")
    assert product_config.load(MINIMAL, "f", "redis")[2:] == (False, "", "")


WORDS = st.sampled_from(
    [*FULL.splitlines(), *(f"[{row.replace('*', 'x')}]" for row in product_sections.REPEATED), 'unit = ""', "keep = -1"]
)


@given(st.lists(WORDS, max_size=40))
def test_no_file_is_too_odd(lines: List[str]) -> None:
    """Whatever lines it has, there is an answer; without problems it is what a second reading gives."""
    product, found = load("\n".join(lines) + "\n")
    assert isinstance(product, products.Product)
    assert product == load("\n".join(lines) + "\n")[0]
    assert all(text.startswith("f.toml") for text in found)


def test_the_table_shares_rows_with_the_agent_s() -> None:
    """One rule and one default for what both have."""
    from slotcore import config_table

    agents: Dict[str, config_keys.Key] = {key.name: key for key in config_table.KEYS if key.section == "update"}
    for name in product_table.SHARED:
        assert agents[name] in product_table.KEYS
