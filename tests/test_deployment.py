"""Dockerfile, docker-compose.yml, Makefile and lock agree with the code and with each other. Builds no image."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.settings import Settings
from storage.queue.celery_app import QUEUES
from worker.per_device import ALL_DEVICES
from worker.process import Role

ROOT = Path(__file__).parent.parent
TARGETS = ("api", "build-worker", "gpu-worker", "cpu-worker")
SECRETS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD")


@dataclass
class Stage:
    """One stage of the Dockerfile: what it builds on, and its instructions with what follows them."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def of(self, instruction: str) -> list[str]:
        return [text for name, text in self.instructions if name == instruction]


def dockerfile() -> tuple[dict[str, str], dict[str, Stage]]:
    """The arguments before the first stage, and the stages by name."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    current: Stage | None = None
    for line in filter(None, (line.strip() for line in re.sub(r"\\\n", " ", text).splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = current = Stage(name, base)
        elif current is None:
            assert instruction == "ARG", line
            name, _, value = rest.partition("=")
            arguments[name] = value
        else:
            current.instructions.append((instruction, " ".join(rest.split())))
    return arguments, stages


def lineage(stages: dict[str, Stage], name: str) -> Iterator[Stage]:
    """A stage and those that it builds on, the nearest first."""
    while name in stages:
        yield stages[name]
        name = stages[name].base


def nearest(stages: dict[str, Stage], name: str, instruction: str) -> str:
    return next(stage.of(instruction)[-1] for stage in lineage(stages, name) if stage.of(instruction))


def image_environment(stages: dict[str, Stage], name: str) -> dict[str, str]:
    """The variables of an image, as its stages set them."""
    variables: dict[str, str] = {}
    for stage in reversed(list(lineage(stages, name))):
        for text in stage.of("ENV"):
            variables |= dict(word.split("=", 1) for word in shlex.split(text))
    return variables


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def service_commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of ours in the two files, with where it stands."""
    _, stages = dockerfile()
    for stage in stages.values():
        for text in (*stage.of("CMD"), *(text.partition("CMD ")[2] for text in stage.of("HEALTHCHECK"))):
            yield f"Dockerfile: {stage.name}", json.loads(text)
    for name, service in compose()["services"].items():
        if "build" in service:
            yield f"docker-compose.yml: {name}", service.get("command", ["python", "-m", "api"])


COMMANDS = list(service_commands())


# --- Dockerfile ------------------------------------------------------------------------------------------------------


def test_every_image_has_a_stage_and_every_stage_a_base() -> None:
    arguments, stages = dockerfile()
    assert set(TARGETS) <= set(stages)
    for stage in stages.values():
        assert stage.base in stages or stage.base == "scratch" or stage.base.strip("${}") in arguments


def test_everything_that_is_copied_exists_and_reaches_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    _, stages = dockerfile()
    for stage in stages.values():
        for text in stage.of("COPY"):
            *sources, _target = text.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in stages
                continue
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source in allowed, f"{source} is copied, but .dockerignore keeps it out"


def test_every_image_that_compiles_is_prepared_before_it_gives_up_its_rights() -> None:
    _, stages = dockerfile()
    for name, command in (
        ("build-worker", "prepare"),
        ("gpu-worker", "prepare"),
        ("cpu-worker", "prepare instantiated precompiled"),
    ):
        stage = next(stage for stage in lineage(stages, name) if stage.of("USER"))
        done = [(instruction, text) for instruction, text in stage.instructions if "torch" not in text]
        prepared = done.index(("RUN", f"python -m kerneljudge {command} || true"))
        assert done.index(("COPY", "--from=sources / ./")) < prepared < done.index(("USER", "10001"))


def test_every_package_of_ours_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["importlinter"]["root_packages"])
    copied = {text.split()[0] for text in dockerfile()[1]["sources"].of("COPY")}
    assert packages <= copied


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_an_ordinary_user_with_a_health_check(target: str) -> None:
    _, stages = dockerfile()
    # By its number: Kubernetes cannot tell whether a name is root's.
    # The kernel counts some things by user: a candidate must not use up those of the API.
    user = "10002" if target == "api" else "10001"
    assert nearest(stages, target, "USER") == user
    assert any(f"useradd --uid {user}" in text for stage in lineage(stages, target) for text in stage.of("RUN"))
    assert "CMD" in nearest(stages, target, "HEALTHCHECK")


