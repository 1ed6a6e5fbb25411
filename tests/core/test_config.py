# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration: defaults, bounds, problems that never stop the daemon, and the page that lists the keys."""

from __future__ import annotations

import base64
import pathlib
from typing import Dict, List, Tuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slotcore import codes, config, config_keys, keys, manifest, toml_edit

PINS = ["sha256/" + base64.b64encode(bytes([number]) * 32).decode() for number in range(3)]
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "design" / "configuration.md"
DEFAULTS = config.Config(
    data_dir="/var/lib/slotward",
    socket_path="/run/slotward/status.sock",
    log_level="info",
    release_pins=(),
    release_threshold=1,
    release_sequence=0,
    slots_dir="/opt/slotward/slotward",
    entrypoint="/usr/local/bin/slotward",
    trial_length_s=120,
    settle_s=10,
    max_boots=3,
    confirm_sources=("controller",),
    smoke_test=True,
    adopt=False,
    allow_http=False,
    ca_file=None,
    proxy=None,
    enabled=True,
    allowed_channels=("stable",),
    min_version=None,
    rollback_grace=1,
    same_major=False,
    strict_sequence=False,
    mirrors=(),
)
FULL = """
data_dir = "/srv/data"
socket_path = "/run/x.sock"
log_level = "debug"
[update]
release_pins = "%s, %s"
release_threshold = 2
release_sequence = 14
slots_dir = "/srv/slots"
entrypoint = "/srv/bin/agent"
trial_length_s = 3_600
settle_s = 0
max_boots = 9
confirm_sources = "controller , probe"
smoke_test = false
adopt = true
allow_http = true
ca_file = "/etc/ssl/own.pem"
proxy = "http://user:pass@proxy.example:3128/"
enabled = false
allowed_channels = "beta, lts/2026-a"
min_version = "1.2.3-rc.1"
rollback_grace = 100
same_major = true
strict_sequence = true
mirrors = "https://one.example/releases, http://[::1]:8080"
[helper]
socket = "/run/helper/sock"
user = "agent"
""" % (PINS[0], PINS[1])


def test_no_file_is_all_defaults_and_no_problem() -> None:
    """A host without a configuration runs, and pins nothing."""
    assert config.load(None, "f") == (DEFAULTS, ())
    assert config.load(b"", "f") == (DEFAULTS, ())


def test_every_key_is_read() -> None:
    """A file that sets every key changes every field."""
    loaded = config.check(FULL, "f")
    assert loaded == config.Config(
        data_dir="/srv/data",
        socket_path="/run/x.sock",
        log_level="debug",
        release_pins=(PINS[0], PINS[1]),
        release_threshold=2,
        release_sequence=14,
        slots_dir="/srv/slots",
        entrypoint="/srv/bin/agent",
        trial_length_s=3600,
        settle_s=0,
        max_boots=9,
        confirm_sources=("controller", "probe"),
        smoke_test=False,
        adopt=True,
        allow_http=True,
        ca_file="/etc/ssl/own.pem",
        proxy="http://user:pass@proxy.example:3128/",
        enabled=False,
        allowed_channels=("beta", "lts/2026-a"),
        min_version="1.2.3-rc.1",
        rollback_grace=100,
        same_major=True,
        strict_sequence=True,
        mirrors=("https://one.example/releases", "http://[::1]:8080"),
        helper_socket="/run/helper/sock",
        helper_user="agent",
        mode="helper",
    )
    unset = ("start_user",)  # one file has one mode
    assert all(left != right or name in unset for name, left, right in zip(loaded._fields, loaded, DEFAULTS))
    assert loaded.user == "agent"


def test_the_table_and_the_fields_are_the_same_list() -> None:
    """A key that is in one and not in the other would be lost."""
    assert (*(config.field_of(key) for key in config.KEYS), "mode") == config.Config._fields
    assert len({(key.section, key.name) for key in config.KEYS}) == len(config.KEYS)


MODES = (
    ("", "root", "root"),
    ("[helper]\n", "helper", "slotward"),
    ("[helper]\nuser = 'agent_1'\nsocket = '/run/h/s'\n", "helper", "agent_1"),
    ("[start]\n", "start", "slotward"),
    ("[start]\nuser = '_agent'\n", "start", "_agent"),
)


