# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks between the operations of a plan. In a release this does nothing; a test build replaces this one file."""

from __future__ import annotations


def hit(point: str) -> None:
    """Pass the point `<plan>.<number>.<operation>`; a test build may end the process or the machine here."""
