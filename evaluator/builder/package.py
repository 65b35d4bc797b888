"""A built extension as one piece of bytes that can lie with strangers: signed, and verified before it is believed.

A line with the format's name, a line with a signature (HMAC-SHA256, hexadecimal), a line of JSON with what is known of
the build, then the library. The signature is over the JSON, which names the key that it was built for and the hash of
the library: nothing of a package is interpreted before it is known to be ours, and a package of ours is of no use in
another's place.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict, replace
from typing import Final

from evaluator.builder.cache import Artifact, artifact_of

__all__ = ["UnusablePackage", "open_package", "seal_package"]

_FORMAT: Final = b"kerneljudge artifact 1"


class UnusablePackage(ValueError):
    """Not what somebody with our secret has put there: altered, cut short, or moved; or by another version of ours."""


def seal_package(artifact: Artifact, library: bytes | None, secret: bytes) -> bytes:
    """The artifact and its library, signed."""
    digest = None if library is None else hashlib.sha256(library).hexdigest()
    body = json.dumps({"artifact": asdict(replace(artifact, path=None)), "sha256": digest}).encode()
    return b"\n".join([_FORMAT, _signature(body, secret), body, library or b""])


def open_package(package: bytes, key: str, secret: bytes) -> tuple[Artifact, bytes | None]:
    """The artifact for ``key``, and its library where there is one. Raises ``UnusablePackage``."""
    parts = package.split(b"\n", 3)
    if len(parts) != 4 or parts[0] != _FORMAT:
        raise UnusablePackage("it has another format")
    _, signature, body, library = parts
    if not hmac.compare_digest(signature, _signature(body, secret)):
        raise UnusablePackage("its signature is not by our secret")
    try:
        said = json.loads(body)
        artifact, digest = artifact_of(said["artifact"]), said["sha256"]
    except (KeyError, TypeError, ValueError) as error:
        raise UnusablePackage("another version of this program has made it") from error
    if artifact.key != key:
        raise UnusablePackage("it belongs in another's place")
    if digest is None:
        return artifact, None
    if hashlib.sha256(library).hexdigest() != digest:
        raise UnusablePackage("its library is not the one that was signed")
    return artifact, library


def _signature(body: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, _FORMAT + b"\n" + body, hashlib.sha256).hexdigest().encode()
