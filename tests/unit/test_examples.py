# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of examples/: the agent takes them, the archive of one is the same each time, and the hooks of another lose no command."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import product_config

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def test_the_four_that_were_promised_are_there() -> None:
    """One file, data, workers, a tree."""
    assert NAMES == ["nginx", "prometheus-node-exporter", "redis-server", "tally"]


@pytest.mark.parametrize("name", NAMES)
def test_a_product_s_file_has_no_problem(name: str) -> None:
    """As `slotward config check` reads it; and each says how it is confirmed without anybody."""
    file = EXAMPLES / name / f"{name}.toml"
    product, problems = product_config.load(file.read_bytes(), str(file), name)[:2]
    assert problems == ()
    assert [probe.name for probe in product.probes if probe.required]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_product_s_file_names_is_beside_it(name: str) -> None:
    """Hooks and probes are there, and can be run."""
    product, _problems = product_config.load((EXAMPLES / name / f"{name}.toml").read_bytes(), name, name)[:2]
    for command in [hook.command for hook in product.hooks] + [probe.command for probe in product.probes]:
        if command:
            file = EXAMPLES / name / "hooks" / pathlib.Path(command[0]).name
            assert command[0] == f"/etc/slotward-hooks/{file.name}"
            assert file.stat().st_mode & 0o111


def test_an_archive_is_the_same_each_time(tmp_path: pathlib.Path) -> None:
    """Whoever packs the release again has the digest that was signed."""
    made = []
    for number in range(2):
        path = tmp_path / f"{number}.tar.gz"
        subprocess.run([str(EXAMPLES / "tally" / "pack"), "1.2.3", str(path)], check=True, timeout=60)
        made.append(path.read_bytes())
    assert made[0] == made[1]
    subprocess.run(["tar", "-xzf", str(tmp_path / "0.tar.gz"), "-C", str(tmp_path)], check=True, timeout=60)
    said = subprocess.run([str(tmp_path / "tally"), "version"], check=True, capture_output=True, text=True, timeout=60)
    assert said.stdout == "tally 1.2.3\n"


@pytest.fixture(scope="module")
def hooks() -> types.ModuleType:
    """The hooks of redis-server as a module."""
    spec = importlib.util.spec_from_file_location("redis_data", EXAMPLES / "redis-server" / "hooks" / "redis_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def resp(*commands: list[bytes]) -> bytes:
    """Commands as they stand in an append-only file."""
    return b"".join(
        b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words) for words in commands
    )


WORDS = st.lists(st.binary(max_size=20), min_size=1, max_size=5)


@given(written=st.lists(WORDS, max_size=5), cut=st.integers(min_value=0, max_value=400), before=st.binary(max_size=9))
def test_a_file_that_was_cut_gives_its_whole_commands(
    hooks: types.ModuleType,
    tmp_path_factory: pytest.TempPathFactory,
    written: list[list[bytes]],
    cut: int,
    before: bytes,
) -> None:
    """Every command that is there whole, in order; the one that was cut never, for nobody was told that it was done."""
    path = tmp_path_factory.mktemp("aof") / "file"
    path.write_bytes((before + b"#TS:1\r\n" + resp(*written))[: len(before) + 7 + cut])
    found = list(hooks.commands(path, len(before)))
    assert found == written[: len(found)]
    assert len(resp(*written[: len(found) + 1])) > cut or found == written


def test_what_is_no_command_is_said(hooks: types.ModuleType, tmp_path: pathlib.Path) -> None:
    """A part that is not in Redis's protocol was not written by appending."""
    path = tmp_path / "appendonly.aof"
    path.write_bytes(b"REDIS0011\r\n")
    with pytest.raises(hooks.Problem, match=r"appendonly\.aof: no command at byte 0"):
        list(hooks.commands(path, 0))


