# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's hand on a directory: holds read fail-closed, set without a lock, and times by the clocks of real zones."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import pathlib
import threading
import time
from typing import Dict, List, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import places
from slotcore import codes, holds, records, windows
from slotcore import product as products
from slotward import answers, cli_parse, cmd_apply, cmd_hold, doctor_hand, executor, hand, hooks, own, telling

NOTHING = records.Update()
UTC = dt.timezone.utc
BERLIN = "Europe/Berlin"
ALL_DAYS = tuple(range(7))
HAS_ZONES = os.path.isdir("/usr/share/zoneinfo/Europe")
zoned = pytest.mark.skipif(not HAS_ZONES, reason="this machine has no tzdata")


@pytest.fixture
def product(tmp_path: pathlib.Path) -> products.Product:
    """A product with its slots here."""
    (tmp_path / "slots").mkdir()
    return products.Product("toy", "toy.service", str(tmp_path / "toy"), str(tmp_path / "slots"))


def write(product: products.Product, data: bytes, mode: int = 0o644) -> pathlib.Path:
    """Put these bytes where the hold is."""
    path = pathlib.Path(product.path("hold.json"))
    path.write_bytes(data)
    path.chmod(mode)
    return path


GOOD = holds.render(holds.Hold("the audit", "ana", 0, 1))


def code_of(product: products.Product, update: records.Update = NOTHING, forced: bool = False) -> Optional[str]:
    """The code that stands against any release, or nothing."""
    refusal = hand.objection(product, update, forced)
    return refusal and refusal.code


def test_without_a_hold_nothing_stands_in_the_way(product: products.Product) -> None:
    """Nor where there is no directory yet."""
    assert code_of(product) is None
    assert code_of(product._replace(slots_dir="/nonexistent/slots")) is None
    assert hand.shown(product, NOTHING) == {"hold": None, "staged": None, "windows": None}


def test_a_hold_is_read_each_time(product: products.Product) -> None:
    """It counts at once, forced or not, and no longer once it is gone."""
    path = write(product, GOOD)
    assert (code_of(product), code_of(product, forced=True)) == (codes.HELD, codes.HELD)
    path.unlink()
    assert code_of(product) is None


@pytest.mark.parametrize(
    "damage", ["torn", "empty", "foreign", "open to others", "directory", "fifo", "link", "binary"]
)
def test_one_that_cannot_be_believed_counts_as_a_hold(product: products.Product, damage: str) -> None:
    """Fail closed, with the path and what is wrong; a look at it waits for nobody."""
    path = pathlib.Path(product.path("hold.json"))
    if damage == "directory":
        path.mkdir()
    elif damage == "fifo":
        os.mkfifo(path)
    elif damage == "link":
        path.symlink_to("/nonexistent")
    else:
        data = {"torn": GOOD[:20], "empty": b"", "foreign": b'{"spec":1}', "binary": b"\xff\x00"}.get(damage, GOOD)
        write(product, data, 0o666 if damage == "open to others" else 0o644)
    refusal = hand.objection(product, NOTHING, forced=True)
    assert refusal is not None
    assert refusal.code == codes.HELD
    assert str(path) in refusal.text
    shown = hand.shown(product, NOTHING)
    assert str(path) in shown["hold"]["damage"]
    assert doctor_hand.findings(shown, "f")[0][1] == "fail"


def test_a_hold_that_has_ended_is_none(product: products.Product) -> None:
    """By the host's clock, or by the newest time that a verified manifest showed."""
    write(product, holds.render(holds.Hold("w", "o", 4_000_000_000, 1)))
    assert code_of(product) == codes.HELD
    assert code_of(product, records.Update(newest_issued=4_000_000_000)) is None


def held(product: products.Product, why: str = "w", owner: str = "ana", until: int = 0) -> bool:
    """Set a hold; whether that changed anything."""
    return cmd_hold.put(product, holds.made(why, owner, until, 5))


