"""A private S3-compatible server for tests: moto's, in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import boto3
import httpx

from evaluator.artifact_store import StoreAddress
from tests.services import free_port

_START_TIMEOUT_S: Final = 60.0
_BUCKET: Final = "artifacts"
_KEY: Final = "a secret of thirty-two characters"


@dataclass
class ObjectServer:
    """The server's process, and how it is reached. Use ``object_server`` to start one."""

    port: int

    @property
    def variables(self) -> dict[str, str]:
        """What a worker has in its environment to reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
        }

    def address(self, key: str = _KEY) -> StoreAddress:
        return StoreAddress.parse(f"s3://{_BUCKET}/builds", key, self.variables)

    def names(self) -> list[str]:
        """Everything that the bucket holds."""
        return [each["Key"] for each in self._client().list_objects_v2(Bucket=_BUCKET).get("Contents", [])]

    def read(self, name: str) -> bytes:
        return bytes(self._client().get_object(Bucket=_BUCKET, Key=name)["Body"].read())

    def write(self, name: str, content: bytes) -> None:
        self._client().put_object(Bucket=_BUCKET, Key=name, Body=content)

    def empty(self) -> None:
        for name in self.names():
            self._client().delete_object(Bucket=_BUCKET, Key=name)

    def _client(self):  # type: ignore[no-untyped-def]
        variables = self.variables
        return boto3.client(
            "s3",
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            region_name=variables["AWS_REGION"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )


@contextlib.contextmanager
def object_server() -> Iterator[ObjectServer]:
    """A server with one empty bucket, for as long as the context lasts."""
    server = ObjectServer(free_port())
    argv = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(server.port)]
    with tempfile.TemporaryDirectory(prefix="kerneljudge-tests-") as folder, (Path(folder) / "log").open("w+") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + _START_TIMEOUT_S
            while not _answers(server.port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"moto's server did not start:\n{Path(log.name).read_text()}")
                time.sleep(0.05)
            server._client().create_bucket(Bucket=_BUCKET)
            yield server
        finally:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/moto-api/", trust_env=False).is_success
    return False