def tree(root: pathlib.Path, **files: bytes) -> pathlib.Path:
    """The files of version 7 and later: base, first and second increment, with their manifest."""
    directory = root / "appendonlydir"
    directory.mkdir(parents=True)
    lines = []
    for kind, data in files.items():
        (directory / kind).write_bytes(data)
        lines.append(f"file {kind} seq {2 if kind == 'second' else 1} type {'b' if kind == 'base' else 'i'}\n")
    (directory / "appendonly.aof.manifest").write_text("".join(reversed(lines)), encoding="ascii")
    return root


def test_what_was_written_since_is_found(hooks: types.ModuleType, tmp_path: pathlib.Path) -> None:
    """After a file of before version 7, after files of version 7, and nothing when nothing was written."""
    data = hooks.Data(tmp_path, "appendonly.aof", "appendonlydir", "dump.rdb")
    old = tmp_path / "old"
    old.mkdir()
    (old / "appendonly.aof").write_bytes(b"old")
    older = tree(tmp_path / "older", base=b"base", first=b"first")
    newer = tree(tmp_path / "newer", base=b"base", first=b"first and more", second=b"new")
    directory = newer / "appendonlydir"
    assert hooks.added(data, older, newer) == [(directory / "first", 5), (directory / "second", 0)]
    upgraded = tree(tmp_path / "upgraded", base=b"old", first=b"new")
    assert hooks.added(data, old, upgraded) == [(upgraded / "appendonlydir" / "first", 0)]
    assert hooks.added(data, older, older) == []


@pytest.mark.parametrize("files", [{"base": b"BASE", "first": b"first"}, {"base": b"base"}], ids=["other", "fewer"])
def test_what_was_rewritten_in_the_trial_is_refused(
    hooks: types.ModuleType, tmp_path: pathlib.Path, files: dict[str, bytes]
) -> None:
    """The commands since the snapshot are not there any more: nobody may pretend that nothing was lost."""
    data = hooks.Data(tmp_path, "appendonly.aof", "appendonlydir", "dump.rdb")
    older = tree(tmp_path / "older", base=b"base", first=b"first")
    with pytest.raises(hooks.Problem):
        hooks.added(data, older, tree(tmp_path / "newer", **files))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("appendonly no", "appendonly is not yes"),
        ("auto-aof-rewrite-percentage 100", "auto-aof-rewrite-percentage is not 0"),
        ("replicaof other 6379", "a replica has its data from its primary"),
    ],
)
def test_a_configuration_that_the_hooks_are_no_good_for_is_refused(
    hooks: types.ModuleType, tmp_path: pathlib.Path, changed: str, said: str
) -> None:
    """Before anything is copied; the last value of a key counts, as for Redis."""
    path = tmp_path / "redis.conf"
    path.write_text(
        '# dir /x\ndir /data\nappendonly yes\nauto-aof-rewrite-percentage 0\nappendfilename "a.aof"\n', encoding="ascii"
    )
    assert hooks.find_data(hooks.read_config(path)) == (pathlib.Path("/data"), "a.aof", "appendonlydir", "dump.rdb")
    with path.open("a", encoding="ascii") as file:
        file.write(f"{changed}\n")
    with pytest.raises(hooks.Problem, match=said):
        hooks.find_data(hooks.read_config(path))


def test_a_time_of_expiry_is_said_in_words_that_the_version_knows(hooks: types.ModuleType) -> None:
    """SET takes a time since 6.2; the value that happens to read PXAT is a value."""
    command = [b"set", b"key", b"PXAT", b"pxat", b"17", b"XX"]
    assert hooks.for_version(command, (6, 2)) == [command]
    assert hooks.for_version(command, (6, 0)) == [[b"set", b"key", b"PXAT", b"XX"], [b"PEXPIREAT", b"key", b"17"]]
    assert hooks.for_version([b"SET", b"key", b"PXAT"], (6, 0)) == [[b"SET", b"key", b"PXAT"]]


