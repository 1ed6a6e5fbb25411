# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration language: what it takes, what it refuses and where, and what its writer leaves alone."""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Optional, Tuple, Union

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotcore import codes, toml, toml_edit

try:
    tomllib: Any = importlib.import_module("tomllib")
except ImportError:  # Python 3.9 and 3.10: the comparison runs on the newer ones
    tomllib = None

Sections = Dict[str, Dict[str, toml.Value]]

SAMPLE = b"""\
# comment
name = "a\\tb\\"c\\\\d\\u00e9\\U0001F600" # trailing
path = 'C:\\x'
count = -1_000
\tblank\t=\t+0\t
yes = true# comment
no=false

[ update ] # with a comment
key-1 = ''
_ = "[x] # = no comment"
[1]
"""


def plain(document: toml.Document) -> Dict[str, object]:
    """A document as any TOML reader returns it."""
    values: Dict[str, object] = {}
    for name, section in document.values().items():
        if name == toml.TOP:
            values.update(section)
        else:
            values[name] = section
    return values


def same(left: object, right: object) -> bool:
    """Equality that tells 1 from true."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def test_every_accepted_form_is_read_as_its_value() -> None:
    """Each form of the language gives the value that TOML says."""
    assert toml.parse(SAMPLE, "f").values() == {
        "": {
            "name": 'a\tb"c\\d\u00e9\U0001f600',
            "path": "C:\\x",
            "count": -1000,
            "blank": 0,
            "yes": True,
            "no": False,
        },
        "update": {"key-1": "", "_": "[x] # = no comment"},
        "1": {},
    }


def test_entries_and_sections_know_their_place() -> None:
    """Line numbers count from one and a value's span is its text."""
    text = "a = 1\n\n[s]\n  b = 'x' # c\n"
    document = toml.parse(text, "f")
    assert [(section.name, section.line) for section in document.sections] == [("", 0), ("s", 3)]
    entry = document.sections[1].entries[0]
    assert (entry.key, entry.line, text.split("\n")[3][entry.start : entry.end]) == ("b", 4, "'x'")


def test_crlf_ends_a_line_and_a_lone_cr_does_not() -> None:
    """CRLF is a line end; a carriage return anywhere else is an error."""
    assert toml.parse("a = 1\r\nb = 2\r\n", "f").values() == {"": {"a": 1, "b": 2}}
    for text in ("a = 1\r", "a = 1\r\r\n", "a = 1\rb = 2\n", "# x\ry\n"):
        with pytest.raises(codes.BadConfig):
            toml.parse(text, "f")


