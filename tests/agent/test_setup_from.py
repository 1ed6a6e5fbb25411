# SPDX-License-Identifier: GPL-3.0-or-later
"""`setup --from FILE` of another daemon: whose word its version is, what is refused, and what is said of a file that is not taken."""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import Any, Dict

import pytest
from agent.places import OLD, Place

from slotcore import codes, settle
from slotcore import config as configs
from slotward import answers, bringing, manager, own, product_setup

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="setup takes only what is root's")
PROGRAM = "#!/bin/sh\necho probe 1.3.0\n"


def file(place: Place, text: str = PROGRAM, mode: int = 0o644) -> str:
    """A release's file as it was downloaded."""
    path = place.root / "probe_1.3.0"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def asked(place: Place, path: str, vouched: bool = False) -> str:
    """The version that is known of it."""
    product = place.product._replace(smoke_argv=("version",))
    before = place.names()
    try:
        descriptor, record = bringing.open_file(product, path, vouched)
    finally:
        assert place.names() == before, "the copy is gone, whatever came of it"
    os.close(descriptor)
    return record.version


def args_of(**words: Any) -> argparse.Namespace:
    """A command line of setup."""
    given: Dict[str, Any] = {"source": None, "manifest": None, "as_version": None, "adopt": False, "check": True}
    return argparse.Namespace(**{**given, "divert": False, **words})


def setup_of(place: Place) -> own.Setup:
    """The product with a configuration without problems."""
    product = place.product._replace(smoke_argv=("version",))
    return own.Setup(product, configs.load(b"", "/nowhere")[0], (), "/nowhere")


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o755])
def test_A2_a_copy_that_can_be_run_is_asked(mode: int, place: Place) -> None:
    """What was downloaded need not be executable, nor lie where the sandbox looks."""
    path = file(place, mode=mode)
    assert asked(place, path) == "1.3.0"
    assert f"{place.slots}/{settle.PROBE}{os.getpid()} version" in place.calls()
    assert path not in place.calls()
    assert os.stat(path).st_mode & 0o777 == mode


@pytest.mark.parametrize(
    ("text", "said"), [("#!/bin/sh\nexit 7\n", "status 7: no output"), ("#!/bin/sh\necho hm\n", "status 0: hm")]
)
def test_A2_what_does_not_say_its_version_is_named_itself(text: str, said: str, place: Place) -> None:
    """Not the entrypoint, which has nothing to do with it; with what it answered, and the ways out."""
    path = file(place, text)
    with pytest.raises(codes.Refused) as caught:
        asked(place, path)
    assert caught.value.code == codes.SMOKE_TEST_FAILED
    assert caught.value.refusal.text.startswith(
        f"{path} does not say its version: a copy of it, asked with `version`, ended"
    )
    assert said in caught.value.refusal.text
    assert "--manifest" in caught.value.refusal.text


def test_A2_where_a_manifest_vouches_for_the_file_it_is_not_run(place: Place) -> None:
    """Its version is the manifest's."""
    assert asked(place, file(place), vouched=True) == "unknown"
    assert "systemd-run" not in place.calls()


@pytest.mark.parametrize("what", ["missing", "a link", "others may write it"])
def test_A2_a_file_that_is_not_taken_is_named_as_what_it_is(what: str, place: Place) -> None:
    """No word of an entrypoint."""
    path = file(place, mode=0o666 if what.startswith("others") else 0o644)
    if what == "missing":
        os.unlink(path)
    elif what == "a link":
        os.rename(path, path + ".real")
        os.symlink(path + ".real", path)
    with pytest.raises(codes.Refused) as caught:
        asked(place, path)
    assert path in caught.value.refusal.text
    assert "entrypoint" not in caught.value.refusal.text


def test_A2_to_check_is_to_be_refused_what_setup_refuses(place: Place) -> None:
    """The same judgement, and nothing changes: a file that says nothing, and one below the floor (I3)."""
    before = place.names()
    (place.slots / "current").unlink()
    for check in (True, False):
        for text, code in (("#!/bin/sh\nexit 7\n", codes.SMOKE_TEST_FAILED), (PROGRAM, codes.BELOW_FLOOR)):
            path = file(place, text)
            args = args_of(source=path, check=check)
            seen = manager.look(place.product)
            work = product_setup._work(setup_of(place), seen.state, args)
            assert (work.what, work.path) == ("install", path)
            with pytest.raises(codes.Refused) as caught, product_setup._judged(setup_of(place), seen, work, path, args):
                pass
            assert caught.value.code == code
    assert place.names() == before - {"current"}


def test_A5_setup_says_what_is_wrong_with_the_slot_that_starts(place: Place) -> None:
    """It is no program that is missing at the entrypoint."""
    pathlib.Path(place.product.entrypoint).symlink_to(place.slots / "current")
    (place.slots / "a").chmod(0o644)
    with pytest.raises(codes.Refused) as caught:
        product_setup._work(setup_of(place), place.state(), args_of())
    assert caught.value.code == codes.DIGEST_MISMATCH
    assert caught.value.refusal.text.startswith("slot a is not executable: run `slotward update --repair --slots`")
    (place.slots / "current").unlink()
    with pytest.raises(codes.Refused, match=r"there is no program at .*--from FILE"):
        product_setup._work(setup_of(place), place.state(), args_of())


@pytest.mark.parametrize("name", ["current", "good"])
def test_A6_a_broken_link_is_made_anew_by_a_program_that_is_given(name: str, place: Place) -> None:
    """What a repair cannot prove is installed anew, as it says; without a file, the repair is named."""
    place.link(name, "zzz")
    pathlib.Path(place.product.entrypoint).symlink_to(place.slots / "current")
    with pytest.raises(codes.BrokenRecord):
        product_setup._work(setup_of(place), place.state(), args_of())
    work = product_setup._work(setup_of(place), place.state(), args_of(source=file(place)))
    assert work.what == "install"
    place.write("update.json", b"torn")
    place.write("update.json.copy", b"torn")
    with pytest.raises(codes.BrokenRecord):
        product_setup._work(setup_of(place), place.state(), args_of(source=file(place)))


def test_C34_a_file_that_is_not_taken_is_told(place: Place) -> None:
    """Beside a sound slot nothing is installed; the very release that is there needs no word."""
    done = answers.Answer(answers.DONE, {"message": ""}, ["nothing to do: all is in place"])
    told = bringing.with_note(done, place.state(), file(place), "nothing")
    assert f"was not taken: slot a holds {OLD.version}" in told.lines[1]
    assert told.json["message"] == told.lines[1]
    for source, what in ((None, "nothing"), (str(place.slots / "a"), "nothing"), (file(place), "install")):
        assert bringing.with_note(done, place.state(), source, what) is done


def test_C35_what_is_masked_is_refused_by_name(place: Place) -> None:
    """Setup would otherwise say that all is in place, while nothing could end a trial."""
    (place.root / "show").write_text("LoadState=masked\n")
    with pytest.raises(codes.Refused) as caught:
        bringing.demand(place.product, place.state(), None)
    assert caught.value.code == codes.GUARD_NOT_INSTALLED
    assert "systemctl unmask slotward-guard@probe.service" in caught.value.refusal.text
    (place.root / "show").write_text("LoadState=loaded\n")
    bringing.demand(place.product, place.state(), None)
