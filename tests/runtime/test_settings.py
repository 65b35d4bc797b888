"""Settings: where they come from and what they default to."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from runtime.settings import InvalidSettings, Settings, misspelt

ROOT = Path(__file__).parents[2]


def test_everything_lives_below_the_data_folder_by_default(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert settings.database_url == f"sqlite:///{tmp_path}/kerneljudge.db"
    assert settings.broker_url == f"folder://{tmp_path}/queue"
    assert settings.cache_dir == tmp_path / "cache"
    assert settings.devices is None


def test_environment_variables_change_each_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "data_dir": (str(tmp_path), tmp_path),
        "problems_dir": ("/problems", Path("/problems")),
        "extra_problems_dir": ("/more", Path("/more")),
        "database_url": ("postgresql+psycopg://u@h/db", "postgresql+psycopg://u@h/db"),
        "broker_url": ("redis://h/0", "redis://h/0"),
        "host": ("0.0.0.0", "0.0.0.0"),
        "port": ("9", 9),
        "public_url": ("https://kernels.example.org/", "https://kernels.example.org"),
        "max_body_bytes": ("10", 10),
        "lease_s": ("1.5", 1.5),
        "reconcile_s": ("0.5", 0.5),
        "max_attempts": ("7", 7),
        "measure_again_s": ("1, 2.5", [1.0, 2.5]),
        "build_slots": ("6", 6),
        "build_cache_gib": ("2.5", 2.5),
        "devices": ("cpu, cuda:1", ["cpu", "cuda:1"]),
        "require_sandbox": ("true", True),
        "compare_compiled": ("true", True),
        "diagnose": ("off", "off"),
        "log_format": ("json", "json"),
        "log_level": ("DEBUG", "DEBUG"),
        "self_test": ("off", "off"),
        "foreign_memory_share": ("0.5", 0.5),
        "drain_s": ("30", 30.0),
        "limits": ("call_s=9", "call_s=9"),
        "verify_records": ("off", "off"),
        "max_batch_bytes": ("5", 5),
        "max_queued": ("7", 7),
        "send_webhooks": ("false", False),
        "webhook_networks": ("10.0.0.0/8, fd00::/8", [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]),
        "answer_age_s": ("2.5", 2.5),
        "artifact_store": ("s3://bucket/builds", "s3://bucket/builds"),
        "artifact_key": ("k" * 32, SecretStr("k" * 32)),
        "auth": ("required", "required"),
        "public_read": ("false", False),
        "request_references": ("true", True),
        "requests_per_min": ("8", 8),
        "anonymous_requests_per_min": ("0", 0),
        "submissions_per_day": ("9", 9),
        "problems_per_day": ("3", 3),
        "problems_per_client": ("4", 4),
    }
    assert set(values) == set(Settings.model_fields)
    for name, (text, _) in values.items():
        monkeypatch.setenv(f"KERNELJUDGE_{name.upper()}", text)
    settings = Settings()
    assert {name: getattr(settings, name) for name in values} == {name: value for name, (_, value) in values.items()}


def test_what_is_unsettled_can_be_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELJUDGE_MEASURE_AGAIN_S")
    assert Settings().measure_again_s == [10.0, 60.0, 300.0]
    monkeypatch.setenv("KERNELJUDGE_MEASURE_AGAIN_S", "")
    assert Settings().measure_again_s == []


def test_a_relative_folder_is_fixed_when_the_settings_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(data_dir=Path("here")).data_dir == tmp_path / "here"
    assert Settings().database_url == f"sqlite:///{tmp_path}/.kerneljudge/kerneljudge.db"


@pytest.mark.parametrize("url", ["kernels.example.org", "ftp://h", "https://h/kernels", "https://h?x", "https://"])
def test_a_public_address_is_one_that_a_browser_can_go_to(url: str) -> None:
    with pytest.raises(ValidationError, match="public_url must"):
        Settings(public_url=url)


@pytest.mark.parametrize("url", ["postgres://h/db", "postgresql://h/db"])
def test_a_postgresql_url_without_its_driver_says_how_to_write_it(url: str) -> None:
    with pytest.raises(ValidationError, match=r"postgresql\+psycopg://h/db"):
        Settings(database_url=url)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PORT", "abc", "KERNELJUDGE_PORT=abc: Input should be a valid integer"),
        ("LEASE_S", "0", "KERNELJUDGE_LEASE_S=0: Input should be greater than 0"),
        ("MEASURE_AGAIN_S", "10,soon", "KERNELJUDGE_MEASURE_AGAIN_S=soon: Input should be a valid number"),
        (
            "WEBHOOK_NETWORKS",
            "inside",
            "KERNELJUDGE_WEBHOOK_NETWORKS=inside: value is not a valid IPv4 or IPv6 network",
        ),
        ("DATABASE_URL", "postgres://h/db", "database_url must name its driver"),
        ("ARTIFACT_STORE", "/a/folder", "the artifact store must be s3://bucket"),
        ("ARTIFACT_STORE", "s3://bucket", "an artifact store needs a key of at least 32 characters"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_in_one_line(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSettings) as given:
        Settings.load({f"KERNELJUDGE_{name}": value})
    monkeypatch.setenv(f"KERNELJUDGE_{name}", value)
    with pytest.raises(InvalidSettings) as inherited:
        Settings.load()
    assert str(given.value) == str(inherited.value)
    assert reason in str(given.value)
    assert "\n" not in str(given.value)


def test_a_variable_that_is_nearly_a_setting_is_named() -> None:
    given = {"KERNELJUDGE_LEASES_S": "9", "KERNELJUDGE_MAX_QUEUE": "9", "KERNELJUDGE_API_SERVICE_HOST": "10.0.0.1"}
    assert misspelt(given) == [
        "KERNELJUDGE_LEASES_S is no setting, and is not used; KERNELJUDGE_LEASE_S is one",
        "KERNELJUDGE_MAX_QUEUE is no setting, and is not used; KERNELJUDGE_MAX_QUEUED is one",
    ]
    assert misspelt({f"KERNELJUDGE_{name.upper()}": "" for name in Settings.model_fields}) == []
    # Clients, the builder and compose have variables as well.
    used = re.findall(r"KERNELJUDGE_[A-Z_]*[A-Z]", (ROOT / "docker-compose.yml").read_text())
    assert misspelt(dict.fromkeys([*used, "KERNELJUDGE_API_KEY", "KERNELJUDGE_PARENT_FD"], "")) == []


def test_the_store_that_machines_share_is_reached_by_the_usual_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().artifact_store_address is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    settings = Settings(artifact_store="s3://bucket/builds", artifact_key=SecretStr("k" * 32))
    address = settings.artifact_store_address
    assert address is not None
    assert (address.bucket, address.prefix, address.key) == ("bucket", "builds", "k" * 32)
    assert address.variables["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9000"
    assert "k" * 32 not in repr(settings)