KINDS = "a string in quotes, a decimal integer, true or false"
REFUSED: List[Tuple[str, str]] = [
    ("a = 1.5", "f:1:5: a: expected %s, found '1.5'" % KINDS),
    ("a = 1e3", "f:1:5: a: expected %s, found '1e3'" % KINDS),
    ("a = inf", "f:1:5: a: expected %s, found 'inf'" % KINDS),
    ("a = 0x1F", "f:1:5: a: expected %s, found '0x1F'" % KINDS),
    ("a = 007", "f:1:5: a: expected %s, found '007'" % KINDS),
    ("a = 1__0", "f:1:5: a: expected %s, found '1__0'" % KINDS),
    ("a = 1_", "f:1:5: a: expected %s, found '1_'" % KINDS),
    ("a = \u0661", "f:1:5: a: expected %s, found '\\u0661'" % KINDS),
    ("a = 1\u00a0", "f:1:5: a: expected %s, found '1\\xa0'" % KINDS),
    ("a = True", "f:1:5: a: expected %s, found 'True'" % KINDS),
    ("a = 1979-05-27", "f:1:5: a: expected %s, found '1979-05-27'" % KINDS),
    ("a = [1]", "f:1:5: a: expected %s, found an array" % KINDS),
    ("a = {b = 1}", "f:1:5: a: expected %s, found an inline table" % KINDS),
    ('a = """x"""', "f:1:5: a: expected %s, found a multi-line string" % KINDS),
    ("a = '''x'''", "f:1:5: a: expected %s, found a multi-line string" % KINDS),
    ("a = x", "f:1:5: a: expected %s, found 'x'" % KINDS),
    ("a =", "f:1:4: a: expected %s, found the end of the line" % KINDS),
    ("a = # x", "f:1:5: a: expected %s, found '#'" % KINDS),
    ("a = %d" % 2**63, "f:1:5: a: expected an integer of at most 64 bits, found '9223372036854775808'"),
    ("a = %s" % ("9" * 5000), "f:1:5: a: expected an integer of at most 64 bits, found '%s'" % ("9" * 40)),
    ('a = "x', 'f:1:7: a: expected a closing " and no control characters before it, found the end of the line'),
    ("a = 'x", "f:1:7: a: expected a closing ' and no control characters before it, found the end of the line"),
    ('a = "\x01"', "f:1:6: a: expected a closing \" and no control characters before it, found '\\x01\"'"),
    ("a = '\x7f'", "f:1:6: a: expected a closing ' and no control characters before it, found \"\\x7f'\""),
    ('a = "\\e"', "f:1:6: a: expected one of \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX \\UXXXXXXXX, found '\\\\e\"'"),
    ('a = "\\ud800"', "f:1:6: a: expected one of"),
    ('a = "\\U00110000"', "f:1:6: a: expected one of"),
    ('a = "\\u12"', "f:1:6: a: expected one of"),
    ("a = 1 2", "f:1:7: a: expected the end of the line or a comment, found '2'"),
    ("a = 'x'y", "f:1:8: a: expected the end of the line or a comment, found 'y'"),
    ("a = 1 # \x00", "f:1:9: a: expected a comment without control characters, found '\\x00'"),
    ("# \x1f", "f:1:3: expected a comment without control characters, found '\\x1f'"),
    ("a.b = 1", "f:1:2: a: expected = after the key, found a dotted key"),
    ('"a" = 1', "f:1:1: expected a bare key, [section] or a comment, found a quoted key"),
    ("'a' = 1", "f:1:1: expected a bare key, [section] or a comment, found a quoted key"),
    ("= 1", "f:1:1: expected a bare key, [section] or a comment, found '='"),
    ("\u00e9 = 1", "f:1:1: expected a bare key, [section] or a comment, found '\\xe9'"),
    ("a", "f:1:2: a: expected = after the key, found the end of the line"),
    ("a: 1", "f:1:2: a: expected = after the key, found ':'"),
    ("a = 1\na = 1", "f:2:1: a: expected each key once, found it again (first on line 1)"),
    ("[s]\na = 1\na = 2", "f:3:1: [s] a: expected each key once, found it again (first on line 2)"),
    ("[s]\n[s]", "f:2:1: expected each section once, found [s] again"),
    ("s = 1\n[s]", "f:2:1: expected a name of its own, found [s], which is a key of the top level already"),
    ("[[s]]", "f:1:1: expected [section] with a bare name, found an array of tables"),
    ('["s"]', "f:1:1: expected [section] with a bare name, found a quoted name"),
    ("['s']", "f:1:1: expected [section] with a bare name, found a quoted name"),
    ("[a.b]", "f:1:1: expected [section] with a bare name, found '[a.b]'"),
    ("[]", "f:1:1: expected [section] with a bare name, found '[]'"),
    ("[s", "f:1:1: expected [section] with a bare name, found '[s'"),
    ("[s] x", "f:1:5: expected the end of the line or a comment, found 'x'"),
    ("a = 1\x0bb = 2", "f:1:5: a: expected %s, found '1\\x0bb'" % KINDS),
    ("\ufeffa = 1", "f: expected text, found a byte order mark: save the file as UTF-8 without one"),
    ("a = '\ud800'", "f: expected UTF-8, found something else: "),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[ascii(text)[:30] for text, _message in REFUSED])
def test_everything_else_is_an_error_with_its_place(text: str, message: str) -> None:
    """The message names file, line, column, key and what was expected."""
    with pytest.raises(codes.BadConfig) as caught:
        toml.parse(text, "f")
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(message)
    if not message.endswith((KINDS, "one of", ": ")):
        assert caught.value.problems[0] == message


def test_bytes_must_be_utf8() -> None:
    """Bytes that are not UTF-8 are one error, not an exception of the codec."""
    with pytest.raises(codes.BadConfig, match="f: expected UTF-8"):
        toml.parse(b"a = '\xff'", "f")


