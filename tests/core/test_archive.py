# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives: what real tars write is read, and each thing that may not be in one is refused by its name and rule."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import tracemalloc
from typing import Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tars

from slotcore import archive, codes, inflate, tarheader

PROGRAM = b"#!/bin/sh\nexit 0\n"
SMALL = archive.Limits(entries=8, total=1 << 20, ratio=200)


def contents(data: bytes, limits: archive.Limits = archive.DEFAULT, size: int = 65536) -> Dict[str, Optional[bytes]]:
    """What an archive holds: the bytes of files, None for directories."""
    found: Dict[str, Optional[bytes]] = {}
    name = ""
    for event in archive.read(tars.pieces(data, size), limits):
        if isinstance(event, archive.Entry):
            name = event.name
            found[name] = None if event.directory else b""
        else:
            assert 0 < len(event) <= inflate.CHUNK
            found[name] = (found[name] or b"") + event
    return found


def refused(data: bytes, limits: archive.Limits = archive.DEFAULT) -> str:
    """The sentence of the refusal, without its beginning."""
    with pytest.raises(codes.Refused) as caught:
        archive.check(tars.pieces(data), limits)
    assert caught.value.code == codes.BAD_ARCHIVE
    start = "cannot take the archive: "
    assert caught.value.text.startswith(start)
    return caught.value.text[len(start) :]


# --- what is taken ---


def test_files_and_directories_are_read() -> None:
    """Names, bytes and modes of a plain archive."""
    data = tars.packed(
        tars.directory(b"./"),
        tars.directory(b"bin/"),
        tars.member(b"bin/app", PROGRAM, mode=b"0000755\0"),
        tars.member(b"./LICENSE", b"x" * 513),
        tars.directory(b"empty"),
    )
    assert contents(data) == {"": None, "bin": None, "bin/app": PROGRAM, "LICENSE": b"x" * 513, "empty": None}
    assert archive.check([data]) == (
        archive.Entry("", 0, True, True),
        archive.Entry("bin", 0, True, True),
        archive.Entry("bin/app", len(PROGRAM), False, True),
        archive.Entry("LICENSE", 513, False, False),
        archive.Entry("empty", 0, True, True),
    )


def test_a_directory_may_come_after_what_lies_in_it() -> None:
    """A directory that only its members spoke of may be said later, once."""
    assert contents(tars.packed(tars.member(b"a/b", b"1"), tars.directory(b"a/"))) == {"a/b": b"1", "a": None}


@pytest.mark.parametrize("size", [1, 7, 511, 512, 100_000])
def test_the_size_of_the_pieces_does_not_matter(size: int) -> None:
    """Whatever lies where two pieces meet."""
    data = tars.packed(tars.member(b"a", b"1" * 1000), tars.member(b"b", bytes(300_000)))
    assert contents(data, size=size) == {"a": b"1" * 1000, "b": bytes(300_000)}


@pytest.mark.parametrize("mode", [b"0004755\0", b"0002711\0", b"0001700\0", b"000755 \0", b"   755 \0", b"00000755"])
def test_of_a_mode_only_the_owners_x_is_used(mode: bytes) -> None:
    """Set-uid, set-gid, sticky and everything else is not there."""
    (entry,) = archive.check([tars.packed(tars.member(b"a", mode=mode))])
    assert entry == archive.Entry("a", 0, False, True)


def test_a_prefix_is_part_of_a_posix_name() -> None:
    """Names of up to 255 bytes are split in two by ustar."""
    assert list(contents(tars.packed(tars.member(b"b", b"1", prefix=b"long/a")))) == ["long/a/b"]


def test_gnu_headers_have_no_prefix() -> None:
    """There GNU tar keeps times, with --incremental."""
    assert list(contents(tars.packed(tars.member(b"b", prefix=b"14000000000\00014000000000\0", magic=tars.GNU)))) == [
        "b"
    ]


def test_long_names_in_both_ways() -> None:
    """GNU's and PAX's; both are of the member after them alone."""
    long = b"d" * 120 + b"/" + b"f" * 200
    data = tars.packed(
        tars.long_name(long + b"\0"),
        tars.member(long[:100], b"1", magic=tars.GNU),
        tars.extended((b"mtime", b"1.5"), (b"path", b"\xc3\xa9"), (b"SCHILY.xattr.user.a", b"\0\n=")),
        tars.member(b"e", b"2"),
        tars.member(b"plain", b"3"),
    )
    assert contents(data) == {long.decode(): b"1", "é": b"2", "plain": b"3"}


