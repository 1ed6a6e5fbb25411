# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what the module ``hold`` decides, by values alone."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import rfc3339


def wanted(params: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """The hold as it should be, without what the agent fills in; None for none. Raises ValueError for what is no time."""
    if params["state"] == "absent":
        return None
    until = rfc3339.parse(params["until"]) if params["until"] else None
    found = {"why": params["why"], "owner": params["owner"], "until": until}
    return {key: value for key, value in found.items() if key == "until" or value}


def is_so(hold: Optional[Dict[str, Any]], want: Optional[Dict[str, Any]]) -> bool:
    """Whether the host has this hold, or none when none is wanted."""
    if hold is None or want is None:
        return hold is want
    return all(hold.get(key) == value for key, value in want.items())


def words(params: Dict[str, Any]) -> List[str]:
    """The agent's command."""
    owner = ["--owner", params["owner"]] if params["owner"] else []
    if params["state"] == "absent":
        return ["unhold", *owner]
    line = ["hold", "--why", params["why"], *owner]
    return line + (["--until", params["until"]] if params["until"] else [])


def others(params: Dict[str, Any], hold: Optional[Dict[str, Any]]) -> bool:
    """Whether the hold is in another name than the one that is given, so that the agent will not change it."""
    return bool(hold and params["owner"] and hold.get("owner") != params["owner"])


def shown(product: str, hold: Optional[Dict[str, Any]]) -> str:
    """One line of a difference."""
    if hold is None:
        return ""
    until = " until %s" % rfc3339.render(hold["until"]) if hold.get("until") else ""
    return "%s held%s: %s\n" % (product, until, hold["why"])
