# SPDX-License-Identifier: GPL-3.0-or-later
"""trust and trust_info, by ansible-playbook against stand-ins of the agent (field cases N16, N17)."""

from __future__ import annotations

import base64
import importlib
import json
import pathlib
from typing import Any, Dict, List

import pytest

SLOTCORE = "ansible_collections.slotward.fleet.plugins.module_utils.slotcore."
CONFIGURED = {"source": "configuration", "sequence": 0, "pins": [], "threshold": 2, "expires_at": 0, "withdrawn": False}


@pytest.fixture
def key_set(tmp_path: pathlib.Path, keys: Any) -> Any:
    """Write a key set, published; nobody has to have signed it for the controller."""
    documents = importlib.import_module(SLOTCORE + "documents")
    maker = importlib.import_module(SLOTCORE + "keys")
    release = importlib.import_module(SLOTCORE + "release")
    listed = (release.key(maker.load_public(keys.public[0].read_bytes())),)

    def make(sequence: int, product: str = "slotward") -> pathlib.Path:
        body = documents.KeySet(product, 1000, listed, sequence, 2000, tuple(keys.pins), 2)
        published = {"manifest": base64.b64encode(documents.render(body)).decode(), "signatures": []}
        path = tmp_path / ("keys-%s-%d.json" % (product, sequence))
        path.write_text(json.dumps(published))
        return path

    return make


def trusted(say: Any, **more: Any) -> Dict[str, Any]:
    """What the agent answers of whom it trusts."""
    known = {"trust": dict(CONFIGURED, **more), "warnings": [], "withdrawals": [], "permits": [], "floor": 2}
    found: Dict[str, Any] = say.answer("idle", **known)
    return found


def play(stage: Any, module: str, *options: str, **args: Any) -> Any:
    """One task on all hosts."""
    task = {"name": "Trust", "slotward.fleet." + module: {"executable": "{{ agent_path }}", **args}}
    return stage.play([{"hosts": "all", "gather_facts": False, "tasks": [task]}], *options)


def test_a_chain_is_sent_and_applied_as_one(stage: Any, say: Any, key_set: Any) -> None:
    """Two documents, one command, in their order, with the controller's clock; the result names the controller's files."""
    texts = ["key set 2 is in force", "key set 3 is in force"]
    told = [{"changed": True, "event": "keys-changed", "sequence": n, "text": text} for n, text in enumerate(texts, 2)]
    agent = stage.host("h1")
    answer = trusted(say, source="key-set", sequence=3)
    answer.update(changed=True, applied=told)
    agent.says(trust=[[0, answer]])
    paths = [str(key_set(2)), str(key_set(3))]
    played = play(stage, "trust", "--diff", documents=paths)
    result = played.of("h1", "Trust")
    assert (result["kind"], result["changed"], result["trust"]["sequence"]) == ("ok", True, 3)
    assert result["msg"] == "; ".join(texts)
    assert "+key set 2 is in force\n+key set 3 is in force\n" in played.out
    (words,) = agent.commands()
    assert words[:2] == ["trust", "apply"]
    assert [word.rpartition("/")[2] for word in words[2:4]] == ["0-document.json", "1-document.json"]
    assert words[4] == "--server-time"


def test_the_hosts_files_are_told_by_the_controllers_names(stage: Any, say: Any, key_set: Any) -> None:
    """A refusal that names a file names the one that the operator gave."""
    agent = stage.host("h1")
    refused = say.answer("refused", "keys-not-newer", message="@FILE@: key set 2 is not above key set 3")
    agent.says(trust=[[3, refused]])
    # the stand-in cannot know the path: let the message hold the one it was called with
    program = agent.directory / "slotward"
    program.write_text(program.read_text().replace('.replace("@ID@"', '.replace("@FILE@", words[2]).replace("@ID@"'))
    path = str(key_set(2))
    result = play(stage, "trust", documents=[path]).of("h1", "Trust")
    assert (result["kind"], result["state"], result["code"]) == ("failed", "refused", "keys-not-newer")
    assert result["msg"] == result["reason"] == path + ": key set 2 is not above key set 3"
    assert result["applied"] == []


def test_check_mode_asks_the_host_and_changes_nothing(stage: Any, say: Any, key_set: Any) -> None:
    """The host judges and says what it would take."""
    agent = stage.host("h1")
    agent.says(trust=[[0, dict(trusted(say), changed=True, applied=[])]])
    result = play(stage, "trust", "--check", documents=[str(key_set(2))]).of("h1", "Trust")
    assert (result["kind"], result["changed"]) == ("ok", True)
    assert "--check" in agent.commands()[0]