@pytest.mark.skipif(os.geteuid() != 0, reason="root's records")
def test_setting_and_taking_away(product: products.Product) -> None:
    """Durable, repeatable, one owner's alone; what is damaged may be replaced, and taken away by whoever names no owner."""
    assert held(product)
    assert not held(product)
    assert held(product, "another reason"), "its owner may say it otherwise"
    with pytest.raises(codes.Refused, match="held already by ana"):
        held(product, owner="ben")
    with pytest.raises(codes.Refused, match="not ben's"):
        cmd_hold.unhold(product, "ben")
    assert cmd_hold.unhold(product, "ana").json["changed"] is True
    assert cmd_hold.unhold(product, None).json["changed"] is False
    write(product, b"torn")
    with pytest.raises(codes.Refused):
        cmd_hold.unhold(product, "ana")
    assert held(product, owner="ben")
    write(product, b"torn")
    assert cmd_hold.unhold(product, None).json["changed"] is True
    assert held(product, until=6), "an ended one is nobody's any more"
    assert held(product, owner="ben")
    assert sorted(os.listdir(product.slots_dir)) == ["audit.log", "hold.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root's records")
def test_whoever_settles_meanwhile_makes_it_no_failure(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock is held, so a temporary may be tidied away: it is made again; what is left at last is one whole record."""
    seen: List[str] = []
    sync = executor.sync_path

    def swept(path: str) -> None:
        sync(path)
        if path.endswith(".tmp") and len(seen) < 2:
            seen.append(path)
            os.unlink(path)

    monkeypatch.setattr(executor, "sync_path", swept)
    assert held(product)
    assert len(set(seen)) == 2, "each try has a name of its own"
    monkeypatch.undo()
    threads = [threading.Thread(target=held, args=(product, f"w{number}")) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = hand.read_hold(product)
    assert found is not None
    assert found.why in {f"w{number}" for number in range(4)}


def run_hold(product: products.Product, monkeypatch: pytest.MonkeyPatch, **flags: object) -> answers.Answer:
    """The command, with these flags."""
    given: Dict[str, object] = {"command": "hold", "why": "w", "owner": "ana", "until": None, **flags}
    monkeypatch.setattr(own, "asked", lambda _args: argparse.Namespace(product=product))
    return cmd_hold.run(argparse.Namespace(**given))


@pytest.mark.skipif(os.geteuid() != 0, reason="root's records")
def test_a_hold_that_would_hold_nothing_is_a_wrong_command(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that has passed, a reason without a word."""
    past = run_hold(product, monkeypatch, until=5)
    assert (past.exit, past.json["code"]) == (answers.USAGE, codes.USAGE)
    assert run_hold(product, monkeypatch, why=" \n ").exit == answers.USAGE
    assert not os.path.exists(product.path("hold.json"))
    done = run_hold(product, monkeypatch, until=4_000_000_000)
    assert (done.exit, done.json["hold"]["until"]) == (answers.DONE, 4_000_000_000)
    with pytest.raises(codes.Refused, match="run `slotward setup` first"):
        run_hold(product._replace(slots_dir="/nonexistent"), monkeypatch)


def window(opens: str, closes: str, days: tuple[int, ...] = ALL_DAYS, zone: str = BERLIN) -> products.Window:
    """A window, by the clock."""
    first, last = (int(text[:2]) * 60 + int(text[3:]) for text in (opens, closes))
    return products.Window("w", days, first, last, zone)


def at(text: str) -> float:
    """A moment in UTC."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def next_at(one: products.Window, now: str) -> Optional[str]:
    """When it opens next, in UTC."""
    toy = products.Product("toy", "toy.service", "/t", "/s", windows=(one,))
    moment = hand.next_opening(toy, at(now))
    return None if moment is None else dt.datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M")


@zoned
@pytest.mark.parametrize(
    ("one", "now", "opens"),
    [
        (window("22:00", "04:00"), "2026-11-30T20:00", "11-30 21:00"),
        (window("22:00", "04:00"), "2026-11-30T21:30", "12-01 21:00"),
        (window("22:00", "04:00"), "2026-07-01T19:00", "07-01 20:00"),
        (window("22:00", "04:00", (5,)), "2026-11-30T20:00", "12-05 21:00"),
        (window("22:00", "04:00", (0,)), "2026-11-30T21:30", "12-07 21:00"),
        # the night of 29 March 2026: 02:00 becomes 03:00, so a window from 02:30 opens at 03:00
        (window("02:30", "04:00"), "2026-03-29T00:00", "03-29 01:00"),
        # and one from 02:10 to 02:50 does not open that night
        (window("02:10", "02:50"), "2026-03-29T00:00", "03-30 00:10"),
        # the night of 25 October 2026: 03:00 becomes 02:00, so 02:30 comes twice, and the first counts
        (window("02:30", "04:00"), "2026-10-24T23:00", "10-25 00:30"),
    ],
)
def test_the_next_opening_by_the_zones_own_clock(one: products.Window, now: str, opens: str) -> None:
    """Days, summer time, the nights in which the clock is put forward and back."""
    assert next_at(one, now) == opens


@zoned
@settings(deadline=None)
@given(
    st.integers(0, 1439),
    st.integers(0, 1439),
    st.sampled_from(["2026-03-28T12:00", "2026-10-24T12:00", "2026-11-30T12:00"]),
    st.integers(0, 1440),
    st.sampled_from([BERLIN, "America/New_York", "Asia/Kolkata", "UTC", "Australia/Lord_Howe"]),
)
def test_a_window_is_open_when_it_was_told_to_open(opens: int, closes: int, start: str, later: int, zone: str) -> None:
    """At the moment that is told the gate lets an update through."""
    now = at(start) + later * 60
    toy = products.Product("toy", "toy.service", "/t", "/s")
    toy = toy._replace(windows=(products.Window("w", ALL_DAYS, opens, closes, zone),))
    moment = hand.next_opening(toy, now)
    assert moment is not None
    assert now < moment <= now + 3 * 86400
    assert windows.refusal(toy, hand.locals_at(toy, moment)) is None


@zoned
def test_when_to_try_again_lies_outside_of_freezes_and_inside_of_a_window(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer's `next_at`, with the sentence; none where nothing opens."""
    monkeypatch.setattr(time, "time", lambda: at("2026-12-23T12:00"))
    freeze = products.Freeze("x", "2026-12-24", "2027-01-06", BERLIN)
    toy = product._replace(windows=(window("22:00", "04:00", (2,)),), freezes=(freeze,))

    def refuse() -> answers.Answer:
        refusal = hand.objection(toy, NOTHING)
        assert refusal is not None
        raise codes.error_of(refusal)

    answer = hand.answered(toy, refuse)
    assert (answer.exit, answer.json["code"]) == (answers.RETRY, codes.OUTSIDE_WINDOW)
    assert "it opens next on Wed 2026-12-23 22:00 Europe/Berlin" in answer.json["message"]
    assert answer.json["next_at"] == at("2026-12-23T21:00")
    monkeypatch.setattr(time, "time", lambda: at("2026-12-24T12:00"))
    assert hand.answered(toy, refuse).json["next_at"] == at("2027-01-06T23:00"), "the night of the 6th is open still"
    assert hand.passed_over(toy).startswith("updates of toy are frozen")
    assert code_of(toy, forced=True) is None


@zoned
@pytest.mark.parametrize("ends", ["9999-12-31", "2026-12-32", "2027-02-30"])
def test_a_freeze_without_a_day_after_it_refuses_all_the_same(
    product: products.Product, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Frozen for ever, or to a day that no calendar has: a refusal without a time, and no crash."""
    monkeypatch.setattr(time, "time", lambda: at("2026-12-23T12:00"))
    frozen = product._replace(freezes=(products.Freeze("x", "2020-01-01", ends, BERLIN),))

    def refuse() -> answers.Answer:
        raise codes.Retryable(codes.FROZEN, "frozen")

    answer = hand.answered(frozen, refuse)
    assert (answer.json["code"], answer.json["next_at"]) == (codes.FROZEN, None)


def test_a_zone_that_the_host_does_not_know_refuses_and_names_the_package(product: products.Product) -> None:
    """So does a name that is a path; doctor fails with the way out, and `update` says so."""
    for zone in ("Mars/Olympus", "../../etc/passwd", "/etc/passwd"):
        toy = product._replace(windows=(window("22:00", "04:00", zone=zone),))
        with pytest.raises(codes.Refused, match="tzdata") as found:
            hand.objection(toy, NOTHING)
        assert found.value.code == codes.NO_ZONE
        shown = dict(hand.shown(toy, NOTHING), product="toy")
        assert "tzdata" in shown["windows"]["problem"]
        assert "tzdata" in hand.lines(shown)[0]
        assert [each[1] for each in doctor_hand.findings(shown, "f")] == ["fail"]


@zoned
def test_N13_doctor_tells_freezes_that_nobody_renewed(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them past: a warning of its own, and the windows are what they are."""
    monkeypatch.setattr(time, "time", lambda: at("2026-11-30T21:30"))
    old = products.Freeze("x", "2020-12-24", "2021-01-06", BERLIN)
    toy = product._replace(windows=(window("22:00", "04:00"),), freezes=(old,))
    assert code_of(toy) is None
    found = {
        name: (state, text) for name, state, text, _run, _entry in doctor_hand.findings(hand.shown(toy, NOTHING), "f")
    }
    assert found["windows"][0] == "ok"
    assert found["freezes"] == ("warn", "every freeze has ended, none is left to come")
    now = toy._replace(freezes=(old._replace(ends="2026-12-01"),))
    found = {
        name: (state, text) for name, state, text, _run, _entry in doctor_hand.findings(hand.shown(now, NOTHING), "f")
    }
    assert found["windows"][0] == "warn"
    assert "freezes" not in found
    assert hand.lines(dict(hand.shown(now, NOTHING), product="toy"))[0].startswith("frozen: 2020-12-24 to 2026-12-01")


def test_a_hook_s_variables_hold_no_word_of_systemd_s(product: products.Product) -> None:
    """What others wrote into a version stays one value."""
    found = hooks.environment(product, "1.0.0", '1.1.0" X=%n\\n', "00112233445566aa")
    assert found == (
        "Environment=SLOTWARD_PRODUCT=toy",
        "Environment=SLOTWARD_FROM=1.0.0",
        "Environment=SLOTWARD_TO=1.1.0__X__n_n",
        "Environment=SLOTWARD_TRIAL=00112233445566aa",
        "Environment=SLOTWARD_SNAPSHOT=",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="root's records")
@pytest.mark.parametrize("flag", ["--check", "--start", "--no-wait", "--force", "--accept-one-way", "--id=0011"])
def test_the_agents_own_apply_takes_no_flag_of_a_products(flag: str, tmp_path: pathlib.Path) -> None:
    """`apply --check` without a product is no start's apply: it changes nothing and says whose flag it is."""
    args = cli_parse.parse(["apply", flag, "--config", str(tmp_path / "none.toml")], "/nowhere")
    answer = cmd_apply.run(args)
    assert (answer.exit, answer.json["changed"]) == (answers.USAGE, False)
    assert "--product" in answer.lines[0]


@pytest.mark.parametrize(("name", "more"), [("slotward", ""), ("toy", "--product toy ")])
def test_whoever_waits_for_a_trial_is_told_a_command_that_is_about_it(name: str, more: str) -> None:
    """The hint comes before the answer, in which commands name their product by themselves."""
    pending = places.TRIAL._replace(length_s=40)
    assert telling.hint(name, pending) == (
        f"{name} 1.1.0 is on trial for 40 s; confirm it with `slotward confirm {more}--id {places.TRIAL_ID} --wait 60`, or it goes back"
    )