@pytest.mark.parametrize(("text", "mode", "user"), MODES)
def test_the_mode_is_which_section_the_file_has(text: str, mode: str, user: str) -> None:
    """privilege.md, section 1: an empty section chooses a mode as well."""
    loaded = config.check(text, "f")
    assert (loaded.mode, loaded.user) == (mode, user)


@pytest.mark.parametrize("text", ["[start]\n[helper]\n", "[helper]\n[start]\n"])
def test_two_modes_are_a_problem_and_the_watched_one_counts(text: str) -> None:
    """I8: the daemon runs on, in the mode whose trials have a second watchdog; updates are refused."""
    loaded, problems = config.load(text, "f")
    assert loaded.mode == "helper"
    assert problems == ("f: [helper] and [start] are both there, and a host has one mode: remove one of them",)


def test_empty_strings_unset_what_is_optional() -> None:
    """A template may write an empty value for a key without a default."""
    text = '[update]\nrelease_pins = ""\nca_file = ""\nproxy = ""\nmin_version = ""\nmirrors = ""\n'
    assert config.check(text, "f") == DEFAULTS


UPDATE_KEYS = ", ".join(key.name for key in config.KEYS if key.section == "update")
PATH = "an absolute path without . or .. or unusual characters"
SOURCES = 'a comma-separated list out of controller, gateway, probe, found "" (each at most once, at least one)'
PIN_FORM = 'a comma-separated list of sha256/ and the base64 of 32 bytes, found "sha256/AA=="'
CHANNELS = "a comma-separated list of channels (1 to 32 letters, digits, _, / and -), 1 to 8 of them"
MIRRORS = "a comma-separated list of https:// addresses (without credentials, query or fragment), 0 to 8 of them"
PROBLEMS: List[Tuple[str, str]] = [
    *(
        (
            "[update]\nallowed_channels = '%s'" % value,
            'f:2:20: [update] allowed_channels: expected %s, found "%s" (each at most once)' % (CHANNELS, value),
        )
        for value in ("", "a,", "a,a", "a b", "-a", "a.b", "b" * 33, "a,b,c,d,e,f,g,h,i", "a;b")
    ),
    *(
        (
            "[update]\nmirrors = '%s'" % value,
            "f:2:11: [update] mirrors: expected %s, found something else" % MIRRORS,
        )
        for value in (
            "https://user:secret@x.example",
            "https://x.example/?a=b",
            "https://x.example/#a",
            "https://x.example//a",
            "https://x.example:0",
            "https://x.example:65536",
            "https:///a",
            "ftp://x.example",
            "x.example",
            "https://x.example,",
            "https://x.example,https://x.example",
            "https://x.example/" + "a" * 1024,
            ",".join("https://x%d.example" % number for number in range(9)),
        )
    ),
    (
        '[update]\nmirrors = "http://x.example"',
        "f: [update] mirrors has an http:// address: make it https:// or set allow_http",
    ),
    ('[update]\nmin_version = "v1"', 'f:2:15: [update] min_version: expected a semantic version, found "v1"'),
    ("[update]\nmin_version = 1", "f:2:15: [update] min_version: expected a semantic version, found 1"),
    ("[update]\nrollback_grace = 101", "f:2:18: [update] rollback_grace: expected an integer from 0 to 100, found 101"),
    ("[update]\nrollback_grace = -1", "f:2:18: [update] rollback_grace: expected an integer from 0 to 100, found -1"),
    ('[update]\nenabled = "no"', 'f:2:11: [update] enabled: expected true or false, found "no"'),
    ("x = 1", "f:1:1: x: unknown key, expected one of data_dir, socket_path, log_level"),
    ("[update]\nx = 1", "f:2:1: [update] x: unknown key, expected one of %s" % UPDATE_KEYS),
    ("adopt = true", "f:1:1: adopt: unknown key here, it belongs into [update]"),
    ('[update]\ndata_dir = "/x"', "f:2:1: [update] data_dir: unknown key here, it belongs above the first section"),
    ("\t x = 1", "f:1:3: x: unknown key, expected one of"),
    ("[update]\r\n  adopt =  1 # c\r\n", "f:2:12: [update] adopt: expected true or false, found 1"),
    ("  [elper]", "f:1:3: [elper]: unknown section, expected [update] or [helper] or [start]"),
    ("[elper]\nx = 1", "f:1:1: [elper]: unknown section, expected [update] or [helper] or [start]"),
    ('data_dir = "x"', 'f:1:12: data_dir: expected %s, found "x"' % PATH),
    ('data_dir = ""', 'f:1:12: data_dir: expected %s, found ""' % PATH),
    ('data_dir = "/"', 'f:1:12: data_dir: expected %s, found "/"' % PATH),
    ('data_dir = "/a/"', 'f:1:12: data_dir: expected %s, found "/a/"' % PATH),
    ('data_dir = "/a//b"', 'f:1:12: data_dir: expected %s, found "/a//b"' % PATH),
    ('data_dir = "/a/../b"', 'f:1:12: data_dir: expected %s, found "/a/../b"' % PATH),
    ('data_dir = "/a/./b"', 'f:1:12: data_dir: expected %s, found "/a/./b"' % PATH),
    ('data_dir = "/a b"', 'f:1:12: data_dir: expected %s, found "/a b"' % PATH),
    ('data_dir = "/a%b"', 'f:1:12: data_dir: expected %s, found "/a%%b"' % PATH),
    ("data_dir = '/a$(x)'", 'f:1:12: data_dir: expected %s, found "/a$(x)"' % PATH),
    ('data_dir = "/a\\n"', 'f:1:12: data_dir: expected %s, found "/a\\n"' % PATH),
    ("data_dir = 1", "f:1:12: data_dir: expected %s, found 1" % PATH),
    ('data_dir = "/%s"' % ("a" * 1024), "f:1:12: data_dir: expected at most 1024 characters, found 1025"),
    ('socket_path = "/%s"' % ("a" * 107), "f:1:15: socket_path: expected at most 107 characters, found 108"),
    ('log_level = "loud"', 'f:1:13: log_level: expected one of debug, info, warning, error, found "loud"'),
    ("[update]\ntrial_length_s = 4", "f:2:18: [update] trial_length_s: expected an integer from 5 to 3600, found 4"),
    (
        "[update]\ntrial_length_s = 3601",
        "f:2:18: [update] trial_length_s: expected an integer from 5 to 3600, found 3601",
    ),
    (
        '[update]\ntrial_length_s = "9"',
        'f:2:18: [update] trial_length_s: expected an integer from 5 to 3600, found "9"',
    ),
    (
        "[update]\ntrial_length_s = true",
        "f:2:18: [update] trial_length_s: expected an integer from 5 to 3600, found true",
    ),
    ("[update]\nadopt = 1", "f:2:9: [update] adopt: expected true or false, found 1"),
    ("[update]\nmax_boots = -1", "f:2:13: [update] max_boots: expected an integer from 0 to 9, found -1"),
    (
        "[update]\nrelease_threshold = 0",
        "f:2:21: [update] release_threshold: expected an integer from 1 to 16, found 0",
    ),
    (
        "[update]\nrelease_sequence = 1000000000000000",
        "f:2:20: [update] release_sequence: expected an integer from 0 to 999999999999999, found 1000000000000000",
    ),
    (
        '[update]\nconfirm_sources = ""',
        "f:2:19: [update] confirm_sources: expected %s" % SOURCES,
    ),
    ('[update]\nconfirm_sources = "probe,probe"', "f:2:19: [update] confirm_sources: expected a comma-separated list"),
    ('[update]\nconfirm_sources = "probe,"', "f:2:19: [update] confirm_sources: expected a comma-separated list"),
    ('[update]\nconfirm_sources = "me"', "f:2:19: [update] confirm_sources: expected a comma-separated list"),
    (
        '[update]\nrelease_pins = "%s,sha256/AA=="' % PINS[0],
        "f:2:16: [update] release_pins: expected %s" % PIN_FORM,
    ),
    ('[update]\nrelease_pins = "%s,"' % PINS[0], "f:2:16: [update] release_pins: expected a comma-separated list of"),
    (
        '[update]\nproxy = "socks5://x:1"',
        "f:2:9: [update] proxy: expected http://host:port or https://host:port, found something else",
    ),
    ('[update]\nproxy = "http://x/path"', "f:2:9: [update] proxy: expected http://host:port"),
    ('[update]\nproxy = "http://u:p@"', "f:2:9: [update] proxy: expected http://host:port"),
    (
        '[update]\nrelease_pins = "%s,%s"\nrelease_threshold = 2' % (PINS[0], PINS[0]),
        "f: [update] release_threshold is 2 and there are 1 distinct pins, so no release could pass",
    ),
    (
        "[update]\nrelease_threshold = 2",
        "f: [update] release_threshold is 2 and there are 0 distinct pins, so no release could pass",
    ),
    (
        "[update]\ntrial_length_s = 10",
        "f: [update] settle_s is 10 and trial_length_s is 10, so no trial could pass: set a shorter settle_s",
    ),
    (
        '[update]\nslots_dir = "/var/lib/slotward/bin"',
        "f: slots_dir (/var/lib/slotward/bin) lies inside data_dir (/var/lib/slotward): keep them apart",
    ),
    (
        '[update]\nentrypoint = "/var/lib/slotward/x"',
        "f: entrypoint (/var/lib/slotward/x) lies inside data_dir (/var/lib/slotward): keep them apart",
    ),
    (
        '[update]\nentrypoint = "/opt/slotward/slotward/current"',
        "f: entrypoint (/opt/slotward/slotward/current) lies inside slots_dir (/opt/slotward/slotward): keep",
    ),
    (
        'data_dir = "/opt/slotward/slotward/data"',
        "f: data_dir (/opt/slotward/slotward/data) lies inside slots_dir (/opt/slotward/slotward): keep them apart",
    ),
    *(
        ("[%s]\nuser = '%s'" % (section, user), "f:2:8: [%s] user: expected an account's name (" % section)
        for section in ("helper", "start")
        for user in ("", "root", "Agent", "a b", "a" * 32, "9a", "-a", "a:b", "a.b")
    ),
    ("[start]\nsocket = '/run/x/y'", "f:2:1: [start] socket: unknown key here, it belongs into [helper]"),
    ("[helper]\nsocket = '/%s'" % ("x" * 107), "f:2:10: [helper] socket: expected at most 107 characters, found 108"),
    (
        "[helper]\nsocket = '/var/lib/slotward/h/s'",
        "f: [helper] socket (/var/lib/slotward/h/s) lies inside data_dir (/var/lib/slotward): keep them apart",
    ),
    (
        "[helper]\nsocket = '/run/slotward/helper.sock'",
        "f: [helper] socket (/run/slotward/helper.sock) lies inside the daemon's runtime directory (/run/slotward): keep them apart",
    ),
    ("a.b = 1", "f:1:2: a: expected = after the key, found a dotted key"),
]