def test_a_pax_header_may_say_the_size_again_and_its_alphabet() -> None:
    """As bsdtar writes it."""
    said = ((b"size", b"3"), (b"hdrcharset", tarheader.UTF8), (b"LIBARCHIVE.creationtime", b"1"))
    data = tars.packed(
        tars.extended((b"comment", b"0" * 40), flag=b"g"), tars.extended(*said), tars.member(b"a", b"123")
    )
    assert contents(data) == {"a": b"123"}


def test_owners_beyond_octal_are_not_looked_at() -> None:
    """GNU tar writes large user ids and early times in base 256."""
    large = b"\x80" + bytes(6) + b"\x01"
    assert contents(tars.packed(tars.member(b"a", uid=large, gid=large, mtime=b"\xff" * 12))) == {"a": b""}


def test_zeros_may_fill_up_the_last_record() -> None:
    """tar writes records of many blocks."""
    assert contents(tars.packed(tars.member(b"a"), end=bytes(10240))) == {"a": b""}


def test_an_empty_archive_is_one() -> None:
    """Nothing in it is no damage; what needs a program says so by itself."""
    assert archive.check([tars.packed()]) == ()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_python_writes_is_read(form: int) -> None:
    """tarfile's three formats, with long names, non-ASCII names and fractions of seconds."""
    buffer = io.BytesIO()
    names = ["bin", "bin/app", "share/é", "deep/" * 19 + "x", *(["n" * 200] if form != tarfile.USTAR_FORMAT else [])]
    with tarfile.open(fileobj=buffer, mode="w:gz", format=form) as file:
        for name in names:
            info = tarfile.TarInfo(name)
            info.mtime = 1.5 if form == tarfile.PAX_FORMAT else 1
            info.type = tarfile.DIRTYPE if name == "bin" else tarfile.REGTYPE
            info.size = 0 if name == "bin" else len(PROGRAM)
            file.addfile(info, io.BytesIO(PROGRAM))
    assert contents(buffer.getvalue()) == {name: None if name == "bin" else PROGRAM for name in names}


# --- names ---


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (b"/etc/passwd", "its name is absolute"),
        (b".//etc/passwd", "its name is absolute"),
        (b"../a", "its name has the part '..'"),
        (b"a/../../b", "its name has the part '..'"),
        (b"a/..", "its name has the part '..'"),
        (b"..", "its name has the part '..'"),
        (b"a//b", "its name has the part ''"),
        (b"", "its name has the part ''"),
        (b"./", "its name has the part ''"),
        (b"a/", "it is a file, and its name ends in a slash"),
        (b".", "its name has the part '.'"),
        (b"a/./b", "its name has the part '.'"),
        (b"././a", "its name has the part '.'"),
        (b"a\\b", "its name has a backslash or a control character"),
        (b"a\nb", "its name has a backslash or a control character"),
        (b"a\x1b[2J", "its name has a backslash or a control character"),
        (b"a\x7f", "its name has a backslash or a control character"),
        (b"a\xc2\x85", "its name has a backslash or a control character"),
        (b"a\xff", "its name is not UTF-8"),
        (b"\xc0\xaf", "its name is not UTF-8"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name: bytes, rule: str) -> None:
    """Each with its own rule, and with the name as it can be shown."""
    shown = ascii(name.decode("utf-8", "backslashreplace"))
    assert refused(tars.packed(tars.member(name))) == "member %s: %s" % (shown, rule)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (b"/", "its name is absolute"),
        (b"a//", "its name has the part ''"),
        (b"./.", "its name has the part '.'"),
        (b"../", "its name has the part '..'"),
    ],
)
def test_a_directorys_name_follows_the_same_rules(name: bytes, rule: str) -> None:
    """One slash may end it, and nothing else is different."""
    assert refused(tars.packed(tars.directory(name))).endswith(rule)


@pytest.mark.parametrize("name", [b"../a", b"/a", b"a\0b", b"a\xff"])
def test_a_name_from_an_extended_header_is_judged_too(name: bytes) -> None:
    """What counts is the name that the file would get."""
    assert refused(tars.packed(tars.extended((b"path", name)), tars.member(b"good"))).startswith("member ")
    assert refused(tars.packed(tars.long_name(name + b"\0"), tars.member(b"good", magic=tars.GNU)))


