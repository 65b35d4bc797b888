"""What one installation of the API and its workers is configured with, from environment variables."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from evaluator.artifact_store import StoreAddress
from evaluator.config import parse_limits
from evaluator.devices.discovery import default_build_slots
from evaluator.logs import LogFormat

__all__ = ["MEASURE_AGAIN_S", "InvalidSettings", "Settings", "is_loopback"]

MEASURE_AGAIN_S: Final = (10.0, 60.0, 300.0)
"""The default pauses before an unsettled candidate is measured again: noise passes in minutes, or not soon."""

_Seconds = Annotated[float, Field(ge=0, le=86_400)]


class InvalidSettings(ValueError):
    """An environment variable has a value that cannot be used; says which in one line."""


class Settings(BaseSettings):
    """Settings by environment variables ``KERNELJUDGE_<NAME>``.

    Without any, everything lives below ``data_dir``: an SQLite database and a queue made of files, so that nothing
    needs a server. Problems are those in ``problems_dir`` and those in ``extra_problems_dir``, which need not exist and
    is where imported ones are put. ``database_url`` (``postgresql+psycopg://...``) and ``broker_url`` (``redis://...``)
    move them to one. ``devices`` is a list with commas (``cpu,cuda:0``) that ``serve`` starts a worker each for;
    ``None`` means every device of the machine. With ``require_sandbox`` no worker starts where a layer of the sandbox
    is missing. With ``compare_compiled`` workers also hold what passed against the reference as ``torch.compile`` makes
    it, which they measure once for each problem. ``diagnose``: whether a device fault is diagnosed without anybody
    asking for it. ``max_batch_bytes`` is for batches that come in line by line, ``max_queued`` the most submissions
    that wait, single ones and those of batches counted apart. ``send_webhooks``: whether workers tell of the ends of
    batches; else ``python -m worker.webhook_sender`` is to be run. ``measure_again_s`` is a list with commas: the
    pauses, in seconds, before an unsettled candidate is measured again; empty: it is not. ``limits``
    (``call_s=120,total_s=900``) are this machine's for evaluations, where a problem has no other. ``answer_age_s``: how
    old a board may be that is shown to whoever has no key; 0: each is made anew. ``public_url`` is where visitors find
    the API; empty: where each request says that it was sent to. ``log_format`` is ``text`` or ``json``, a line each.
    ``artifact_store`` (``s3://bucket/prefix``) is where machines find each other's builds, which ``artifact_key``
    signs; where it is and who asks, the usual ``AWS_*`` variables say.

    With ``auth`` ``required``, whoever hands something in needs a key (see ``storage.access.keys``), and whoever reads
    as well unless ``public_read``. ``requests_per_min`` and ``submissions_per_day`` are the limits of a key that has
    none of its own, ``anonymous_requests_per_min`` that of an address; 0 is no limit. With ``open`` nobody is asked who
    he is and nothing is limited, so it is for this machine alone (``exposure``).
    """

    model_config = SettingsConfigDict(env_prefix="KERNELJUDGE_", extra="ignore", frozen=True)

    data_dir: Path = Path(".kerneljudge")
    problems_dir: Path = Path("reference_models")
    extra_problems_dir: Path = Path(".kerneljudge/problems")
    database_url: str = ""
    broker_url: str = ""
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    public_url: str = ""
    max_body_bytes: int = Field(default=2_000_000, gt=0)
    max_batch_bytes: int = Field(default=2_000_000_000, gt=0)
    max_queued: int = Field(default=100_000, ge=1)
    send_webhooks: bool = True
    answer_age_s: float = Field(default=1.0, ge=0, le=60)
    lease_s: float = Field(default=15.0, gt=0)
    reconcile_s: float = Field(default=2.0, gt=0)
    max_attempts: int = Field(default=3, ge=1)
    measure_again_s: Annotated[list[_Seconds], NoDecode] = list(MEASURE_AGAIN_S)
    build_slots: int = Field(default_factory=default_build_slots, ge=1)
    build_cache_gib: float = Field(default=20.0, gt=0)
    artifact_store: str = ""
    artifact_key: SecretStr = SecretStr("")
    devices: Annotated[list[str] | None, NoDecode] = None
    require_sandbox: bool = False
    compare_compiled: bool = False
    diagnose: Literal["auto", "off"] = "auto"
    log_format: LogFormat = "text"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    self_test: Literal["on", "off"] = "on"
    foreign_memory_share: float = Field(default=0.1, ge=0, le=1)
    drain_s: float = Field(default=0.0, ge=0)
    limits: str = ""
    verify_records: Literal["auto", "off"] = "auto"
    auth: Literal["open", "required"] = "open"
    public_read: bool = True
    requests_per_min: int = Field(default=6000, ge=0)
    anonymous_requests_per_min: int = Field(default=600, ge=0)
    submissions_per_day: int = Field(default=100_000, ge=0)

    @field_validator("devices", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [name.strip() for name in value.split(",") if name.strip()] or None
        return value

    @field_validator("measure_again_s", mode="before")
    @classmethod
    def _each(cls, value: object) -> object:
        return [each for each in value.split(",") if each.strip()] if isinstance(value, str) else value

    @field_validator("limits")
    @classmethod
    def _known_limits(cls, value: str) -> str:
        parse_limits(value)
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("data_dir", "problems_dir", "extra_problems_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        # Resolved once: a child process with another working directory means the same folder.
        return value.expanduser().absolute()

    @field_validator("public_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and value.rstrip("/") != f"{parts.scheme}://{parts.netloc}":
            raise ValueError("public_url must be an address without a path, such as https://kernels.example.org")
        if value and parts.scheme not in ("http", "https"):
            raise ValueError("public_url must begin with http:// or https://")
        return value.rstrip("/")

    @model_validator(mode="before")
    @classmethod
    def _defaults_below_data_dir(cls, values: dict[str, object]) -> dict[str, object]:
        data_dir = Path(str(values.get("data_dir") or ".kerneljudge")).expanduser().absolute()
        if not values.get("database_url"):
            values["database_url"] = f"sqlite:///{data_dir / 'kerneljudge.db'}"
        if not values.get("broker_url"):
            values["broker_url"] = f"folder://{data_dir / 'queue'}"
        if not values.get("extra_problems_dir"):
            values["extra_problems_dir"] = data_dir / "problems"
        return values

    @model_validator(mode="after")
    def _driver(self) -> Self:
        for plain in ("postgres://", "postgresql://"):
            if self.database_url.startswith(plain):
                raise ValueError(
                    f"database_url must name its driver: postgresql+psycopg://{self.database_url[len(plain) :]}"
                )
        return self

    @model_validator(mode="after")
    def _usable_store(self) -> Self:
        if self.artifact_store:
            StoreAddress.parse(self.artifact_store, self.artifact_key.get_secret_value(), {})
        return self

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None) -> Self:
        """The settings by ``environment`` (default: this process's). Raises ``InvalidSettings``."""
        prefix, given = cls.model_config["env_prefix"], environment or {}
        keys = {name: f"{prefix}{name.upper()}" for name in cls.model_fields}
        values: dict[str, Any] = {name: given[key] for name, key in keys.items() if key in given}
        try:
            return cls(**values)
        except ValidationError as error:
            problems = []
            for each in error.errors(include_url=False):
                reason = each["msg"].removeprefix("Value error, ")
                named = f"{prefix}{str(each['loc'][0]).upper()}={each['input']}: " if each["loc"] else ""
                problems.append(named + reason)
            raise InvalidSettings("; ".join(problems)) from error

    @property
    def artifact_store_address(self) -> StoreAddress | None:
        """The store that machines share, by this process's ``AWS_*`` variables; ``None`` where there is none."""
        if not self.artifact_store:
            return None
        return StoreAddress.parse(self.artifact_store, self.artifact_key.get_secret_value(), os.environ)

    @property
    def exposure(self) -> str | None:
        """Why the API must not be served with these settings; ``None`` where it may."""
        if self.auth == "required" or is_loopback(self.host):
            return None
        return (
            f"{self.host or 'every address'} can be reached from other machines, and everybody there could hand in "
            "code to be executed: ask for keys (KERNELJUDGE_AUTH=required; kerneljudge keys create makes the first "
            "one), or listen on 127.0.0.1"
        )

    @property
    def cache_dir(self) -> Path:
        """Where compiled extensions are kept."""
        return self.data_dir / "cache"

    @property
    def scratch_dir(self) -> Path:
        """Where evaluations keep what they need only while they last."""
        return self.data_dir / "scratch"


def is_loopback(host: str) -> bool:
    """Whether what listens on ``host`` can be reached from this machine alone; of a name other than ``localhost``,
    nobody knows."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