def test_the_size_limit_is_64_kib_of_bytes() -> None:
    """65,536 bytes pass and one more does not, whatever the characters are."""
    full = "#" + "\u00e9" * 32767 + "\n"
    assert toml.parse(full, "f").values() == {"": {}}
    with pytest.raises(codes.BadConfig, match="expected at most 65536 bytes, found 65537"):
        toml.parse(full + "\n", "f")


def test_scan_goes_on_after_an_error() -> None:
    """I8: each bad line is a problem of its own and the good lines still count."""
    document, problems = toml.scan("a = 1\nb = 1.5\nc = 2\n[[x]]\nd = 3\ne = [\n# \x01\n[y]\nf = 4\n", "f")
    assert document.values() == {"": {"a": 1, "c": 2}, "y": {"f": 4}}
    assert [problem.split(" ")[0] for problem in problems] == ["f:2:5:", "f:4:1:", "f:7:3:"]


def test_scan_keeps_the_first_of_two() -> None:
    """A doubled key or section does not change what was read before."""
    document, problems = toml.scan("a = 1\na = 2\n[s]\nb = 1\n[t]\n[s]\nb = 2\n", "f")
    assert document.values() == {"": {"a": 1}, "s": {"b": 1}, "t": {}}
    assert len(problems) == 2


def test_scan_of_garbage_is_short() -> None:
    """A file of something else gives a bounded list of problems."""
    _document, problems = toml.scan("!\n" * 1000, "f")
    assert len(problems) == 17
    assert problems[-1] == "f: 984 more problems"


# --- the same values as any TOML reader ---

fragments = st.sampled_from(
    [
        "a",
        "b",
        "[s]",
        "[t]",
        "[",
        "]",
        "=",
        " ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "#",
        '"',
        "'",
        '"""',
        "'''",
        "\\",
        "\\n",
        "\\u0041",
    ]
    + [
        "1",
        "-",
        "+",
        "_",
        "0",
        "true",
        "false",
        ".",
        ",",
        "{",
        "}",
        "\x00",
        "\x7f",
        "\u00e9",
        "\u2028",
        "\x0c",
        "1979-05-27",
    ]
)
lines = st.tuples(
    st.sampled_from(["a", "b", "c", "s", "a-1"]),
    st.sampled_from([" = ", "=", "\t=\t"]),
    st.one_of(
        st.integers(-(2**65), 2**65).map(str),
        st.booleans().map(lambda value: str(value).lower()),
        st.text(max_size=8).map(lambda text: "'%s'" % text),
        st.text(max_size=8).map(lambda text: '"%s"' % text),
        st.lists(fragments, max_size=3).map("".join),
    ),
    st.sampled_from(["\n", " # c\n", "\r\n", "\n[s]\n", "\n[t]\n"]),
).map("".join)
texts = st.one_of(
    st.text(max_size=40), st.lists(fragments, max_size=24).map("".join), st.lists(lines, max_size=6).map("".join)
)


@pytest.mark.skipif(tomllib is None, reason="tomllib came with Python 3.11")
@given(texts)
@example(SAMPLE.decode())
@example("a = 'x\u2028y'\n")
def test_what_is_accepted_is_read_alike_by_tomllib(text: str) -> None:
    """Whatever passes here gives the same values, types and order with another reader."""
    try:
        document = toml.parse(text, "f")
    except codes.BadConfig:
        return
    assert same(plain(document), tomllib.loads(text))


GOOD_LINES = (
    *(
        "a = 1\n",
        'b = "x\\u00e9y\\n\\U0001F600"\n',
        "c = 'C:\\x'\n",
        "[s]\n",
        "[ t ] # c\n",
        "d=true\n",
        "e =\t-1_000 # z\n",
    ),
    *("\r\n", "# c\r\n", 'f = ""\r\n', "g=''", "h = +0\n", "[1]\n", "  i = false\r\n", "- = 0\n"),
)
ODD = (
    *(chr(number) for number in range(128)),
    *("\x80", "\x85", "\xa0", "\u2028", "\ufeff", "\ud7ff", "\ue000", "\uffff", "\U0010ffff"),
    *("\r\n", "\\u", "\\U", "\\u0041", "\\x41", "\\e", '"""', "'''"),
)


@st.composite
def nearly_good(draw: st.DrawFn) -> str:
    """Good lines with up to three characters put in or over others: what a slip or an attack leaves."""
    text = "".join(draw(st.lists(st.sampled_from(GOOD_LINES), max_size=5)))
    for _time in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from(ODD)) + text[place + draw(st.integers(0, 2)) :]
    return text