def test_what_only_version_7_counts_is_left_out_for_older_ones(hooks: types.ModuleType) -> None:
    """Of a stream and of its groups."""
    stream = [b"XSETID", b"s", b"1-0", b"ENTRIESADDED", b"1", b"MAXDELETEDID", b"0-0"]
    group = [b"XGROUP", b"CREATE", b"s", b"g", b"1-0", b"ENTRIESREAD", b"1"]
    assert hooks.for_version(stream, (7, 0)) == [stream]
    assert hooks.for_version(group, (7, 0)) == [group]
    assert hooks.for_version(stream, (6, 2)) == [[b"XSETID", b"s", b"1-0"]]
    assert hooks.for_version(group, (6, 0)) == [[b"XGROUP", b"CREATE", b"s", b"g", b"1-0"]]


def test_each_version_s_files_are_its_own(hooks: types.ModuleType) -> None:
    """One that is left by a newer version is neither kept for an older one nor given to it."""
    data = hooks.Data(pathlib.Path("/data"), "a.aof", "tree", "dump.rdb")
    assert data.names_for((6, 2)) == ("a.aof", "dump.rdb")
    assert data.names_for((7, 0)) == ("tree", "dump.rdb")


def test_data_are_given_by_one_rename(
    hooks: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the manifest is replaced the newer version's own files count, and they are all there; afterwards the given ones."""
    own = tree(tmp_path / "data", base=b"own base", first=b"own first")
    work = tree(tmp_path / "work", base=b"given base", first=b"given first")
    data = hooks.Data(own, "appendonly.aof", "appendonlydir", "dump.rdb")
    seen = []

    def syncs(argv: list[str], check: bool) -> None:
        if argv[0] == "sync":
            seen.append([path.read_bytes() for path in hooks.files_of(data, own)])
        else:
            subprocess.run(argv, check=check)

    monkeypatch.setattr(hooks, "run", syncs)
    monkeypatch.setattr(hooks, "own", lambda _path: None)
    hooks.give(data, work, "0123")
    assert seen == [[b"own base", b"own first"]]
    assert [path.read_bytes() for path in hooks.files_of(data, own)] == [b"given base", b"given first"]
    assert len(list((own / "appendonlydir").iterdir())) == 3


@pytest.mark.parametrize("name", NAMES)
def test_the_playbook_describes_the_product_as_the_file_does(name: str) -> None:
    """Both ways to a host end in the same product, pins apart."""
    import yaml  # type: ignore[import-untyped]

    (play,) = yaml.safe_load((EXAMPLES / name / "install.yml").read_text(encoding="utf-8"))
    (asked,) = [task["slotward.fleet.product"] for task in play["tasks"] if "slotward.fleet.product" in task]
    top = [key for key in ("unit", "entrypoint", "layout", "user", "keep") if key in asked]
    lines = [f"{key} = {asked[key]}" if key == "keep" else f'{key} = "{asked[key]}"' for key in top]
    sections = {key: asked[key] for key in ("update", "smoke") if key in asked}
    for kind in ("probes", "hooks", "parts"):
        for entry in asked.get(kind, []):
            sections[f"{kind[:-1]}-{entry['name']}"] = {key: entry[key] for key in entry if key != "name"}
    for section, values in sections.items():
        lines.append(f"[{section}]")
        for key, value in values.items():
            if not key.startswith("release_"):
                shown = ",".join(value) if isinstance(value, list) else value
                lines.append(f"{key} = {shown}" if isinstance(shown, int) else f"{key} = '{shown}'")
    described, problems = product_config.load("\n".join(lines) + "\n", name, name)[:2]
    assert [problem for problem in problems if "release_pins" not in problem] == []
    by_hand, _problems = product_config.load((EXAMPLES / name / f"{name}.toml").read_bytes(), name, name)[:2]
    wanted = [probe for probe in by_hand.probes if probe.required]
    assert described == by_hand._replace(pins=described.pins, probes=tuple(wanted))
