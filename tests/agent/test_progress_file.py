# SPDX-License-Identifier: GPL-3.0-or-later
"""`progress.json` of a real directory: what an update at work writes, what is left of one that failed, and who is believed."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any, Dict, Optional

import pytest
from agent.places import Place, fill
from support.web import SHA256, Serve, answer, whole

from slotcore import codes, phases, records
from slotcore import config as configs
from slotward import download, looking, manager, own, progress, progress_file

CONTENT_SIZE = 1 << 20


def written(place: Place) -> Dict[str, Any]:
    """What lies there."""
    found: Dict[str, Any] = json.loads((place.slots / phases.NAME).read_bytes())
    return found


def told(place: Place) -> Optional[Dict[str, Any]]:
    """What status would say at rest."""
    return progress_file.shown(place.product, "none", "")


def setup_of(place: Place) -> own.Setup:
    """It with the defaults of a configuration."""
    return own.Setup(place.product, configs.load(None, "/nowhere")[0], (), "/nowhere")


def test_the_little_that_came_before_a_stall_is_told(place: Place) -> None:
    """A server that stops after the first bytes is seen to have sent them."""
    with progress_file.of(place.product, "1.1.0"):
        progress_file.phase(phases.FETCH)
        progress_file.moved(0, 93, 0.0)
        progress_file.moved(46, 93, 10.0)
        assert (written(place)["percent"], written(place)["rate"]) == (49, 10)


def test_each_phase_is_written_at_once(place: Place) -> None:
    """Whoever looks on sees where an update is, and which process is at it."""
    with progress_file.of(place.product, "1.1.0"):
        assert (written(place)["phase"], written(place)["to"]) == (phases.PREPARE, "1.1.0")
        for phase in (phases.FETCH, phases.STAGE, phases.SWAP, phases.TRIAL):
            progress_file.phase(phase)
            assert (written(place)["phase"], written(place)["pid"]) == (phase, os.getpid())
    assert (place.slots / phases.NAME).stat().st_mode & 0o777 == 0o644
    assert place.names() & {phases.NAME + progress_file.NEW} == set()


def test_it_is_written_at_most_twice_a_second(place: Place) -> None:
    """A thousand blocks of a download cost a write or two."""
    with progress_file.of(place.product, "1.1.0"):
        progress_file.phase(phases.FETCH)
        began = time.monotonic()
        inodes = set()
        for done in range(1000):
            progress_file.moved(done, 1000, 5.0)
            inodes.add((place.slots / phases.NAME).stat().st_ino)
        assert len(inodes) <= 2 + progress_file.IN_A_ROW + (time.monotonic() - began) / progress_file.EVERY_S
        time.sleep(progress_file.EVERY_S * 2)
        progress_file.moved(999, 1000, 5.9)
        assert (written(place)["percent"], written(place)["rate"]) == (99, 5)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (codes.refused(codes.DIGEST_MISMATCH, "other bytes"), codes.DIGEST_MISMATCH),
        (codes.Retryable(codes.DOWNLOAD_FAILED, "no answer"), codes.DOWNLOAD_FAILED),
        (codes.Retryable(codes.CANCELLED, "somebody"), codes.CANCELLED),
        (OSError("the disk"), codes.OS_ERROR),
    ],
)
def test_S2_every_way_out_clears_the_mark_of_work(place: Place, error: Exception, code: str) -> None:
    """What failed says in which phase and why; nobody is at work any more."""

    def work() -> None:
        with progress_file.of(place.product, "1.1.0"):
            progress_file.phase(phases.FETCH)
            progress_file.moved(1, 2, 1.0)
            raise error

    with pytest.raises(type(error)):
        work()
    found = told(place)
    assert found is not None
    assert (found["failed_in"], found["code"], found["pid"]) == (phases.FETCH, code, 0)
    progress_file.phase(phases.SWAP)
    assert written(place)["phase"] == phases.FETCH


def test_a_piece_within_belongs_to_the_whole(place: Place) -> None:
    """The switch tells the same file on as the upgrade around it."""
    with progress_file.of(place.product, "1.1.0"):
        progress_file.phase(phases.STAGE)
        with progress_file.of(place.product, "1.1.0"):
            assert written(place)["phase"] == phases.STAGE
        progress_file.phase(phases.SWAP)
        assert written(place)["phase"] == phases.SWAP
        progress_file.nothing_to_do()
        assert phases.NAME not in place.names()


def test_S1_work_whose_process_is_gone_is_not_told(place: Place) -> None:
    """A host that was powered off in the middle is never "updating" for ever; nor is another process under its number."""
    with subprocess.Popen(["sleep", "60"]) as process:
        found = phases.Progress(phases.FETCH, "1.1.0", int(time.time()), process.pid, 50)
        place.write(phases.NAME, phases.render(found))
        assert told(place) == phases.as_json(found)
        place.write(phases.NAME, phases.render(found._replace(at=found.at - 3600)))
        assert told(place) is None
        place.write(phases.NAME, phases.render(found))
        process.kill()
    assert told(place) is None


def test_what_others_could_have_written_says_nothing(place: Place) -> None:
    """Not a record, and not believed more than one."""
    path = place.slots / phases.NAME
    path.write_bytes(phases.render(phases.Progress(phases.FETCH, "1.1.0", 1, 0, failed_in=phases.FETCH)))
    path.chmod(0o666)
    assert told(place) is None
    path.chmod(0o644)
    assert told(place) is not None
    path.write_bytes(b"torn")
    assert told(place) is None


def _fetch(place: Place, urls: tuple[str, ...], attempts: int = 2) -> None:
    how = download.Transport(allow_http=True, attempts=attempts, first_wait_s=0.4, budget_s=30.0)
    shown = progress.Progress(None, "toy", moved=progress_file.moved, waits=progress_file.waits)
    with progress_file.of(place.product, "1.1.0"):
        progress_file.phase(phases.FETCH)
        (place.root / "staging").mkdir(mode=0o700, exist_ok=True)
        part = str(place.root / "staging" / "part")
        download.fetch(urls[0], part, CONTENT_SIZE, SHA256, how, shown, others=urls[1:])


def test_S3_a_retry_has_a_deadline_and_then_the_failing_step_is_told(place: Place, serving: Serve) -> None:
    """While it waits: why, when next and until when. In the end: failed, in which phase, with which code."""
    seen: list[Dict[str, Any]] = []

    def look(handler: Any) -> None:
        seen.append(written(place))
        answer(503)(handler)

    server = serving(answer(503), look)
    before = int(time.time())
    with pytest.raises(codes.Retryable):
        _fetch(place, (server.url,), attempts=3)
    assert [one["phase"] for one in seen] == [phases.FETCH, phases.FETCH]
    retry = seen[0]["retry"]
    assert retry["why"] == "the server answers 503 Service Unavailable"
    assert before <= retry["next_at"] <= before + 3
    assert before + 27 <= retry["until"] <= before + 31
    found = told(place)
    assert found is not None
    assert (found["failed_in"], found["code"], found["retry"]) == (phases.FETCH, codes.DOWNLOAD_FAILED, None)


def test_a_retry_that_helps_is_forgotten(place: Place, serving: Serve) -> None:
    """The bytes come: the wait is over, and how far it is counts."""
    _fetch(place, (serving(answer(503), whole()).url,))
    assert (written(place)["retry"], written(place)["percent"]) == (None, 100)


def test_L1_status_tells_of_the_failure_until_the_next_try(place: Place) -> None:
    """`update` has it in its answer and in a line; a new try begins anew."""
    setup = setup_of(place)
    with progress_file.of(place.product, "1.1.0"):
        progress_file.phase(phases.FETCH)
        progress_file.failed(codes.DIGEST_MISMATCH)
    shown = looking.look(setup, place.state())
    assert (shown["progress"]["failed_in"], shown["progress"]["code"]) == (phases.FETCH, codes.DIGEST_MISMATCH)
    with progress_file.of(place.product, "1.1.0"):
        shown = looking.look(setup, place.state())
        assert (shown["progress"]["phase"], shown["progress"]["failed_in"]) == (phases.PREPARE, "")


def test_H11_a_trial_that_went_back_is_told_with_its_code(place: Place) -> None:
    """Whoever ended it, settling leaves the reason where people look."""
    place.on_trial()
    setup = setup_of(place)
    assert looking.look(setup, place.state())["progress"]["phase"] == phases.GO_BACK  # its boots are used up
    manager.settle_now(place.product)
    found = looking.look(setup, place.state())
    assert found["last"]["state"] == "rolled-back"
    assert (found["progress"]["phase"], found["progress"]["failed_in"]) == (phases.GO_BACK, phases.TRIAL)
    assert found["progress"]["code"] == found["last"]["code"]
    written_at = (place.slots / phases.NAME).stat().st_mtime_ns
    manager.settle_now(place.product)
    assert (place.slots / phases.NAME).stat().st_mtime_ns == written_at


def test_a_confirmed_trial_leaves_nothing_to_tell(place: Place) -> None:
    """Done is done."""
    with progress_file.of(place.product, "1.1.0"):
        progress_file.phase(phases.TRIAL)
    progress_file.ended(place.product, records.Last("ab" * 8, "confirmed", codes.OK, "", "1.0.0", "1.1.0", 1))
    assert phases.NAME not in place.names()


def test_a_full_disk_does_not_stop_the_work(small: Place) -> None:
    """Nothing is ever worth less than this file."""
    fill(small)
    with progress_file.of(small.product, "1.1.0"):
        progress_file.phase(phases.SWAP)
    assert told(small) is None