@pytest.mark.skipif(tomllib is None, reason="tomllib came with Python 3.11")
@settings(max_examples=500)
@given(nearly_good())
@example("a = 1")
@example("# \x80\x85\u2028\uffff\t\n")
@example("a = '\t' # \t\r\n\r\n")
def test_what_is_nearly_good_and_taken_is_read_alike_by_tomllib(text: str) -> None:
    """Ends of lines, control characters, comments, escapes and numbers: as text and as bytes."""
    try:
        document = toml.parse(text, "f")
    except codes.BadConfig:
        return
    assert same(plain(document), tomllib.loads(text))
    assert toml.parse(text.encode("utf-8"), "f") == document


@given(st.binary(max_size=64))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    """The reader answers or raises BadConfig, whatever it is given."""
    document, problems = toml.scan(raw, "f")
    if not problems:
        assert toml.parse(raw, "f") == document


# --- the writer ---

names = st.text("abcXYZ019_-", min_size=1, max_size=4)
values: st.SearchStrategy[toml.Value] = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
)


@st.composite
def wanted_sections(draw: st.DrawFn) -> Sections:
    """Values for some sections, whose names are no top-level keys."""
    top = draw(st.dictionaries(names, values, max_size=3))
    others = draw(
        st.dictionaries(
            names.filter(lambda name: name not in top), st.dictionaries(names, values, max_size=3), max_size=3
        )
    )
    return {**({toml.TOP: top} if top else {}), **others}


@given(wanted_sections(), st.sampled_from(["", "Written by hand", "two\n\nlines"]))
def test_what_is_rendered_is_read_back(wanted: Sections, comment: str) -> None:
    """Every value survives the way into a file and back, and tomllib agrees."""
    text = toml_edit.render(wanted, comment)
    document = toml.parse(text, "f")
    assert same(document.values(), {toml.TOP: {}, **wanted})
    if tomllib is not None:
        assert same(plain(document), tomllib.loads(text))


def blocks(text: str) -> Dict[str, str]:
    """The exact text of each section, from its header to the next one."""
    document = toml.parse(text, "f")
    pieces = text.split("\n")
    starts = [max(section.line - 1, 0) for section in document.sections] + [len(pieces)]
    return {
        section.name: "\n".join(pieces[starts[number] : starts[number + 1]]).rstrip("\r\n")
        for number, section in enumerate(document.sections)
    }


@given(st.lists(lines, max_size=8).map("".join), wanted_sections())
def test_what_is_not_owned_stays_byte_for_byte(old: str, wanted: Sections) -> None:
    """Sections that are not named keep their text and order; a second time changes nothing."""
    try:
        before = toml.parse(old, "f").values()
        new = toml_edit.replace_sections(old, wanted)
    except codes.BadConfig:
        return
    after = toml.parse(new, "f").values()
    for name, section in wanted.items():
        assert same(
            dict(sorted(after[name].items())), dict(sorted({**(before[""] if name == "" else {}), **section}.items()))
        )
    kept = [name for name in before if name and name not in wanted]
    assert [name for name in after if name in kept] == kept
    old_blocks, new_blocks = blocks(old), blocks(new)
    assert {name: new_blocks[name] for name in kept} == {name: old_blocks[name] for name in kept}
    assert toml_edit.replace_sections(new, wanted) == new


OLD = """\
# Our host.

data_dir = '/srv/x'  # moved
mine = 1

# why we pin
[update]
# two of three
release_threshold = 2 # ask Bob
release_pins = "old"
stale = true

[plugins] # by hand
dir   =   "/p"
# end of it
"""


def test_owned_keys_change_in_place_and_comments_stay() -> None:
    """Only the lines that must change do; a removed key takes its line and nothing else."""
    new = toml_edit.replace_sections(
        OLD,
        {
            "": {"data_dir": "/srv/y", "log_level": "info"},
            "update": {"release_threshold": 2, "release_pins": "new", "adopt": True},
        },
    )
    assert new == OLD.replace("'/srv/x'", '"/srv/y"').replace("mine = 1\n", 'mine = 1\nlog_level = "info"\n').replace(
        '"old"\nstale = true\n', '"new"\nadopt = true\n'
    )


