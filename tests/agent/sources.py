# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with a product whose releases come from a source on loopback, and the releases that lie there."""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import time
from typing import Any, Callable, Dict, Optional, Sequence

from agent.places import Place
from support import signing
from support.web import Handler, Serve, Server, answer

from slotcore import canonical, checks, documents, keys, manifest, recording, records, rfc3339, signatures
from slotcore import config as configs
from slotcore import product as products
from slotward import manager, own, prepare

CONTENT = b"#!/bin/sh\necho 1.1.0\n"
DAY_S = 86400


def name_of(version: str, platform: str = "linux-amd64") -> str:
    """The name of a release's file."""
    return checks.artifact_name("probe", version, platform)


def artifact(content: bytes = CONTENT, version: str = "1.1.0", **more: Any) -> Dict[str, Any]:
    """One file of a release, as its manifest lists it."""
    sha256 = hashlib.sha256(content).hexdigest()
    found = {"name": name_of(version), "platform": "linux-amd64", "sha256": sha256, "size": len(content)}
    return {**found, **more}


class Fleet:
    """A source of releases, their keys, and a host that takes them from it by version."""

    def __init__(self, place: Place, serving: Serve) -> None:
        self.place = place
        self.keys = [keys.generate(keys.ES256), keys.generate(keys.EDDSA)]
        self.files: Dict[str, bytes] = {}
        self.acts: Dict[str, Callable[[Handler], None]] = {}
        self.server: Server = serving(self._serve)
        self.host = "127.0.0.1:%d" % self.server.server_address[1]
        source = products.Source(f"http://{self.host}/pub/v{{version}}", (self.host,))
        self.product = place.product._replace(
            pins=tuple(key.public.pin for key in self.keys), threshold=2, platform="linux-amd64", source=source
        )
        pathlib.Path(self.product.entrypoint).unlink(missing_ok=True)
        pathlib.Path(self.product.entrypoint).symlink_to(place.slots / "current")
        place.write(
            recording.SLOTS, records.render_slots({"a": records.SlotRecord("1.0.0", 1, *_held(place), 0, "stable")})
        )
        for name, data in ((recording.UPDATE, records.render_update(records.Update(floor=1))),):
            place.write(name, data)
        for name in (recording.SLOTS, recording.UPDATE):
            place.write(name + recording.COPY, recording.sealed((place.slots / name).read_bytes()))

    def _serve(self, handler: Handler) -> None:
        act = self.acts.get(handler.path)
        if act is not None:
            act(handler)
        elif handler.path in self.files:
            body, start = self.files[handler.path], handler.start()
            ranged = (
                {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if handler.headers.get("Range") else {}
            )
            answer(206 if ranged else 200, ranged, body[start:])(handler)
        else:
            answer(404)(handler)

    def asked(self) -> list[str]:
        """The paths that were asked for."""
        return [request.path for request in self.server.requests]

    def setup(self, **changes: Any) -> own.Setup:
        """The host, its product changed so."""
        config = configs.load(None, "/nowhere")[0]._replace(allow_http=True)
        return own.Setup(self.product._replace(**changes), config, (), "/nowhere")

    def release(
        self,
        version: str = "1.1.0",
        sequence: int = 2,
        artifacts: Optional[Sequence[Dict[str, Any]]] = None,
        by: Optional[Sequence[keys.PrivateKey]] = None,
        at: Optional[str] = None,
        **changes: Any,
    ) -> bytes:
        """Publish a release; `at` under another version's address."""
        now = int(time.time())
        listed = [
            {"kid": key.public.kid, "alg": key.public.alg, "spki": base64.b64encode(key.public.spki).decode("ascii")}
            for key in self.keys
        ]
        body = {
            "type": manifest.TYPE,
            "spec": manifest.SPEC,
            "product": "probe",
            "version": version,
            "sequence": sequence,
            "issuedAt": rfc3339.render(now - DAY_S),
            "expiresAt": rfc3339.render(now + DAY_S),
            "keys": listed,
            "artifacts": list(artifacts) if artifacts is not None else [artifact(version=version)],
            **changes,
        }
        data = canonical.encode({key: value for key, value in body.items() if value is not None})
        message = signatures.signed_bytes(data, documents.RELEASE)
        signed = [
            {"kid": key.public.kid, "sig": base64.b64encode(key.sign(message)).decode("ascii")}
            for key in (self.keys if by is None else by)
        ]
        published = json.dumps({"manifest": base64.b64encode(data).decode("ascii"), "signatures": signed}).encode()
        base = f"/pub/v{at or version}"
        self.files[f"{base}/manifest.json"] = published
        for one in body["artifacts"]:
            self.files[f"{base}/{one['name']}"] = CONTENT
        return published

    def withdraw(
        self, version: str = "1.1.0", sequence: int = 2, by: Optional[Sequence[keys.PrivateKey]] = None
    ) -> None:
        """Lay a notice beside a release."""
        body = documents.Withdrawal(
            "probe", int(time.time()), signing.listed(self.keys), version, sequence, "loses mail"
        )
        self.files[f"/pub/v{version}/withdrawn.json"] = signing.published(body, self.keys if by is None else by)

    def judged(
        self, version: str = "1.1.0", channel: Optional[str] = None, variant: Optional[str] = None, **changes: Any
    ) -> prepare.Prepared:
        """What prepare says of it, but for what needs systemd."""
        return self.told(checks.Target("probe", version, "", "", "", channel, variant), **changes)

    def told(self, target: checks.Target, noting: bool = False, **changes: Any) -> prepare.Prepared:
        """The same of a whole target."""
        setup = self.setup(**changes)
        return prepare.judged(setup, manager.look(setup.product), target, prepare.Consent(noting=noting))


def _held(place: Place) -> tuple[str, int]:
    data = (place.slots / "a").read_bytes()
    return hashlib.sha256(data).hexdigest(), len(data)