def test_names_have_a_length() -> None:
    """A part of 255 bytes and a name of 1024 are the most."""
    part, whole = b"\xc3\xa9" * 127 + b"x", b"/".join([b"d" * 127] * 8)
    assert (len(part), len(whole)) == (255, 1023)
    for name in (part, whole + b"f"):
        assert contents(tars.packed(tars.extended((b"path", name)), tars.member(b"a")))
        assert "is longer than" in refused(tars.packed(tars.extended((b"path", name + b"f")), tars.member(b"a")))


def test_names_have_a_depth() -> None:
    """So that whoever walks down to a file holds few directories open."""
    assert contents(tars.packed(tars.member(b"d/" * 31 + b"f")))
    text = refused(tars.packed(tars.member(b"d/" * 32 + b"f")))
    assert text.endswith("its name has 33 parts; at most 32 are taken")


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ([tars.member(b"a"), tars.member(b"a")], "member 'a': its name is there twice"),
        ([tars.member(b"a"), tars.member(b"./a")], "member './a': its name is there twice"),
        ([tars.directory(b"a/"), tars.directory(b"a")], "member 'a': its name is there twice"),
        ([tars.member(b"a"), tars.directory(b"a")], "member 'a': its name is there twice"),
        ([tars.directory(b"a"), tars.member(b"a")], "member 'a': its name is there twice"),
        ([tars.directory(b"./"), tars.directory(b".")], "member '.': its name is there twice"),
        ([tars.member(b"a/b"), tars.member(b"a")], "member 'a': it is a file, and other members lie below it"),
        ([tars.member(b"a"), tars.member(b"a/b/c")], "member 'a/b/c': it lies below 'a', which is a file"),
    ],
)
def test_each_name_has_one_meaning(parts: List[bytes], rule: str) -> None:
    """Nothing is there twice, and no file is a directory too."""
    assert refused(tars.packed(*parts)) == rule


# --- kinds ---


@pytest.mark.parametrize("flag", [bytes([number]) for number in range(256) if bytes([number]) not in tarheader.KINDS])
def test_nothing_but_files_and_directories_is_taken(flag: bytes) -> None:
    """Links, devices, FIFOs, sparse files, and each type that nobody knows, the old regular file among them."""
    text = refused(tars.packed(tars.member(b"x", flag=flag, link=b"y")))
    assert text.startswith("the header at byte 0: it is ")
    assert text.endswith("only files and directories are taken")


@pytest.mark.parametrize(
    ("flag", "what"), [(b"1", "a hard link"), (b"2", "a symbolic link"), (b"3", "a character device"), (b"6", "a FIFO")]
)
def test_a_refused_kind_is_named(flag: bytes, what: str) -> None:
    """With the place where it was found."""
    text = refused(tars.packed(tars.member(b"a"), tars.member(b"x", flag=flag)))
    assert text == "the header at byte 512: it is %s; only files and directories are taken" % what


@pytest.mark.parametrize("key", [b"GNU.sparse.major", b"GNU.sparse.realsize", b"SCHILY.realsize", b"SUN.holesdata"])
def test_sparse_files_of_every_kind_are_refused(key: bytes) -> None:
    """PAX's ways to say it; the old GNU way is a type, or a part of its header."""
    assert "it is a sparse file" in refused(tars.packed(tars.extended((key, b"1")), tars.member(b"a")))


def test_gnus_fields_for_sparse_files_are_empty() -> None:
    """Also in a header that says it is a regular file."""
    assert refused(tars.packed(tars.member(b"a", magic=tars.GNU, gnu=b"\0" * 114 + b"1"))).endswith(
        "it has what GNU tar writes for sparse files or other volumes"
    )