def test_no_image_keeps_a_secret() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"(?i)(password|secret|token)\s*=", text)


def requirements() -> list[str]:
    """The dependencies of the service."""
    return [line for line in (ROOT / "requirements.in").read_text().splitlines() if not line.startswith("#")]


def printed_requirements(*arguments: str) -> list[str]:
    """What an image would install."""
    script = [sys.executable, str(ROOT / "docker" / "requirements.py"), *arguments]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "api"])
def test_a_workers_image_can_speak_with_an_artifact_store(target: str) -> None:
    _, stages = dockerfile()
    install = nearest_run(stages, target, "docker/requirements.py")
    arguments = shlex.split(install.partition("docker/requirements.py")[2].partition(">")[0])
    assert any(line.startswith("obstore") for line in printed_requirements(*arguments))
    assert not any(line.startswith("obstore") for line in printed_requirements())


def nearest_run(stages: dict[str, Stage], name: str, containing: str) -> str:
    return next(text for stage in lineage(stages, name) for text in stage.of("RUN") if containing in text)


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    said = subprocess.run(
        [Path(sys.executable).parent / "hadolint", "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True
    )
    assert (said.returncode, said.stdout) == (0, ""), said.stderr


def test_the_api_image_is_free_of_torch() -> None:
    _, stages = dockerfile()
    install = next(text for text in stages["api"].of("RUN") if "docker/requirements.py" in text)
    without = shlex.split(install.partition("docker/requirements.py")[2].partition(">")[0])
    printed = printed_requirements(*without)
    everything = requirements()
    assert "torch" in without
    assert {re.split(r"[^\w-]", requirement)[0] for requirement in set(everything) - set(printed)} == set(without)


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "api"])
def test_a_workers_image_has_what_the_sandbox_filters_system_calls_with(target: str) -> None:
    _, stages = dockerfile()
    installed = [text for stage in lineage(stages, target) for text in stage.of("RUN") if "apt-get install" in text]
    assert any("libseccomp2" in shlex.split(text) for text in installed)


def test_a_complete_sandbox_is_required_in_containers_unless_told_otherwise() -> None:
    text = compose()["x-settings"]["KERNELJUDGE_REQUIRE_SANDBOX"]
    assert filled(text) == "true"
    assert filled(text, KERNELJUDGE_REQUIRE_SANDBOX="false") == "false"


def test_a_container_that_listens_on_every_address_asks_for_keys() -> None:
    assert compose()["x-settings"]["KERNELJUDGE_AUTH"] == "required"
    _, stages = dockerfile()
    image = dict(re.findall(r"\b(KERNELJUDGE_[A-Z_]+)=(\S+)", nearest(stages, "api", "ENV")))
    environment = {"KERNELJUDGE_HOST": image["KERNELJUDGE_HOST"]}
    assert Settings.load(environment).exposure is not None
    assert Settings.load({**environment, "KERNELJUDGE_AUTH": "required"}).exposure is None


def test_keys_are_made_in_the_api_image(tmp_path: Path) -> None:
    _, stages = dockerfile()
    install = next(text for text in stages["api"].of("RUN") if "docker/requirements.py" in text)
    without = shlex.split(install.partition("docker/requirements.py")[2].partition(">")[0])
    # What the image does not have cannot be imported here either.
    code = f"import sys; sys.modules.update(dict.fromkeys({without!r})); from kerneljudge.cli.app import main; main()"
    environment = {**os.environ, "KERNELJUDGE_DATA_DIR": str(tmp_path), "KERNELJUDGE_AUTH": "required"}
    argv = [sys.executable, "-c", code, "keys", "create", "root", "--scope", "admin"]
    result = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.stdout.startswith("kj_"), result.stderr


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "command"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_every_command_names_something_that_exists(where: str, command: list[str]) -> None:
    assert command[0] == "python", where
    if command[1] == "-m":
        spec = importlib.util.find_spec(command[2])
        assert spec is not None
        if spec.submodule_search_locations is not None:
            assert importlib.util.find_spec(f"{command[2]}.__main__") is not None, "a package alone does nothing"
    elif command[1] == "-c":
        ast.parse(command[2])
    else:
        assert (ROOT / command[1]).is_file()