@pytest.mark.parametrize(("text", "message"), PROBLEMS, ids=[ascii(text)[:40] for text, _message in PROBLEMS])
def test_a_problem_is_named_and_check_refuses_it(text: str, message: str) -> None:
    """Every problem names file, line and key, both values, and is one problem only."""
    _config, problems = config.load(text, "f")
    assert len(problems) == 1
    assert problems[0].startswith(message)
    with pytest.raises(codes.BadConfig) as caught:
        config.check(text, "f")
    assert caught.value.problems == problems


def test_i8_a_file_with_problems_still_configures_the_daemon() -> None:
    """I8: what is wrong counts as not set, and everything else in the file still counts."""
    text = (
        FULL.replace("log_level", "log_levels").replace("= 3_600", "= 1.5").replace("max_boots = 9", "max_boots = 99")
    )
    loaded, problems = config.load(text + "\n[new-section]\nx = 1\n", "f")
    assert len(problems) == 4
    assert loaded == config.check(FULL, "f")._replace(log_level="info", trial_length_s=120, max_boots=3)


def test_a_value_at_fault_is_not_blamed_twice() -> None:
    """A comparison with a value that is wrong by itself is not reported as well."""
    text = '[update]\nrelease_pins = "x"\nrelease_threshold = 2\ntrial_length_s = 1\nsettle_s = 130\n'
    _config, problems = config.load(text, "f")
    assert [problem.split(": ")[1] for problem in problems] == ["[update] release_pins", "[update] trial_length_s"]