@pytest.mark.parametrize("text", ["", "{}", "<html></html>", '{"manifest": "e30=", "signatures": []}'])
def test_what_is_no_document_touches_no_host(stage: Any, say: Any, tmp_path: pathlib.Path, text: str) -> None:
    """Nor does a file that is not there."""
    agent = stage.host("h1", trust=[[0, trusted(say)]])
    (tmp_path / "odd.json").write_text(text)
    for name, code in (("odd.json", "bad-document"), ("none.json", "cannot-read")):
        result = play(stage, "trust", documents=[str(tmp_path / name)]).of("h1", "Trust")
        assert (result["kind"], result["code"], result["changed"]) == ("failed", code, False)
        assert name in result["msg"]
    assert agent.commands() == []


def test_N17_which_hosts_trust_only_the_old_keys(stage: Any, say: Any, key_set: Any) -> None:
    """By the playbook's own account of all hosts, those away left out; the run fails while one is old."""
    stage.host("pinned", trust=[[0, trusted(say)]])
    stage.host("before", trust=[[0, trusted(say, source="key-set", sequence=2)]])
    stage.host("there", trust=[[0, trusted(say, source="key-set", sequence=3)]])
    stage.host("later", trust=[[0, trusted(say, source="key-set", sequence=4)]])
    lost = dict(trusted(say, source="unknown"), state="refused", code="record-broken", message="trust.json: missing")
    stage.host("lost", trust=[[5, lost]])
    stage.host("down").says(trust=[[0, trusted(say)]])
    (stage.directory / "down" / "cut").write_text("99999999999")
    played = stage.play("slotward.fleet.trust", target="all", trust_key_set=str(key_set(3)))
    found = {line["host"]: line["result"] for line in played.results if line["task"].startswith("Ask every host")}
    assert {name: (result["standing"], result["only_old"]) for name, result in found.items()} == {
        "pinned": ("old", True),
        "before": ("old", True),
        "there": ("in-force", False),
        "later": ("newer", False),
        "lost": ("unknown", False),
        "down": (None, None),
    }
    assert played.of("pinned", "Name the hosts")["msg"] == "2 of 6 trust only the old keys: pinned, before"
    ends = {line["host"]: line["kind"] for line in played.results if line["task"].startswith("This host took")}
    assert ends == {"pinned": "failed", "before": "failed", "there": "ok", "later": "ok", "lost": "failed", "down": "failed"}  # fmt: skip
    assert played.rc != 0


def test_the_playbook_gives_every_host_the_documents(stage: Any, say: Any, key_set: Any) -> None:
    """And a host that refuses does not keep the others from theirs."""
    after = trusted(say, source="key-set", sequence=2)
    good = stage.host("good", trust=[[0, dict(after, changed=True, applied=[])], [0, after]])
    stage.host("bad", trust=[[3, say.answer("refused", "too-few-signatures", message="1 of 2")], [0, trusted(say)]])
    path = str(key_set(2))
    played = stage.play("slotward.fleet.trust", target="all", trust_documents=[path], trust_key_set=path)
    assert [words[:2] for words in good.commands()] == [["trust", "apply"], ["trust", "--json"]]
    ends: List[Any] = [
        (line["host"], line["kind"]) for line in played.results if line["task"].startswith("This host took")
    ]
    assert sorted(ends) == [("bad", "failed"), ("good", "ok")]
    assert "1 of 2" in played.of("bad", "This host took")["msg"]


def test_another_products_key_set_is_not_compared(stage: Any, say: Any, key_set: Any) -> None:
    """It says nothing about this one."""
    agent = stage.host("h1", trust=[[0, trusted(say)]])
    result = play(stage, "trust_info", key_set=str(key_set(2, "exporter"))).of("h1", "Trust")
    assert (result["kind"], result["code"], result["standing"]) == ("failed", "wrong-product", None)
    assert agent.commands() == []


def test_without_a_key_set_it_only_tells(stage: Any, say: Any) -> None:
    """Whom the host trusts, and what runs out."""
    warning = {"level": "warning", "what": "key set", "text": "key set 2 expires in 20 days", "days": 20}
    stage.host("h1", trust=[[0, dict(trusted(say), warnings=[warning])]])
    result = play(stage, "trust_info").of("h1", "Trust")
    assert (result["kind"], result["changed"], result["only_old"]) == ("ok", False, None)
    assert (result["notices"], result["floor"]) == ([warning], 2)


def test_a_permit_is_sent_with_the_upgrade(stage: Any, say: Any, key_set: Any) -> None:
    """In check mode too; what is no document is refused before the host is asked."""
    agent = stage.host("h1", upgrade=[[0, say.answer("current")]], prepare=[[0, say.answer("current")]])
    for options in ((), ("--check",)):
        result = play(stage, "upgrade", *options, target=say.target(), permit=str(key_set(2))).of("h1", "Trust")
        assert result["kind"] == "ok"
    for words in agent.commands():
        assert words[words.index("--permit") + 1].endswith("/permit.json")
    result = play(stage, "upgrade", target=say.target(), permit="/nowhere/permit.json").of("h1", "Trust")
    assert (result["kind"], result["code"]) == ("failed", "cannot-read")
    assert len(agent.commands()) == 2
