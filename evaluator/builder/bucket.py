"""Pieces of bytes in a bucket of an S3-compatible store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from evaluator.artifact_store import StoreAddress

__all__ = ["Bucket", "StoreAway"]

_CONNECT_TIMEOUT: Final = timedelta(seconds=2)
_TIMEOUT: Final = timedelta(seconds=20)
"""The timeout for one piece, in seconds: less than the shortest build that it saves."""
_RETRIES: Final = 1
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_MAX_BYTES: Final = 512 * 2**20


class StoreAway(Exception):
    """The store gave no answer, or an unexpected one; the message has the details."""


class Bucket:
    """Reads and writes of a bucket. Safe to use from several threads."""

    def __init__(self, address: StoreAddress) -> None:
        # An extra: without a store it need not be installed.
        import obstore  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415
        from obstore.store import S3Store  # noqa: PLC0415

        self._get, self._put = obstore.get, obstore.put
        self._refusals = (BaseError, OSError)
        plain = any(address.variables.get(name, "").startswith("http://") for name in _ENDPOINTS)
        with _variables(address.variables):
            self._store = S3Store(
                address.bucket,
                prefix=address.prefix or None,
                client_options={"connect_timeout": _CONNECT_TIMEOUT, "timeout": _TIMEOUT, "allow_http": plain},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _TIMEOUT},
            )

    def get(self, name: str) -> bytes | None:
        """Return the content under ``name``, or ``None`` where there is none. Raises ``StoreAway``."""
        try:
            found = self._get(self._store, name)
            if found.meta["size"] > _MAX_BYTES:
                raise StoreAway(f"{name} has {found.meta['size']} bytes, which no build of ours has")
            return found.bytes().to_bytes()
        except FileNotFoundError:
            return None
        except self._refusals as error:
            raise StoreAway(_in_one_line(error)) from error

    def put(self, name: str, content: bytes) -> None:
        """Write ``content`` under ``name``, in the place of any earlier content. Raises ``StoreAway``."""
        try:
            self._put(self._store, name, content, use_multipart=False)
        except self._refusals as error:
            raise StoreAway(_in_one_line(error)) from error


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Keep ``variables`` in the environment while the client reads it.

    A process that is started later, such as a compiler, must not find them.
    """
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