# --- fields ---


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"size": b"-0000000001\0"}, "its size is no octal number: '-0000000001\\x00'"),
        ({"size": b"\xff" * 12}, "its size is in base 256, which nothing of a size taken here needs"),
        ({"size": b"\x80" + bytes(10) + b"\x01"}, "its size is in base 256, which nothing of a size taken here needs"),
        ({"size": bytes(12)}, "its size is no octal number: '%s'" % ("\\x00" * 12)),
        ({"size": b"0000000008\0\0"}, "its size is no octal number: '0000000008\\x00\\x00'"),
        ({"size": b"00000 00001\0"}, "its size is no octal number: '00000 00001\\x00'"),
        ({"mode": b"rwxr-xr-"}, "its mode is no octal number: 'rwxr-xr-'"),
        ({"link": b"other"}, "it has a link name, though it is no link"),
        ({"link": b"\0x"}, "there are bytes after the end of its link name"),
        ({"name": b"a\0b"}, "there are bytes after the end of its name"),
        ({"prefix": b"a\0b"}, "there are bytes after the end of its prefix"),
        ({"last": b"\0\0\0\0tar\0"}, "its header has more than ustar says"),
        ({"magic": bytes(8)}, "its header is neither ustar nor GNU tar's: it says '%s'" % ("\\x00" * 8)),
        ({"magic": b"ustar\0  "}, "its header is neither ustar nor GNU tar's: it says 'ustar\\x00  '"),
        ({"flag": b"5", "size": b"%011o\0" % 5}, "it is a directory with a size of 5 bytes"),
        ({"checksum": b"000001\0 "}, "its header has the checksum 1, the bytes give "),
        ({"checksum": b"-00001\0 "}, "its checksum is no octal number: '-00001\\x00 '"),
    ],
)
def test_a_field_that_can_be_read_in_two_ways_is_refused(fields: Dict[str, bytes], rule: str) -> None:
    """No guess is made about a header."""
    text = refused(tars.packed(tars.member(b"a", **fields) if "name" not in fields else tars.header(**fields)))
    assert text.startswith("the header at byte 0: " + rule)


def test_a_huge_size_is_refused_before_a_byte_is_read() -> None:
    """The most that octal can say is 64 GiB; the default limit is 4 GiB."""
    text = refused(tars.packed(tars.member(b"a", size=b"7" * 12)))
    assert text == (
        "member 'a': the archive's files are together 68719476735 bytes or more; at most 4294967296 are taken"
    )


# --- PAX headers and long names ---


@pytest.mark.parametrize(
    ("records", "rule"),
    [
        ([(b"size", b"4")], "its PAX header says 4 bytes, its header 3"),
        ([(b"size", b"03")], "its PAX header says 03 bytes, its header 3"),
        ([(b"size", b"-1")], "its PAX header says -1 bytes, its header 3"),
        ([(b"size", b"")], "its PAX header says  bytes, its header 3"),
        ([(b"linkpath", b"a")], "its PAX header says linkpath, which is not taken"),
        ([(b"VENDOR.x", b"a")], "its PAX header says VENDOR.x, which is not taken"),
        ([(b"hdrcharset", b"BINARY")], "its PAX header is in another alphabet than UTF-8: BINARY"),
        ([(b"\xff", b"a")], "its PAX header says \\\\xff, which is not taken"),
    ],
)
def test_a_pax_header_that_says_otherwise_is_refused(records: List[Tuple[bytes, bytes]], rule: str) -> None:
    """A size that disagrees, a link, and whatever nobody knows."""
    assert refused(tars.packed(tars.extended(*records), tars.member(b"a", b"123"))) == "member 'a': " + rule


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"12 path=abcde", "its PAX header is damaged at byte 0"),
        (b"99 path=abc\n", "its PAX header is damaged at byte 0"),
        (b"3 path=abc\n", "its PAX header is damaged at byte 0"),
        (b"012 path=abc\n", "its PAX header is damaged at byte 0"),
        (b"-12 path=abc\n", "its PAX header is damaged at byte 0"),
        (b"9999999999 path=abc\n", "its PAX header is damaged at byte 0"),
        (b"11 path abc\n", "its PAX header is damaged at byte 0"),
        (b"12 path=abc\n\0", "its PAX header is damaged at byte 12"),
        (b"12 path=abc\n" * 2, "its PAX header says path twice"),
        (b"8 path=\n" + b"x", "its PAX header is damaged at byte 8"),
    ],
)
def test_a_damaged_pax_header_is_refused(raw: bytes, rule: str) -> None:
    """Lengths are exact, nothing is left over, nothing is said twice."""
    text = refused(tars.packed(tars.extended(raw=raw), tars.member(b"a")))
    assert text == "member './PaxHeaders/x': " + rule


