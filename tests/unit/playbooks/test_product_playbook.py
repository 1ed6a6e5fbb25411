# SPDX-License-Identifier: GPL-3.0-or-later
"""product.yml and the role, and handlers of other playbooks, against a stand-in of the agent."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

PLAYBOOK = "slotward.fleet.product"
DAEMON = {"product_name": "redis", "product_unit": "redis.service", "product_entrypoint": "/usr/bin/redis"}


class Hosts:
    """Hosts with a stand-in each, whose product is as it is told."""

    def __init__(self, stage: Any, say: Any) -> None:
        self.stage = stage
        self.say = say

    def host(self, name: str, trial: bool = False, configured: bool = True, **more: Any) -> Any:
        """One more host: setup has nothing to do, an upgrade is there already, unless told otherwise."""
        say = self.say
        one: Dict[str, Any] = {
            "name": "redis",
            "unit": "redis.service",
            "version": "7.0.15",
            "state": "idle",
            "code": "ok",
        }
        one.update(held=False, trial_pending=trial)
        node = say.answer("idle", version="7.0.15", sequence=4, slots={}, unit={}, trial=None, last=None)
        known: Dict[str, Any] = {
            "products": [[0, say.answer("idle", products=[one] if configured else [])]],
            "config": [[0, say.answer("idle", problems=[])]],
            "setup": [[0, say.answer("idle", changes=[], left=[])]],
            "update": [[0, node]],
            "upgrade": [[0, say.answer("current", from_="7.2.4", to="7.2.4")]],
        }
        made = self.stage.host(name, **{**known, **more})
        (self.stage.directory / name / "etc").mkdir()
        return made

    def play(self, *options: str, **more: Any) -> Any:
        """product.yml."""
        config = {"agent_config_path": str(self.stage.directory) + "/{{ inventory_hostname }}/etc/config.toml"}
        return self.stage.play(PLAYBOOK, *options, **{"target": "all", **config, **DAEMON, **more})

    def words(self, name: str) -> List[str]:
        """The commands that one host got."""
        known = ("config", "setup", "products", "update", "upgrade", "prepare", "remove", "confirm")
        return [next(word for word in line if word in known) for line in self.stage.agents[name].commands()]


@pytest.fixture
def hosts(stage: Any, say: Any) -> Hosts:
    """None yet."""
    return Hosts(stage, say)


def test_C6_the_role_describes_once_and_leaves_a_product_on_trial_alone(hosts: Hosts) -> None:
    """A first run writes, a second does not; on trial nothing but the question is asked, and the run does not fail."""
    hosts.host("rest")
    hosts.host("trial", trial=True)
    played = hosts.play()
    assert played.rc == 0, played.out
    assert hosts.words("rest") == ["products", "config", "setup", "setup"]
    assert hosts.words("trial") == ["products"]
    assert "is on trial" in played.of("trial", "Leave a product on trial alone")["msg"]
    file = hosts.stage.directory / "rest" / "etc" / "products.d" / "redis.toml"
    assert file.read_text().splitlines()[2:] == ['unit = "redis.service"', 'entrypoint = "/usr/bin/redis"']
    played = hosts.play(
        product_version="7.2.4", product_source_url="https://r.example/{version}", product_channel="beta"
    )
    assert played.rc == 0, played.out
    assert hosts.words("rest")[4:] == ["products", "config", "setup", "setup", "update", "upgrade"]
    words = hosts.stage.agents["rest"].commands()[-1]
    assert words[words.index("upgrade") :][:5] == ["upgrade", "--version", "7.2.4", "--channel", "beta"]
    assert played.of("rest", "Describe the product")["changed"] is True
    played = hosts.play(product_version="7.2.4", product_source_url="https://r.example/{version}")
    assert "changed=0" in played.out, played.out
    assert hosts.words("trial") == ["products"] * 3


def test_a_release_is_read_once_it_is_known_what_the_host_runs(hosts: Hosts, release: Any, keys: Any) -> None:
    """Pushed from a directory; a host that is ahead is left alone; check mode asks nothing of a product that is not there."""
    made = release(version="7.2.4", sequence=5, product="redis")
    node = hosts.say.answer("idle", version="8.0.0", sequence=9, slots={}, unit={}, trial=None, last=None)
    hosts.host("behind", prepare=[[0, hosts.say.answer("idle", from_="7.0.15", to="7.2.4", artifact=None)]])
    hosts.host("ahead", update=[[0, node]])
    hosts.host(
        "fresh", configured=False, setup=[[0, hosts.say.answer("idle", changes=[{"path": "/x", "what": "link"}])]]
    )
    args = {
        "product_release": str(made.directory),
        "product_release_pins": list(keys.pins),
        "product_release_threshold": 2,
    }
    played = hosts.play("--check", **args)
    assert played.rc == 0, played.out
    assert hosts.words("behind") == ["products", "config", "setup", "update", "prepare"]
    assert hosts.words("fresh") == ["products", "config", "setup"]
    assert hosts.words("ahead") == ["products", "config", "setup", "update"]
    assert "newer than" in played.of("ahead", "Leave a host alone that is ahead")["msg"]
    assert not (hosts.stage.directory / "fresh" / "etc" / "products.d").exists()


def test_C9_a_hold_is_told_and_is_no_failure(hosts: Hosts) -> None:
    """In the agent's words."""
    text = "redis is held by ana: incident 4711"
    hosts.host("h1", upgrade=[[3, hosts.say.answer("refused", "held", message=text, hold={"why": "incident 4711"})]])
    played = hosts.play(product_version="7.2.4", product_source_url="https://r.example/{version}")
    assert played.rc == 0, played.out
    assert played.of("h1", "Say what an operator of the host wants otherwise")["msg"] == text