def test_none_removes_a_key_or_a_section() -> None:
    """A key of None goes, a section of None goes with its comments, and what follows stays."""
    new = toml_edit.replace_sections(OLD, {"": {"mine": None, "absent": None}, "update": None, "gone": None})
    assert new == "# Our host.\n\ndata_dir = '/srv/x'  # moved\n\n# why we pin\n\n" + OLD[OLD.index("[plugins]") :]


def test_nothing_to_write_changes_nothing() -> None:
    """An empty wish, or one that removes what is not there, leaves the text as it is."""
    for old in ("", "# c", "[s]\n\n", OLD):
        assert toml_edit.replace_sections(old, {"": {"absent": None}, "absent": None}) == old
        assert toml_edit.replace_sections(old, {}) == old


def test_none_for_the_top_level_clears_it() -> None:
    """The top level can be emptied as a section can."""
    assert toml_edit.replace_sections("# c\na = 1\n[s]\n", {"": None}) == "[s]\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "a = 1\n"),
        ("\n", "a = 1\n\n"),
        ("# c\n", "a = 1\n\n# c\n"),
        ("# c\n\n[s]\n", "# c\n\na = 1\n\n[s]\n"),
        ("# c\n[s]\n", "a = 1\n\n# c\n[s]\n"),
        ("[s]", "a = 1\n\n[s]"),
        ("b = 2", "b = 2\na = 1\n"),
        ("a = 2", "a = 1"),
        ("a = true", "a = 1"),
        ("b = 2\r\n[s]\r\n", "b = 2\r\na = 1\r\n[s]\r\n"),
    ],
)
def test_where_a_new_key_of_the_top_level_goes(old: str, new: str) -> None:
    """Below the other keys, else below the file's own comment, else at the start."""
    assert toml_edit.replace_sections(old, {"": {"a": 1}}) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "[s]\na = 1\n"),
        ("b = 2", "b = 2\n\n[s]\na = 1\n"),
        ("b = 2\n\n", "b = 2\n\n[s]\na = 1\n"),
        ("[s]", "[s]\na = 1\n"),
        ("[s]\n# c\n[t]\n", "[s]\na = 1\n# c\n[t]\n"),
        ("[t]\r\n", "[t]\r\n\r\n[s]\r\na = 1\r\n"),
    ],
)
def test_where_a_section_goes(old: str, new: str) -> None:
    """A new section goes to the end, under an empty line."""
    assert toml_edit.replace_sections(old, {"s": {"a": 1, "b": None}}) == new


def test_a_fresh_file_has_comment_keys_and_sections() -> None:
    """The rendered file as an operator sees it."""
    text = toml_edit.render({"": {"a": 'x"\\\n\x7f\u00e9'}, "s": {"b": -1, "c": False}}, "By the role\n\nDo not edit")
    assert text == '# By the role\n#\n# Do not edit\n\na = "x\\"\\\\\\n\\u007f\u00e9"\n\n[s]\nb = -1\nc = false\n'


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"s": {"a": 1.5}}, r"\[s\] a: expected a string, an integer, true or false, found float"),
        ({"": {"a": ["x"]}}, r"a: expected a string, an integer, true or false, found list"),
        ({"s": {"a b": 1}}, r"\[s\] a b: expected a bare key, found 'a b'"),
        ({"a.b": {"a": 1}}, r"expected a bare section name, found 'a.b'"),
        ({"s": {"a": 2**63}}, r"an integer of at most 64 bits"),
        ({"s": {"a": "\ud800"}}, r"expected UTF-8"),
        ({"s": {"a": "x" * 70000}}, r"expected at most 65536 bytes"),
        ({"": {"s": 1}, "s": {}}, r"which is a key of the top level already"),
    ],
)
def test_what_cannot_be_written_is_refused(wanted: Dict[str, Dict[str, Union[toml.Value, None]]], message: str) -> None:
    """A value that the reader would not take back is an error, not a broken file."""
    with pytest.raises(codes.BadConfig, match=message):
        toml_edit.render(wanted)


def test_a_bad_old_file_is_never_rewritten() -> None:
    """Errors in the old text are reported with the file's name."""
    unchanged: Dict[str, Optional[Dict[str, toml.Value]]] = {"s": {"a": 1}}
    with pytest.raises(codes.BadConfig, match=r"/etc/x\.toml:1:2"):
        toml_edit.replace_sections("a.b = 1\n", unchanged, "/etc/x.toml")