@pytest.mark.parametrize(("where", "command"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_every_worker_has_a_role(where: str, command: list[str]) -> None:
    if command[1:3] != ["-m", "worker"]:
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--queue", choices=QUEUES, required=True)
    parser.add_argument("--device")
    options = parser.parse_args(command[3:])
    Role(queue=options.queue, device=None if options.device == ALL_DEVICES else options.device)


def test_every_queue_has_a_worker() -> None:
    taken = {command[command.index("--queue") + 1] for where, command in COMMANDS if "--queue" in command}
    assert taken == set(QUEUES)


# --- docker-compose.yml ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["docker-compose.yml", "docker-compose.share.yml"])
def test_compose_files_are_what_the_compose_specification_allows(name: str) -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", ROOT / name]
    said = subprocess.run(checker, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout


PROFILES = {
    "cpu": {"cpu-build-worker", "cpu-worker"},
    "gpu": {"build-worker", "gpu-worker"},
    "monitoring": {"prometheus", "grafana"},
}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_all_that_has_to_be_named(profile: str) -> None:
    services = compose()["services"]
    started = {name for name, service in services.items() if profile in service.get("profiles", [profile])}
    assert started == {"postgres", "redis", "migrate", "api", "webhook-sender"} | PROFILES[profile]
    for name in started:
        assert set(services[name].get("depends_on", {})) <= started


def test_whoever_uses_the_database_is_stopped_for_an_upgrade_and_a_restore() -> None:
    using = {
        name
        for name, service in compose()["services"].items()
        if "KERNELJUDGE_DATABASE_URL" in service.get("environment", {}) and "gpu" in service.get("profiles", ["gpu"])
    }
    stops = re.findall(r"docker compose --profile gpu stop (.*)", (ROOT / "docs" / "deploying.md").read_text())
    assert len(stops) == 2
    assert all(set(each.split()) == using - {"migrate"} for each in stops)


def test_an_example_chooses_no_profile_for_a_machine_that_it_does_not_know() -> None:
    assert re.search(r"^COMPOSE_PROFILES=$", (ROOT / ".env.example").read_text(), re.MULTILINE)


def test_no_container_fills_the_disk_with_its_log_or_takes_all_memory_unasked() -> None:
    for name, service in compose()["services"].items():
        assert int(service["logging"]["options"]["max-file"]) <= 10, name
        assert service["logging"]["options"]["max-size"] == "20m", name
        assert "mem_limit" in service, name
    for path in (ROOT / "deploy" / "kubernetes" / "base").glob("*-worker.yaml"):
        assert path.read_text().count("medium: Memory") == path.read_text().count("sizeLimit: 16Gi"), path


def test_every_container_has_a_root_that_nobody_writes_to_and_no_way_to_more_rights() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"], name
        assert "/tmp" in service["tmpfs"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not service.get("privileged"), name
        assert "cap_add" not in service, name
        # Those of the two servers begin as root, and give it up by themselves.
        assert service.get("cap_drop") == (None if name in ("postgres", "redis") else ["ALL"]), name


def test_where_a_worker_writes_is_a_volume_or_in_memory() -> None:
    for name, service in compose()["services"].items():
        if name.endswith("worker"):
            scratch = next(each for each in service["tmpfs"] if each.startswith("/data/scratch:"))
            options = scratch.partition(":")[2].split(",")
            assert {"uid=10001", "gid=10001", "exec", "size=${KERNELJUDGE_SCRATCH_SIZE:-16g}"} <= set(options), name


def test_the_server_that_makes_a_database_does_not_count_as_ready() -> None:
    """It listens on a socket alone. A check that asks there lets the migration begin, and the server ends."""
    checks = [compose()["services"]["postgres"]["healthcheck"]["test"]]
    text = (ROOT / "deploy" / "kubernetes" / "servers" / "postgres.yaml").read_text()
    checks += [json.loads(each) for each in re.findall(r'command: (\["pg_isready".*\])', text)]
    assert len(checks) == 3
    assert all("--host=127.0.0.1" in check for check in checks)


def test_redis_keeps_what_it_was_told() -> None:
    service = compose()["services"]["redis"]
    command = service["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert service["volumes"] == ["broker:/data"]


def test_every_service_is_built_from_a_stage_or_is_a_pinned_image() -> None:
    for name, service in compose()["services"].items():
        if "build" in service:
            assert service["build"]["target"] in TARGETS, name
        else:
            assert re.fullmatch(r"[\w/]+:(\d+-\w+|v?\d+\.\d+\.\d+)", service["image"]), name


def test_every_dependency_is_a_service_that_can_meet_it() -> None:
    services = compose()["services"]
    for service in services.values():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services
            if how["condition"] == "service_healthy":
                assert "test" in services[needed]["healthcheck"]
            else:
                assert how["condition"] == "service_completed_successfully"
                assert "restart" not in services[needed]


def test_only_the_migration_may_end() -> None:
    for name, service in compose()["services"].items():
        assert ("restart" in service) == (name != "migrate")


def test_every_setting_is_one_that_the_code_knows() -> None:
    known = {f"KERNELJUDGE_{name.upper()}" for name in Settings.model_fields}
    used = set(re.findall(r"\b(KERNELJUDGE_[A-Z_]+)=", (ROOT / "Dockerfile").read_text()))
    for service in compose()["services"].values():
        used |= {name for name in service.get("environment", {}) if name.startswith("KERNELJUDGE_")}
    assert used
    assert used <= known


def test_every_setting_reaches_the_containers() -> None:
    _, stages = dockerfile()
    by_image = {name: set(re.findall(r"\b(KERNELJUDGE_[A-Z_]+)=", nearest(stages, name, "ENV"))) for name in TARGETS}
    by_image["api"] |= set(re.findall(r"\b(KERNELJUDGE_[A-Z_]+)=", nearest(stages, "slim", "ENV")))
    api_alone = {"KERNELJUDGE_HOST", "KERNELJUDGE_PORT"}
    workers_alone = {"KERNELJUDGE_ARTIFACT_STORE", "KERNELJUDGE_ARTIFACT_KEY", "KERNELJUDGE_SEND_WEBHOOKS"}
    known = {f"KERNELJUDGE_{name.upper()}" for name in Settings.model_fields}
    for name, service in compose()["services"].items():
        if "build" in service:
            given = by_image[service["build"]["target"]] | set(service["environment"])
            ours = {variable for variable in given if variable.startswith("KERNELJUDGE_")}
            # Only where there may be several, devices are chosen.
            expected = known - (workers_alone if name in ("api", "webhook-sender", "migrate") else api_alone)
            assert ours == expected - (set() if name == "gpu-worker" else {"KERNELJUDGE_DEVICES"}), name


def test_a_setting_of_an_example_is_one_that_compose_reads() -> None:
    text = (ROOT / "docker-compose.yml").read_text() + (ROOT / "docker-compose.share.yml").read_text()
    names = set(re.findall(r"^#?([A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    for name in names - {"COMPOSE_PROFILES"}:
        assert re.search(rf"\$\{{{name}:|^ +{name}:$", text, re.MULTILINE), name


def filled(text: str, **given: str) -> str:
    """``text`` as compose fills it in: the innermost variables first, with their defaults where nothing is given."""
    pattern = re.compile(r"\$\{(\w+)(?::([-?])([^${}]*))?\}")

    def value(match: re.Match[str]) -> str:
        name, kind, default = match.groups()
        if name in given:
            return given[name]
        assert kind == "-", f"{name} is asked for"
        return str(default)

    while pattern.search(text):
        text = pattern.sub(value, text)
    return text


def test_a_machine_with_workers_only_is_told_where_the_servers_are() -> None:
    given = {
        "KERNELJUDGE_DATABASE_URL": "postgresql+psycopg://kerneljudge:abc@10.0.0.1:5432/kerneljudge",
        "KERNELJUDGE_BROKER_URL": "redis://:abc@10.0.0.1:6379/0",
    }
    for name, address in given.items():
        text = compose()["x-settings"][name]
        assert filled(text, POSTGRES_PASSWORD="abc", REDIS_PASSWORD="abc", **given) == address


def test_the_servers_are_shared_only_by_the_file_for_it_and_on_a_given_address() -> None:
    shared: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.share.yml").read_text())
    assert set(shared["services"]) == {"postgres", "redis"}
    for name, port in (("postgres", 5432), ("redis", 6379)):
        assert "ports" not in compose()["services"][name]
        assert set(shared["services"][name]) == {"ports"}
        (mapping,) = shared["services"][name]["ports"]
        assert filled(mapping, KERNELJUDGE_SHARE="10.0.0.1") == f"10.0.0.1:{port}:{port}"


def test_without_a_gpu_builds_are_made_where_they_are_used() -> None:
    services = compose()["services"]
    builder, evaluator = services["cpu-build-worker"], services["cpu-worker"]
    for shared in ("build", "image", "volumes", "profiles"):
        assert builder[shared] == evaluator[shared]
    assert builder["command"][-1] == "build"


def test_the_addresses_of_both_servers_are_understood(tmp_path: Path) -> None:
    given = compose()["x-settings"]
    secrets = dict.fromkeys(SECRETS, "abc")
    settings = Settings(
        data_dir=tmp_path,
        database_url=filled(given["KERNELJUDGE_DATABASE_URL"], **secrets),
        broker_url=filled(given["KERNELJUDGE_BROKER_URL"], **secrets),
    )
    assert settings.database_url == "postgresql+psycopg://kerneljudge:abc@postgres:5432/kerneljudge"
    assert settings.broker_url == "redis://:abc@redis:6379/0"
    assert {"postgres", "redis"} <= set(compose()["services"])


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_comes_from_the_environment_and_is_asked_for(secret: str) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    uses = re.findall(rf"\$\{{?{secret}[^}}\n]*\}}?", text)
    assert uses
    assert all(use.startswith(f"${{{secret}:?") for use in uses)
    assert re.search(rf"^{secret}=$", (ROOT / ".env.example").read_text(), re.MULTILINE), "an example is no default"


def test_the_api_is_published_on_this_machine_only_unless_told_otherwise() -> None:
    assert compose()["services"]["api"]["ports"] == ["${KERNELJUDGE_PUBLISH:-127.0.0.1:8000}:8000"]


def test_every_volume_is_declared() -> None:
    loaded = compose()
    used = {
        volume.partition(":")[0] for service in loaded["services"].values() for volume in service.get("volumes", [])
    }
    folders = {name for name in used if name.startswith("./")}
    assert used - folders == set(loaded["volumes"])
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_workers_share_what_the_builder_has_compiled() -> None:
    for name, service in compose()["services"].items():
        if name.endswith("worker"):
            assert "build-cache:/data/cache" in service["volumes"]


# --- Makefile and lock -----------------------------------------------------------------------------------------------


def make(*arguments: str) -> str:
    """What ``make`` prints, even where these tests were themselves started by ``make``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    for given in ("VENV", "ARGS"):  # make hands its variables on
        environment.pop(given, None)
    argv = ["make", *arguments]
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_make_help_lists_every_target_that_is_for_people() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:]
    listed = make("help")
    for target in phony:
        assert re.search(rf"^  {target} ", listed, re.MULTILINE), target


def test_without_a_virtual_environment_nothing_is_installed() -> None:
    printed = make("--dry-run", "test-gpu", "VENV=", "PYTHON=some-python")
    assert printed.strip() == "some-python -m pytest -m gpu tests/evaluator"


def test_the_lock_pins_everything_that_the_project_asks_for() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    pinned = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "kerneljudge" / "pyproject.toml").read_text())["project"]
    wanted = [*requirements(), *project["optional-dependencies"]["dev"], *client["dependencies"]]
    # Python has it from 3.11 on, and the lock is of a newer one.
    for requirement in (each for each in wanted if not each.startswith("tomli")):
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        assert re.sub(r"[-_.]+", "-", name).lower() in pinned, name
    assert any(re.fullmatch(r"torch==[\d.]+", line) for line in lines), "no build of torch in particular"
    assert not [line for line in lines if line.startswith(("triton", "nvidia")) and "nvidia-ml-py" not in line]
