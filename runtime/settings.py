"""The settings of one installation of the API and its workers, from environment variables."""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, IPvAnyNetwork, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from evaluator.artifact_store import StoreAddress
from evaluator.config import parse_limits
from evaluator.devices.discovery import default_build_slots
from evaluator.logs import LogFormat
from evaluator.problems.loading import usual_folder

__all__ = ["MEASURE_AGAIN_S", "InvalidSettings", "Settings", "is_loopback", "misspelt"]

_LIKENESS: Final = 0.75
_OF_OTHERS: Final = frozenset(
    f"KERNELJUDGE_{name}"
    for name in (
        *("API_KEY", "API_MEMORY", "PARENT_FD", "PREPARED_DIR", "PUBLISH", "SCRATCH_SIZE", "SHARE", "STOP_GRACE"),
        *("URL", "WORKER_MEMORY"),
    )
)
"""Variables of the clients, of the builder and of compose."""

MEASURE_AGAIN_S: Final = (10.0, 60.0, 300.0)
"""The default pauses, in seconds, before an unsettled candidate is measured again.

They end after some minutes, because noise either passes by then or lasts long.
"""

_Seconds = Annotated[float, Field(ge=0, le=86_400)]


class InvalidSettings(ValueError):
    """An environment variable has an invalid value; the message names it in one line."""


class Settings(BaseSettings):
    """Settings by environment variables ``KERNELJUDGE_<NAME>``.

    Without any, all data is below ``data_dir``: an SQLite database and a queue made of files, so that no server is
    needed. ``database_url`` (``postgresql+psycopg://...``) and ``broker_url`` (``redis://...``) move them to servers.
    Problems are read from ``problems_dir`` and from ``extra_problems_dir``, which need not exist and gets imported
    problems.

    ``devices`` is a list with commas (``cpu,cuda:0``): ``serve`` starts a worker for each. ``None`` means every device
    of the machine. With ``require_sandbox`` no worker starts where a layer of the sandbox is missing. With
    ``compare_compiled`` workers also compare candidates that passed with the reference under ``torch.compile``, which
    they measure once for each problem. ``diagnose``: whether device faults are diagnosed without a request. ``limits``
    (``call_s=120,total_s=900``) are this machine's limits for evaluations, where a problem has no others.
    ``measure_again_s`` is a list with commas: the pauses, in seconds, before an unsettled candidate is measured again.
    With an empty list it is not measured again.

    ``max_batch_bytes`` limits batches that come in line by line. ``max_queued`` is the most waiting submissions, with
    single ones and those of batches counted apart. ``send_webhooks``: whether workers send the webhooks of batches;
    otherwise an operator runs ``python -m worker.webhook_sender``. ``webhook_networks`` is a list with commas
    (``10.0.0.0/8``): webhooks reach these beside public addresses. ``answer_age_s``: the greatest age of a leaderboard
    that is shown to readers without a key; 0: each is computed anew. ``public_url`` is the address of the API for
    visitors; empty: the address to which each request was sent. ``log_format`` is ``text`` or ``json``, a line each.
    ``artifact_store`` (``s3://bucket/prefix``) is the store in which machines share builds, signed with
    ``artifact_key``. The usual ``AWS_*`` variables give its endpoint and the credentials.

    With ``auth`` ``required``, clients need a key (see ``storage.access.keys``) to submit, and to read as well unless
    ``public_read``. ``requests_per_min`` and ``submissions_per_day`` are the limits of keys without their own limits,
    and ``anonymous_requests_per_min`` is that of an address; 0 is no limit. With ``open`` no client is identified and
    nothing is limited, so it is for this machine alone (``exposure``). With ``request_references``, clients may submit
    references and create problems, at most ``problems_per_day`` versions with each key and ``problems_per_client``
    problems at a time; 0 is no limit. The judge executes these outside the sandbox.
    """

    model_config = SettingsConfigDict(env_prefix="KERNELJUDGE_", extra="ignore", frozen=True)

    data_dir: Path = Path(".kerneljudge")
    problems_dir: Path = Field(default_factory=usual_folder)
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
    webhook_networks: Annotated[list[IPvAnyNetwork], NoDecode] = []
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
    request_references: bool = False
    requests_per_min: int = Field(default=6000, ge=0)
    anonymous_requests_per_min: int = Field(default=600, ge=0)
    submissions_per_day: int = Field(default=100_000, ge=0)
    problems_per_day: int = Field(default=1000, ge=0)
    problems_per_client: int = Field(default=500, ge=0)

    @field_validator("devices", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [name.strip() for name in value.split(",") if name.strip()] or None
        return value

    @field_validator("measure_again_s", "webhook_networks", mode="before")
    @classmethod
    def _each(cls, value: object) -> object:
        return [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value

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
        # Made absolute once, so that a child process with another working directory uses the same folder.
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
        """Return the settings of this process's environment, with those in ``environment`` instead where given.

        Raises ``InvalidSettings``.
        """
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
        """The store that machines share, with this process's ``AWS_*`` variables; ``None`` where there is none."""
        if not self.artifact_store:
            return None
        return StoreAddress.parse(self.artifact_store, self.artifact_key.get_secret_value(), os.environ)

    @property
    def exposure(self) -> str | None:
        """The reason why the API must not be served with these settings; ``None`` where it may."""
        if self.auth == "required" or is_loopback(self.host):
            return None
        return (
            f"{self.host or 'every address'} can be reached from other machines, and everybody there could hand in "
            "code to be executed: ask for keys (KERNELJUDGE_AUTH=required; kerneljudge keys create makes the first "
            "one), or listen on 127.0.0.1"
        )

    @property
    def webhook_reach(self) -> list[IPv4Network | IPv6Network]:
        """The networks that webhooks may reach beside public addresses.

        Without keys they are all: the service is for this machine alone, whose users reach as much by themselves.
        """
        if self.auth == "open":
            return [IPv4Network("0.0.0.0/0"), IPv6Network("::/0")]
        return list(self.webhook_networks)

    @property
    def cache_dir(self) -> Path:
        """The folder of compiled extensions."""
        return self.data_dir / "cache"

    @property
    def scratch_dir(self) -> Path:
        """The folder of temporary files of evaluations."""
        return self.data_dir / "scratch"


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """Return a line for each variable of ``environment`` that is nearly a setting, and is none."""
    prefix = Settings.model_config["env_prefix"]
    known = {f"{prefix}{name.upper()}" for name in Settings.model_fields}
    found = []
    for name in sorted(environment):
        if name.startswith(prefix) and name not in known and name not in _OF_OTHERS:
            names = [each.removeprefix(prefix) for each in known]
            near = difflib.get_close_matches(name.removeprefix(prefix), names, n=1, cutoff=_LIKENESS)
            if near:
                found.append(f"{name} is no setting, and is not used; {prefix}{near[0]} is one")
    return found


def is_loopback(host: str) -> bool:
    """Whether a server on ``host`` can be reached from this machine alone.

    ``False`` for any name other than ``localhost``, because its address is not known.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
