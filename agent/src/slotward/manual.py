# SPDX-License-Identifier: GPL-3.0-or-later
"""A product that stages first and swaps at an operator's word, `[update] manual` (products.md, section 7).

Rules:
- What waits is what `staged.json` names; a newer upgrade takes its place.
- The word verifies everything again: the target that was asked for, the release's checks of today, the bytes.
- Said again with nothing waiting, it changes nothing and says so (I9).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from typing import Any, Dict, Optional

from slotcore import audit as audits
from slotcore import checks, codes, staged
from slotcore import product as products
from slotward import answers, audit, effects, host, own, prepare


def read(product: products.Product) -> Optional[staged.Staged]:
    """What waits; None for nothing, and for what cannot be believed: asking again makes it anew."""
    path = product.path(staged.NAME)
    try:
        data = host.read_record(path, staged.MAX_BYTES)
        return staged.parse(data, path) if data is not None else None
    except (codes.BrokenRecord, OSError):
        return None


def shown(product: products.Product) -> Optional[Dict[str, Any]]:
    """What waits, as `update` answers it."""
    return staged.as_json(read(product))


def _target_bytes(product: products.Product, target: checks.Target) -> bytes:
    """The target as it is asked for again; an address never counts where the product's source decides it."""
    asked = target._replace(url="") if product.source is not None else target
    return json.dumps({key: value for key, value in asked._asdict().items() if value is not None}).encode("utf-8")


def note(setup: own.Setup, prepared: prepare.Prepared, permit: Optional[bytes]) -> bool:
    """Have the release wait (the lock must be held); whether it did not before."""
    product, record = setup.product, prepared.record
    data = _target_bytes(product, prepared.target)
    found = staged.Staged(
        prepared.target.version, record.sequence, record.sha256, int(time.time()), hashlib.sha256(data).hexdigest()
    )
    before = read(product)
    beside = (_beside(product, staged.TARGET), _beside(product, staged.PERMIT))
    if before is not None and before._replace(at=found.at) == found and beside == (data, permit):
        return False
    try:
        effects.executor_for(product, {}).apply(staged.plan_note(product, found, data, permit), "staged")
    except OSError as error:
        raise effects.as_retryable(error, f"note that {product.name} {found.version} is staged") from error
    audit.note(
        product,
        audits.STAGED,
        code=codes.STAGED_MANUAL,
        from_version=prepared.from_version,
        to_version=found.version,
        sequence=found.sequence,
        sha256=found.sha256,
    )
    return True


def drop(product: products.Product) -> None:
    """Nothing waits any more (the lock must be held)."""
    if os.path.lexists(product.path(staged.NAME)):
        effects.executor_for(product, {}).apply(staged.plan_drop(product), "staged")


def _beside(product: products.Product, name: str) -> Optional[bytes]:
    try:
        return host.read_record(product.path(name), checks.MAX_TARGET)
    except (codes.BrokenRecord, OSError):
        return None


def answer(setup: own.Setup, answered: Dict[str, Any], changed: bool) -> answers.Answer:
    """The end of an upgrade that staged."""
    name, version = setup.product.name, answered["to"]
    text = f"{name} {version} is staged and verified; it waits for an operator's word: `slotward apply`"
    found = dict(answered, state="staged", code=codes.STAGED_MANUAL, message=text, changed=changed)
    return answers.Answer(answers.DONE, dict(found, staged=shown(setup.product)), [text])


def waiting(product: products.Product) -> Optional[checks.Target]:
    """The target of what waits; None when nothing does. Raises Refused `cannot-read` when it is not the one that was noted."""
    found = read(product)
    if found is None:
        return None
    data = _beside(product, staged.TARGET) or b""
    if hashlib.sha256(data).hexdigest() != found.target:
        text = f"{product.path(staged.TARGET)} is not what was asked for with {found.version}: upgrade to it again"
        raise codes.refused(codes.CANNOT_READ, text)
    return checks.parse_target(data)


def nothing(product: products.Product) -> answers.Answer:
    """The answer to a word that nothing waits for."""
    text = f"nothing of {product.name} is staged: nothing to do"
    return answers.Answer(answers.DONE, answers.base(product.name, "idle", message=text), [text])


def as_upgrade(product: products.Product, args: argparse.Namespace) -> argparse.Namespace:
    """The flags of an upgrade to what waits."""
    permit = product.path(staged.PERMIT)
    return argparse.Namespace(
        command="prepare" if args.check else "upgrade",
        src=None,
        stage_only=False,
        no_smoke=False,
        adopt=False,
        start=args.start,
        force=args.force,
        no_wait=args.no_wait,
        id=args.id,
        server_time=None,
        permit=permit if os.path.lexists(permit) else None,
        accept_one_way=args.accept_one_way,
        applying=True,
    )