def test_a_global_pax_header_says_nothing_that_matters() -> None:
    """A name or a size for all members would be a second meaning for each."""
    text = refused(tars.packed(tars.extended((b"path", b"a"), flag=b"g"), tars.member(b"b")))
    assert text == "member './PaxHeaders/x': a global PAX header says ['path'], which is not taken"


def test_headers_before_headers_have_a_size() -> None:
    """They are held in memory, so they are small."""
    huge = tars.header(flag=b"x", size=b"%011o\0" % 65537)
    assert refused(tars.packed(huge)) == "member 'file': a PAX header of 65537 bytes; at most 65536 are taken"
    huge = tars.header(flag=b"L", size=b"%011o\0" % 1026)
    assert refused(tars.packed(huge)) == "member 'file': a long name of 1026 bytes; at most 1025 are taken"


@pytest.mark.parametrize("second", [tars.long_name(b"b\0"), tars.extended((b"mtime", b"1"))])
@pytest.mark.parametrize("first", [tars.long_name(b"a\0"), tars.extended((b"mtime", b"1"))])
def test_one_header_belongs_to_one_member(first: bytes, second: bytes) -> None:
    """Which of two counts is what readers differ about."""
    assert "for one member" in refused(tars.packed(first, second, tars.member(b"a")))


@pytest.mark.parametrize("first", [tars.long_name(b"a\0"), tars.extended((b"mtime", b"1"))])
def test_a_header_for_nobody_is_refused(first: bytes) -> None:
    """At the end of the archive."""
    assert refused(tars.packed(first)).endswith("the archive ends after a header that belongs to the next member")


@pytest.mark.parametrize("name", [b"a", b"a\0b\0", b""])
def test_a_long_name_ends_with_its_only_nul(name: bytes) -> None:
    """As GNU tar writes it."""
    assert "only NUL" in refused(tars.packed(tars.long_name(name), tars.member(b"a")))


def test_headers_before_headers_have_a_number() -> None:
    """Global ones belong to nobody, so only a count ends them."""
    empty = tars.extended(flag=b"g")
    assert contents(tars.packed(*[empty] * 16), SMALL) == {}
    assert "the archive has more than 16 headers" in refused(tars.packed(*[empty] * 17), SMALL)


def test_headers_before_headers_have_a_size_together() -> None:
    """However many members an archive has, what is read only to be left aside has an end."""
    large = tars.extended((b"comment", b"x" * 65000), flag=b"g")
    assert contents(tars.packed(*[large] * 64)) == {}
    text = refused(tars.packed(*[large] * 65))
    assert text.endswith("the archive's PAX headers are together more than 4194304 bytes")


# --- limits ---


def test_the_number_of_names_is_limited() -> None:
    """Members and the directories that only their names speak of."""
    many = [tars.member(b"%d" % number) for number in range(9)]
    assert len(contents(tars.packed(*many[:8]), SMALL)) == 8
    assert refused(tars.packed(*many), SMALL) == "member '8': the archive has more than 8 names"
    deep = tars.member(b"/".join([b"d"] * 9))
    assert "the archive has more than 8 names" in refused(tars.packed(deep), SMALL)


def test_the_bytes_of_all_files_are_limited() -> None:
    """Together, and told before they are read."""
    half = tars.member(b"a", bytes(1 << 19)), tars.member(b"b", bytes(1 << 19))
    assert len(contents(tars.packed(*half), SMALL)) == 2
    text = refused(tars.packed(*half, tars.member(b"c", b"1")), SMALL)
    assert text == "member 'c': the archive's files are together 1048577 bytes or more; at most 1048576 are taken"


