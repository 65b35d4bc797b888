"""deploy/kubernetes: valid by Kubernetes' own schemas, and in step with images, settings and routes. No cluster."""

from __future__ import annotations

import importlib.util
import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from api.app import create_app
from runtime.public_transport import NOT_PUBLIC, PUBLIC_IPV6
from runtime.settings import Settings
from tests.test_deployment import ROOT, compose, dockerfile, nearest

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("base", "servers")
WORKERS = ("build-worker", "gpu-worker")
SERVERS = {"postgres": 5432, "redis": 6379}


def kustomization(overlay: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / overlay / "kustomization.yaml").read_text())
    return loaded


def resources() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object of both folders, with its file."""
    for overlay in OVERLAYS:
        for name in kustomization(overlay)["resources"]:
            path = FOLDER / overlay / name
            if path.is_file():
                for document in yaml.safe_load_all(path.read_text()):
                    yield path, document


def of_kind(*kinds: str) -> dict[str, dict[str, Any]]:
    return {document["metadata"]["name"]: document for _, document in resources() if document["kind"] in kinds}


def pods() -> dict[str, dict[str, Any]]:
    """The template of every pod, by the name of what makes it."""
    return {
        name: document["spec"]["template"] for name, document in of_kind("Deployment", "StatefulSet", "Job").items()
    }


def container(pod: Mapping[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """What a label selector says of ``labels``."""
    wanted = selector.get("matchLabels", {})
    among = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in among)
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        labels.get(each["key"]) in each["values"] for each in among
    )


OBJECTS = [
    pytest.param(each, id=f"{path.name}: {each['kind']} {each['metadata']['name']}") for path, each in resources()
]


@pytest.mark.parametrize("document", OBJECTS)
def test_every_object_is_what_kubernetes_takes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_every_file_is_part_of_what_is_applied() -> None:
    for overlay in OVERLAYS:
        listed = {name for name in kustomization(overlay)["resources"] if not name.startswith("..")}
        assert listed == {path.name for path in (FOLDER / overlay).glob("*.yaml")} - {"kustomization.yaml"}
    assert "../base" in kustomization("servers")["resources"]


def test_images_are_those_that_are_built_here_or_those_that_compose_has() -> None:
    services = compose()["services"].values()
    built = {service["image"] for service in services if "build" in service}
    other = {service["image"] for service in services if "build" not in service}
    used = {container(pod)["image"] for pod in pods().values()}
    assert used <= built | other
    assert {image["name"] for image in kustomization("base")["images"]} == used & built


def test_what_selects_pods_selects_its_own() -> None:
    for document in of_kind("Deployment", "StatefulSet").values():
        assert selects(document["spec"]["selector"], document["spec"]["template"]["metadata"]["labels"])
    for document in of_kind("Service").values():
        chosen = [
            pod
            for pod in pods().values()
            if selects({"matchLabels": document["spec"]["selector"]}, pod["metadata"]["labels"])
        ]
        (pod,) = chosen
        ports = {port["name"]: port["containerPort"] for port in container(pod)["ports"]}
        for port in document["spec"]["ports"]:
            assert port.get("targetPort", port["port"]) in {*ports, *ports.values()}


def test_nothing_runs_as_root_writes_to_its_root_or_gets_more_rights() -> None:
    for name, pod in pods().items():
        uid = int(nearest(dockerfile()[1], name if name in WORKERS else "api", "USER"))
        ours, confined = pod["spec"]["securityContext"], container(pod)["securityContext"]
        assert ours["runAsNonRoot"], name
        assert ours["runAsUser"] == (999 if name in SERVERS else uid), name
        assert confined["readOnlyRootFilesystem"], name
        assert confined["allowPrivilegeEscalation"] is False, name
        assert confined["capabilities"] == {"drop": ["ALL"]}, name
        assert not confined.get("privileged"), name
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        assert "memory" in container(pod)["resources"]["limits"], name


def test_only_workers_have_what_the_sandbox_needs() -> None:
    for name, pod in pods().items():
        spec = pod["spec"]
        profiles = (spec["securityContext"]["seccompProfile"]["type"], spec.get("hostUsers", True))
        proc = container(pod)["securityContext"].get("procMount", "Default")
        expected = (("Unconfined", False), "Unmasked") if name in WORKERS else (("RuntimeDefault", True), "Default")
        assert (profiles, proc) == expected, name


def test_what_runs_candidates_has_a_user_of_its_own() -> None:
    """The kernel counts some things by user, such as watches of epoll sets, and a candidate may use these up."""
    users = {name: pod["spec"]["securityContext"]["runAsUser"] for name, pod in pods().items()}
    assert {users[name] for name in WORKERS} == {10001}
    assert {users[name] for name in ("api", "webhook-sender", "migrate")} == {10002}


def test_workers_write_where_the_image_has_its_folders() -> None:
    for name in WORKERS:
        mounts = {mount["mountPath"]: mount["name"] for mount in container(pods()[name])["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pods()[name]["spec"]["volumes"]}
        assert set(mounts) == {"/tmp", "/data/scratch", "/data/cache"}
        assert volumes[mounts["/data/scratch"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}


def test_a_pod_that_evaluates_has_one_gpu_to_itself() -> None:
    evaluating = container(pods()["gpu-worker"])
    assert evaluating["command"][-2:] == ["--device", "cuda:0"]
    for what in ("requests", "limits"):
        assert evaluating["resources"][what]["nvidia.com/gpu"] == 1
    assert of_kind("Deployment")["gpu-worker"]["spec"]["strategy"] == {"type": "Recreate"}


def test_every_command_is_one_that_compose_starts() -> None:
    started = [service.get("command", ["python", "-m", "api"]) for service in compose()["services"].values()]
    for name, pod in pods().items():
        command = container(pod).get("command")
        if name not in SERVERS:
            assert command is not None
            assert [word.replace("cuda:0", "all") for word in command] in started
            assert importlib.util.find_spec(command[2]) is not None


def test_probes_ask_what_is_there(tmp_path: Path) -> None:
    routes = create_app(Settings(data_dir=tmp_path)).openapi()["paths"]
    for name, pod in pods().items():
        probes = [probe for key, probe in container(pod).items() if key.endswith("Probe")]
        assert probes or name == "migrate", name
        for probe in probes:
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] in routes
            elif name not in SERVERS:
                assert (ROOT / probe["exec"]["command"][1]).is_file()


def test_settings_are_known_and_secrets_come_by_reference() -> None:
    known = {f"KERNELJUDGE_{name.upper()}" for name in Settings.model_fields}
    known |= {name for name in compose()["x-settings"] if name.startswith("OTEL_")}
    given = of_kind("ConfigMap")["kerneljudge"]["data"]
    assert set(given) <= known
    values = {name.removeprefix("KERNELJUDGE_").lower(): value for name, value in given.items()}
    Settings.model_validate(values)
    assert not of_kind("Secret")
    for name, pod in pods().items():
        sources = container(pod).get("envFrom", [])
        secrets = {source["secretRef"]["name"] for source in sources if "secretRef" in source}
        workers_alone = {"kerneljudge-artifacts"} if name in WORKERS else set()
        assert secrets == (set() if name in SERVERS else {"kerneljudge"} | workers_alone), name
        for variable in container(pod).get("env", []):
            assert "PASSWORD" not in variable["name"] or "valueFrom" in variable, name


def reached_by(labels: Mapping[str, str]) -> set[tuple[str, int]]:
    """The pods, by name, addresses, and ports that a pod with ``labels`` may open a connection to."""
    reached = set()
    for policy in of_kind("NetworkPolicy").values():
        if selects(policy["spec"]["podSelector"], labels):
            for rule in policy["spec"].get("egress", []):
                for peer in rule["to"]:
                    if "ipBlock" in peer:
                        reached |= {(peer["ipBlock"]["cidr"], port["port"]) for port in rule["ports"]}
                        continue
                    named = peer["podSelector"]["matchLabels"]
                    name = named.get("app.kubernetes.io/name") or named["k8s-app"]
                    reached |= {(name, port["port"]) for port in rule["ports"]}
    return reached


def test_ours_reach_database_broker_store_collector_and_names_and_nothing_else() -> None:
    servers = {*SERVERS.items(), ("kube-dns", 53)}
    for name, pod in pods().items():
        expected = {("kube-dns", 53)} if name in SERVERS else set(servers)
        expected |= {("artifact-store", 9000)} if name in WORKERS else set()
        expected |= {("collector", 4318)} if name in ("api", *WORKERS) else set()
        if name == "webhook-sender":
            expected |= {(everywhere, port) for everywhere in ("0.0.0.0/0", "2000::/3") for port in (80, 443)}
        assert reached_by(pod["metadata"]["labels"]) == expected, name


def test_nobody_reaches_a_worker_and_only_ours_the_servers() -> None:
    policies = of_kind("NetworkPolicy")
    assert policies["nothing-by-default"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, pod in pods().items():
        letting_in = [
            policy["spec"]
            for policy in policies.values()
            if "ingress" in policy["spec"] and selects(policy["spec"]["podSelector"], pod["metadata"]["labels"])
        ]
        assert len(letting_in) == (1 if name in ("api", *SERVERS) else 0), name
        if name in SERVERS:
            (rule,) = letting_in[0]["ingress"]
            (peer,) = rule["from"]
            admitted = {
                other for other, its in pods().items() if selects(peer["podSelector"], its["metadata"]["labels"])
            }
            assert admitted == set(pods()) - set(SERVERS)
            assert [port["port"] for port in rule["ports"]] == [SERVERS[name]]


def test_only_the_webhook_sender_reaches_out_and_not_into_private_networks() -> None:
    assert of_kind("ConfigMap")["kerneljudge"]["data"]["KERNELJUDGE_SEND_WEBHOOKS"] == "false"
    blocks = [
        peer["ipBlock"]
        for policy in of_kind("NetworkPolicy").values()
        for rule in policy["spec"].get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    # 6to4 addresses hold one of IPv4, which no policy can look at.
    forbidden = {*NOT_PUBLIC, ipaddress.ip_network("2002::/16")}
    for block in blocks:
        whole = ipaddress.ip_network(block["cidr"])
        assert whole in (ipaddress.ip_network("0.0.0.0/0"), PUBLIC_IPV6)
        expected = {network for network in forbidden if network.version == whole.version}
        assert set(map(ipaddress.ip_network, block["except"])) == expected
