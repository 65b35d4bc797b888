"""The address of the bucket through which machines share builds, and the secret that signs them. Torch-free."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import urlsplit

from evaluator.errors import ToolchainMissing

__all__ = ["LEAST_KEY_CHARACTERS", "StoreAddress"]

LEAST_KEY_CHARACTERS: Final = 32
_SCHEME: Final = "s3"
_VARIABLES: Final = "AWS_"


@dataclass(frozen=True)
class StoreAddress:
    """A bucket of an S3-compatible store, and a folder in it, which may be empty.

    ``key`` signs stored packages. ``variables``: the location of the store and its credentials, as the usual ``AWS_*``.
    """

    bucket: str
    prefix: str
    key: str = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, url: str, key: str, environment: Mapping[str, str]) -> Self:
        """Parse ``s3://bucket/prefix``. Raises ``ValueError``, without naming the key."""
        parts = urlsplit(url)
        if parts.scheme != _SCHEME or not parts.netloc or parts.query or parts.fragment:
            raise ValueError(f"the artifact store must be {_SCHEME}://bucket or {_SCHEME}://bucket/prefix, not {url!r}")
        if len(key) < LEAST_KEY_CHARACTERS:
            raise ValueError(
                f"an artifact store needs a key of at least {LEAST_KEY_CHARACTERS} characters, the same on every worker"
            )
        variables = {name: value for name, value in environment.items() if name.startswith(_VARIABLES) and value}
        return cls(parts.netloc, parts.path.strip("/"), key, variables)

    def require_client(self) -> None:
        """Raises ``ToolchainMissing`` where the client library of the store is not installed."""
        if importlib.util.find_spec("obstore") is None:
            raise ToolchainMissing("an artifact store needs obstore: pip install 'kerneljudge-server[s3]'")

    def to_json(self) -> dict[str, Any]:
        return {"bucket": self.bucket, "prefix": self.prefix, "key": self.key, "variables": dict(self.variables)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of ``to_json``."""
        return cls(data["bucket"], data["prefix"], data["key"], data["variables"])