def bomb(count: int) -> bytes:
    """A file of zeros, as well as deflate can pack it."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write(tars.header(size=b"%011o\0" % count))
        for _number in range(count >> 20):
            file.write(bytes(1 << 20))
        file.write(tars.END)
    return buffer.getvalue()


def test_a_ratio_bomb_is_refused_and_takes_no_memory() -> None:
    """A thousand times its size: the ratio ends it, and whoever allows more still holds only blocks of it."""
    data = bomb(64 << 20)
    tracemalloc.start()
    text = refused(data)
    for event in archive.read([data], archive.Limits(ratio=2000)):
        assert isinstance(event, archive.Entry) or len(event) <= inflate.CHUNK
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text == "it unpacks to more than 200 times its size (after 65536 bytes of it)" or "200 times" in text
    assert peak < 4 << 20


# --- the end ---


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        (b"", "the header at byte 1024: the archive ends in it, 512 bytes are missing"),
        (bytes(511), "the header at byte 1024: the archive ends in it, 1 bytes are missing"),
        (bytes(512), "the header at byte 1024: the archive ends in it, 512 bytes are missing"),
        (bytes(1023), "the header at byte 1024: the archive ends in it, 1 bytes are missing"),
        (bytes(512) + tars.member(b"b"), "the header at byte 1024: one block of zeros, where two end the archive"),
        (tars.END + b"x", "the header at byte 1024: there are bytes after the end of the archive"),
        (tars.END + bytes(600) + b"x", "the header at byte 1024: there are bytes after the end of the archive"),
        (tars.END + tars.member(b"b"), "the header at byte 1024: there are bytes after the end of the archive"),
        (
            tars.END + bytes((1 << 20) + 1),
            "the header at byte 1024: more than 1048576 zeros after the end of the archive",
        ),
    ],
)
def test_the_end_is_the_end(end: bytes, rule: str) -> None:
    """Two blocks of zeros, and zeros alone after them."""
    assert refused(tars.packed(tars.member(b"a", b"1"), end=end)) == rule


def test_bytes_between_members_are_refused() -> None:
    """A block is filled up with zeros."""
    data = tars.header(size=b"%011o\0" % 1) + b"1" + bytes(510) + b"x"
    assert refused(tars.packed(data)).endswith("there are bytes between its end and the next header")


GOOD = tars.packed(tars.member(b"a", b"1" * 600))


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "its gzip data end too early, after 0 bytes"),
        (GOOD[:-1], "its gzip data end too early, after %d bytes" % (len(GOOD) - 1)),
        (GOOD + b"x", "more bytes after the end of its gzip data"),
        (GOOD + bytes(512), "more bytes after the end of its gzip data"),
        (GOOD + GOOD, "another gzip member after the end of its gzip data"),
        (GOOD + gzip.compress(b""), "another gzip member after the end of its gzip data"),
        (b"PK\x03\x04" + GOOD, "it is not gzip data, or damaged: incorrect header check"),
        (b"BZh91AY&SY", "it is not gzip data, or damaged: incorrect header check"),
        (GOOD[:3] + b"\xe0" + GOOD[4:], "it is not gzip data, or damaged: unknown header flags set"),
        (GOOD[:-8] + b"\0\0\0\0" + GOOD[-4:], "it is not gzip data, or damaged: incorrect data check"),
        (GOOD[:-4] + b"\0\0\0\0", "it is not gzip data, or damaged: incorrect length check"),
    ],
)
def test_one_complete_gzip_member_and_nothing_else(data: bytes, rule: str) -> None:
    """Truncated, damaged, concatenated, or with something after it."""
    assert refused(data) == rule
    with pytest.raises(codes.Refused):
        archive.check(tars.pieces(data, 1))


def test_an_empty_piece_is_no_end() -> None:
    """Whoever reads may give nothing for once."""
    assert archive.check([b"", GOOD[:20], b"", GOOD[20:], b""])[0].name == "a"


def test_truncated_at_every_byte() -> None:
    """No beginning of an archive is an archive."""
    for length in range(len(GOOD)):
        refused(GOOD[:length])


def test_plain_tar_truncated_at_every_byte() -> None:
    """The same below the compression: at each byte the archive ends too early."""
    whole = gzip.decompress(GOOD)
    for length in range(0, len(whole), 37):
        refused(gzip.compress(whole[:length]))


@given(st.data())
def test_no_change_of_one_byte_is_read_as_something_else(data: st.DataObject) -> None:
    """A flipped byte in a header is refused, by its checksum at the latest, or is the checksum's own other spelling."""
    whole = bytearray(gzip.decompress(GOOD))
    at = data.draw(st.integers(0, 511))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        found = archive.check([gzip.compress(bytes(whole))])
    except codes.Refused:
        return
    assert 148 <= at < 156
    assert found == (archive.Entry("a", 600, False, False),)


@given(st.binary(max_size=2000))
def test_any_bytes_end_in_a_refusal_or_in_entries(data: bytes) -> None:
    """No input raises anything else."""
    for made in (data, gzip.compress(data), tars.packed(tars.extended(raw=data), tars.member(b"a"))):
        with contextlib.suppress(codes.Refused):
            archive.check([made], SMALL)