def test_a_proxy_password_is_never_shown() -> None:
    """The message for a bad proxy does not repeat it."""
    _config, problems = config.load('[update]\nproxy = "ftp://user:secret@host"', "f")
    assert problems
    assert "secret" not in problems[0]


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"#" * 65537, b"a = '\xe9'"])
def test_an_unusable_file_is_all_defaults_and_a_problem(raw: bytes) -> None:
    """I8: not UTF-8 or too big refuses updates and stops nothing."""
    loaded, problems = config.load(raw, "f")
    assert loaded == DEFAULTS
    assert len(problems) == 1


def test_an_unreadable_file_is_all_defaults_and_a_problem() -> None:
    """I8: a file that the daemon may not read refuses updates and stops nothing."""
    assert config.unreadable("f", "permission denied") == (DEFAULTS, ("f: cannot read it: permission denied",))


pin_texts = st.one_of(
    st.binary(max_size=64).map(keys.pin_of),
    st.binary(max_size=34).map(lambda raw: "sha256/" + base64.b64encode(raw).decode()),
    st.builds(
        lambda pin, place, char: pin[:place] + char + pin[place + 1 :],
        st.sampled_from(PINS),
        st.integers(0, 60),
        st.sampled_from("Aa0+/=-_\u0661 "),
    ),
)


