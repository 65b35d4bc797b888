"""The stores of builds: a folder of this machine, and behind it, where there is one, a store that machines share.

The folder is always asked first. An entry of the store is verified, then moved into the folder, and is from then on
like a local build. The store may be away, or hold anything: that costs the time of a build, never more.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol, TypeVar

from evaluator.artifact_store import StoreAddress
from evaluator.builder.bucket import Bucket, StoreAway
from evaluator.builder.cache import Artifact, ArtifactCache, BuildFailure
from evaluator.builder.package import UnusablePackage, open_package, seal_package

__all__ = ["ArtifactStore", "SharedArtifacts", "open_store"]

_REST_S: Final = 30.0
"""The backoff after a store was away, in seconds: each request would cost a build the store's timeout."""

_T = TypeVar("_T")


class ArtifactStore(Protocol):
    """A builder's store of builds."""

    def find(self, key: str) -> Artifact | BuildFailure | None:
        """Find the build that is at hand."""

    def obtain(self, key: str) -> Artifact | BuildFailure | None:
        """Find the build at hand or elsewhere. For the holder of the right to build ``key``."""

    def store(self, artifact: Artifact, library: Path | None) -> Artifact:
        """Keep ``artifact`` and ``library``; returns it with its final path."""

    def store_failure(self, key: str, failure: BuildFailure) -> None:
        """Keep a failure whose cause is the candidate's alone."""

    def building(self, key: str) -> AbstractContextManager[None]:
        """Hold the right to build ``key``, which one builder at a time has on this machine."""


def open_store(folder: ArtifactCache, address: StoreAddress | None) -> ArtifactStore:
    """Open the store with ``folder`` as this machine's part of it."""
    return folder if address is None else SharedArtifacts(folder, address)


class SharedArtifacts:
    """A machine's folder in front of a bucket that all machines read and write.

    Failures stay in the folder: a candidate that cannot be built ends on the machine that found it.
    """

    def __init__(self, folder: ArtifactCache, address: StoreAddress) -> None:
        self._folder = folder
        self._bucket = Bucket(address)
        self._secret = address.key.encode()
        self._lock = threading.Lock()
        self._asked_again_at = 0.0

    def find(self, key: str) -> Artifact | BuildFailure | None:
        return self._folder.find(key)

    def obtain(self, key: str) -> Artifact | BuildFailure | None:
        return self._folder.find(key) or self._fetch(key)

    def store(self, artifact: Artifact, library: Path | None) -> Artifact:
        placed = self._folder.store(artifact, library)
        package = seal_package(artifact, None if library is None else library.read_bytes(), self._secret)
        self._ask(lambda: self._bucket.put(_name(artifact.key), package))
        return placed

    def store_failure(self, key: str, failure: BuildFailure) -> None:
        self._folder.store_failure(key, failure)

    def building(self, key: str) -> AbstractContextManager[None]:
        return self._folder.building(key)

    def _fetch(self, key: str) -> Artifact | None:
        package = self._ask(lambda: self._bucket.get(_name(key)))
        if package is None:
            return None
        try:
            artifact, library = open_package(package, key, self._secret)
        except UnusablePackage as error:
            _say(f"{_name(key)} of the artifact store is not used: {error}")
            return None
        if library is None:
            return self._folder.store(artifact, None)
        with tempfile.NamedTemporaryFile(prefix="arrived-", suffix=".so") as file:
            file.write(library)
            file.flush()
            return self._folder.store(artifact, Path(file.name))

    def _ask(self, request: Callable[[], _T]) -> _T | None:
        """Return the answer of ``request``; ``None`` while the store is away."""
        with self._lock:
            if time.monotonic() < self._asked_again_at:
                return None
        try:
            return request()
        except StoreAway as error:
            _say(f"the artifact store is away, and not asked for {_REST_S:.0f} s: {error}")
            with self._lock:
                self._asked_again_at = time.monotonic() + _REST_S
            return None


def _name(key: str) -> str:
    return f"{key[:2]}/{key}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
