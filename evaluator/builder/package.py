"""A built extension as one piece of bytes that can lie with strangers: signed, and verified before it is believed.

A package has three lines before the library: the format's name, a signature (HMAC-SHA256, hexadecimal), and JSON about
the build. The signature covers the JSON, which has the key of the build and the hash of the library. So nothing of a
package is interpreted before its signature is verified, and a valid package is of no use under another key.
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
    """A package that was not written with our secret, was altered, cut short or moved, or is of another version."""


def seal_package(artifact: Artifact, library: bytes | None, secret: bytes) -> bytes:
    """Return the artifact and its library as one signed package."""
    digest = None if library is None else hashlib.sha256(library).hexdigest()
    body = json.dumps({"artifact": asdict(replace(artifact, path=None)), "sha256": digest}).encode()
    return b"\n".join([_FORMAT, _signature(body, secret), body, library or b""])


def open_package(package: bytes, key: str, secret: bytes) -> tuple[Artifact, bytes | None]:
    """Return the artifact for ``key``, and its library where there is one. Raises ``UnusablePackage``."""
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