@given(pin_texts)
@example("sha256/" + "A" * 42 + "B=")
def test_what_is_a_pin_here_is_one_where_signatures_are_checked(text: str) -> None:
    """Two places know a pin's form (hashlib is too slow to load for every command), and they agree."""
    expected = keys.is_pin(text.strip(" ")) or not text.strip(" ")
    assert (not config.load(toml_edit.render({"update": {"release_pins": text}}), "f")[1]) == expected


@given(st.text("aZ09_-/.+ ,", max_size=34))
@example("a" * 32)
@example("a" * 33)
def test_what_is_a_channel_here_is_one_in_a_manifest(text: str) -> None:
    """Two places know a channel's form (the manifest's reader is too slow to load for every command), and they agree."""
    expected = manifest.CHANNEL.fullmatch(text.strip(" ")) is not None
    if "," not in text:
        assert (not config.load(toml_edit.render({"update": {"allowed_channels": text}}), "f")[1]) == expected


@pytest.mark.parametrize("port", [1, 80, 9999, 10000, 59999, 60000, 65399, 65499, 65529, 65535])
def test_a_mirror_may_have_any_port(port: int) -> None:
    """Each part of the range is taken."""
    base = "https://x.example:%d/a" % port
    assert config.check('[update]\nmirrors = "%s"' % base, "f").mirrors == (base,)


@given(st.binary(max_size=200))
def test_i8_load_never_raises(raw: bytes) -> None:
    """I8: whatever the file holds, the daemon gets a configuration."""
    loaded, _problems = config.load(raw, "f")
    assert isinstance(loaded, config.Config)


@given(
    st.dictionaries(
        st.sampled_from([key.name for key in config.KEYS]),
        st.one_of(
            st.integers(-5, 4000), st.booleans(), st.text(max_size=5), st.sampled_from(["/a", "/a/b", "", PINS[0]])
        ),
    )
)
def test_what_load_answers_is_within_the_bounds(given_values: Dict[str, object]) -> None:
    """Each field of the answer has its type and lies in its bounds, problems or not."""
    wanted: Dict[str, Dict[str, object]] = {}
    for key in config.KEYS:
        if key.name in given_values:
            wanted.setdefault(key.section, {})[key.name] = given_values[key.name]
    loaded, _problems = config.load(toml_edit.render(wanted), "f")  # type: ignore[arg-type]
    for key in config.KEYS:
        value = getattr(loaded, config.field_of(key))
        if key.kind is config_keys.Kind.INTEGER:
            assert key.low <= value <= key.high
        elif key.kind is config_keys.Kind.FLAG:
            assert isinstance(value, bool)
        elif key.kind in config_keys.LISTS:
            assert isinstance(value, tuple)
        else:
            assert value is None or isinstance(value, str)


def test_the_page_lists_the_keys_of_the_table() -> None:
    """docs/design/configuration.md has exactly the tables that the code renders."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"
    assert page.count(begin) == 1
    assert page.split(begin)[1].split(end)[0] == config.render_documentation()