def test_removal_takes_it_out_and_is_done_once(hosts: Hosts) -> None:
    """Not in a trial; and not where it never was, agent or no agent."""
    left = ["/opt/slotward/redis stays"]
    gone = [0, hosts.say.answer("idle", changed=True, changes=[{"path": "/x", "what": "remove"}], left=left)]
    hosts.host("there", remove=[gone])
    hosts.host("trial", trial=True, remove=[gone])
    hosts.host("never", configured=False)
    hosts.host("bare", configured=False)
    (hosts.stage.directory / "bare" / "slotward").unlink()
    for name in ("there", "trial"):
        (hosts.stage.directory / name / "etc" / "products.d").mkdir()
        (hosts.stage.directory / name / "etc" / "products.d" / "redis.toml").write_text("")
    played = hosts.play(product_state="absent", product_purge=True)
    assert played.rc == 0, played.out
    assert hosts.words("there") == ["products", "remove"]
    assert "--purge" in hosts.stage.agents["there"].commands()[-1]
    assert hosts.words("trial") == hosts.words("never") == ["products"]
    assert played.of("there", "Say what was left as it is")["msg"] == left
    assert played.of("bare", "Give the daemon back")["changed"] is False


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"product_name": ""}, "product_name is not set"),
        ({"product_name": "slotward"}, "the role slotward.fleet.agent configures it"),
        ({"product_unit": ""}, "product_unit is not set for redis"),
        ({"product_version": "7.2.4"}, "nothing says where redis 7.2.4 is"),
        ({"product_release": "https://r.example/x", "product_delivery": "push"}, "a directory on the controller"),
    ],
)
def test_what_is_missing_is_said_before_the_host_is_asked(hosts: Hosts, more: Dict[str, Any], said: str) -> None:
    """With the variable's name and what goes into it."""
    agent = hosts.host("h1")
    played = hosts.play(**more)
    assert played.rc != 0
    assert said in " ".join(played.out.split())
    assert agent.calls() == []


def test_without_an_agent_the_role_says_what_to_install(hosts: Hosts) -> None:
    """And writes nothing."""
    hosts.host("h1")
    (hosts.stage.directory / "h1" / "slotward").unlink()
    played = hosts.play()
    assert played.rc != 0
    assert "install it first" in " ".join(played.out.split())
    assert not (hosts.stage.directory / "h1" / "etc" / "products.d").exists()


IN_FACTS = "ansible_facts['slotward'].products.redis.trial_pending"
AS_VARIABLE = "slotward.products.redis.trial_pending"


def foreign(directory: str, on_trial: str = IN_FACTS) -> List[Dict[str, Any]]:
    """Somebody else's playbook, whose handler would restart redis."""
    ask = {"product": "redis", "executable": "{{ agent_path }}"}
    restart = {"argv": ["touch", directory + "/{{ inventory_hostname }}.restarted"]}
    handlers = [
        {"name": "Ask", "slotward.fleet.products_info": ask, "listen": "restart redis"},
        {
            "name": "Restart redis",
            "ansible.builtin.command": restart,
            "when": "not " + on_trial,
            "listen": "restart redis",
        },
    ]
    write = {
        "name": "Write redis.conf",
        "ansible.builtin.copy": {
            "content": "x\n",
            "dest": directory + "/{{ inventory_hostname }}.conf",
            "mode": "0644",
        },
        "notify": "restart redis",
    }
    return [{"hosts": "all", "gather_facts": False, "tasks": [write], "handlers": handlers}]


def test_C6_a_foreign_handler_that_asks_does_not_restart_during_a_trial(hosts: Hosts) -> None:
    """On trial it is skipped, at rest and without an agent it runs, and where nobody knows the host fails without a restart."""
    hosts.host("rest")
    hosts.host("trial", trial=True)
    hosts.host("other", configured=False)
    hosts.host("bare")
    (hosts.stage.directory / "bare" / "slotward").unlink()
    hosts.host("mute", products=[[1, "Traceback"]])
    played = hosts.stage.play(foreign(str(hosts.stage.directory)), "-f", "5")
    restarted = {path.stem for path in hosts.stage.directory.glob("*.restarted")}
    assert restarted == {"rest", "other", "bare"}, played.out
    assert played.of("trial", "Restart redis")["kind"] == "skipped"
    assert "nobody knows what is on trial" in played.of("mute", "Ask")["msg"]


def test_C6_the_fact_is_a_variable_too_where_ansible_makes_variables_of_facts(hosts: Hosts) -> None:
    """Its default so far: the same guard, said shorter."""
    hosts.host("rest")
    hosts.host("trial", trial=True)
    hosts.stage.facts_are_variables = True
    played = hosts.stage.play(foreign(str(hosts.stage.directory), AS_VARIABLE))
    assert played.rc == 0, played.out
    assert {path.stem for path in hosts.stage.directory.glob("*.restarted")} == {"rest"}
