"""deploy/kubernetes: its objects are Kubernetes', safe, and fit our programs and each other."""

import argparse
import base64
import contextlib
import json
import os
import re
import ssl
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cryptography import x509

from api.base.version import VERSION
from api.http.settings import ServiceSettings
from api.http.tokens.file import read_token_file
from api.remote.kubernetes import cli
from api.remote.kubernetes.cli import LEASE
from collector.agent.settings import load_settings
from collector.contract.layers import Layer, combine
from collector.sources import discover
from tests.doubles.kubernetes_double import RIGHTS, WRITER
from tests.stands.environment import clean_environment
from tests.stands.kustomize import Json, build, containers_of, read_all

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
SCHEMA = json.loads((ROOT / "tests/fixtures/kubernetes/schema.json").read_text("utf-8"))
COMPONENTS = tuple(sorted(path.name for path in (FOLDER / "components").iterdir()))
ALL = tuple(f"components/{name}" for name in COMPONENTS)
RIGHTS_OF_ROOT = {"agent": ["SYS_PTRACE", "DAC_READ_SEARCH"]}
"""Capabilities that a container may have, with components/agent-as-root."""


@cache
def objects(components: tuple[str, ...] = ()) -> tuple[Json, ...]:
    return tuple(build(FOLDER, components))


def find(kind: str, name: str, components: tuple[str, ...] = ()) -> Json:
    (found,) = (
        each
        for each in objects(components)
        if each["kind"] == kind and each["metadata"]["name"] == name
    )
    return found


def pods(components: tuple[str, ...] = ()) -> Iterator[tuple[str, Json]]:
    for each in objects(components):
        if "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


@cache
def secrets() -> tuple[Json, ...]:
    """What make-secrets.sh prints."""
    done = subprocess.run(
        [FOLDER / "make-secrets.sh"], capture_output=True, check=True, env=clean_environment()
    )
    return tuple(yaml.safe_load_all(done.stdout))


def secret(name: str) -> dict[str, bytes]:
    (found,) = (
        each for each in secrets() if each["kind"] == "Secret" and each["metadata"]["name"] == name
    )
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


@cache
def validator(kind: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator({**SCHEMA["kinds"][kind], "$defs": SCHEMA["$defs"]})


# --- the format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("components", [(), ALL], ids=str)
def test_every_object_is_one_of_kubernetes(components: tuple[str, ...]) -> None:
    for each in objects(components):
        validator(each["kind"]).validate(each)
        for needed in ("apiVersion", "kind", "metadata"):
            assert needed in each
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", each["metadata"]["name"])


def test_the_schema_can_say_no() -> None:
    wrong = json.loads(json.dumps(find("Deployment", "fabricscope")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="readynessProbe"):
        validator("Deployment").validate(wrong)


def test_every_file_is_used() -> None:
    used = {"kustomization.yaml", *read_all(FOLDER / "kustomization.yaml")[0]["resources"]}
    for component in ALL:
        (settings,) = read_all(FOLDER / component / "kustomization.yaml")
        assert settings["apiVersion"] == "kustomize.config.k8s.io/v1alpha1"
        names = ("kustomization.yaml", *settings.get("resources", []))
        used |= {f"{component}/{name}" for name in names}
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.yaml")}
    assert there == used
    # Those who choose components find them named where they choose.
    said = (FOLDER / "kustomization.yaml").read_text("utf-8")
    assert all(f"#   - components/{name}" in said for name in COMPONENTS)


def test_nothing_is_there_twice() -> None:
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in objects(ALL)
    ]
    assert len(names) == len(set(names))


# --- safety -------------------------------------------------------------------------------------


@pytest.mark.parametrize("components", [(), *((one,) for one in ALL), ALL], ids=str)
def test_pods_have_no_more_rights_than_they_need(components: tuple[str, ...]) -> None:
    is_root_allowed = "components/agent-as-root" in components
    for name, pod in pods(components):
        is_agent = name == "fabricscope-agent"
        context = pod["securityContext"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert (context["runAsUser"] == 0) == (is_agent and is_root_allowed)
        assert context["runAsNonRoot"] is (not (is_agent and is_root_allowed))
        assert pod.get("hostNetwork", False) is is_agent
        assert pod.get("hostPID", False) is (is_agent and is_root_allowed)
        assert "hostIPC" not in pod
        talks = name in {"fabricscope-controller", "fabricscope-scheduler"}
        assert pod["automountServiceAccountToken"] is talks
        for volume in pod["volumes"]:
            assert "hostPath" not in volume or (is_agent and is_root_allowed)
        for container in pod["containers"]:
            inside = container["securityContext"]
            added = inside["capabilities"].pop("add", [])
            expected = RIGHTS_OF_ROOT.get(container["name"], []) if is_root_allowed else []
            assert added == expected
            inside["capabilities"].update({"add": added} if added else {})
            assert inside["capabilities"]["drop"] == ["ALL"]
            assert inside["allowPrivilegeEscalation"] is False
            assert inside["readOnlyRootFilesystem"] is True
            assert "privileged" not in inside


@pytest.mark.parametrize("components", [(), ALL], ids=str)
def test_containers_are_bounded_probed_and_pinned(components: tuple[str, ...]) -> None:
    for name, pod in pods(components):
        # A service named fabricscope would set FABRICSCOPE_PORT, which is no setting of ours.
        assert pod["enableServiceLinks"] is False, name
        for container in pod["containers"]:
            assert container["resources"]["limits"]["memory"]
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
            image, _, tag = container["image"].rpartition(":")
            if image.startswith("fabricscope"):
                assert tag == VERSION
            else:
                assert re.fullmatch(r"v\d+\.\d+\.\d+", tag)


def test_the_images_are_those_that_the_dockerfiles_make() -> None:
    made = " ".join(
        path.read_text("utf-8") for path in (ROOT / "deploy/docker").glob("Dockerfile.*")
    )
    for _, pod in pods():
        for container in pod["containers"]:
            assert f"-t {container['image']} " in made
            assert pod["securityContext"]["runAsUser"] == 10001
    assert "USER 10001:10001" in made
    assert "/opt/fabricscope/healthy.py" in made


def test_namespaces_enforce_what_their_pods_can_bear() -> None:
    levels = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in objects()
        if each["kind"] == "Namespace"
    }
    assert levels == {"fabricscope": "restricted", "fabricscope-agents": "privileged"}
    where = {
        each["metadata"]["namespace"] for each in objects(ALL) if "template" in each.get("spec", {})
    }
    assert where == set(levels)


def test_the_controller_may_do_what_it_does_and_nothing_else() -> None:
    """The double of Kubernetes refuses all that is not granted here."""
    cluster = find("ClusterRole", "fabricscope-controller")["rules"]
    own = find("Role", "fabricscope-controller")["rules"]
    granted = {
        (verb, resource)
        for rule in (*cluster, *own)
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert granted == RIGHTS[WRITER]
    assert own[0]["resourceNames"] == [LEASE]
    for kind, name in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        binding = find(kind, "fabricscope-controller")
        assert binding["roleRef"]["kind"] == name
        account = {"kind": "ServiceAccount", "name": "fabricscope-controller"}
        assert binding["subjects"] == [{**account, "namespace": "fabricscope"}]


# --- they fit our programs ----------------------------------------------------------------------


def test_the_service_s_settings_are_settings() -> None:
    text = find("ConfigMap", "fabricscope")["data"]["service.toml"]
    settings = combine(ServiceSettings, [Layer("service.toml", tomllib.loads(text), is_typed=True)])
    (service,) = find("Deployment", "fabricscope")["spec"]["template"]["spec"]["containers"]
    host, port = settings.address
    assert (host, port) == ("0.0.0.0", service["ports"][0]["containerPort"])  # noqa: S104
    assert find("Service", "fabricscope")["spec"]["ports"][0]["port"] == port
    mounts = {each["mountPath"]: each for each in service["volumeMounts"]}
    assert settings.data in mounts
    for file in (settings.token_file, settings.tls_certificate, settings.tls_key):
        folder, _, name = file.rpartition("/")
        assert folder in mounts
        assert name in secret("fabricscope")


def test_the_agent_s_settings_are_settings() -> None:
    pod = find("DaemonSet", "fabricscope-agent")["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    environment = {each["name"]: each.get("value", "node1") for each in agent["env"]}
    sources = {name: source.Settings for name, source in discover().items()}
    settings = load_settings(sources, file=None, environment=environment, flags={})
    assert settings.host == "node1"
    assert settings.listen == f"127.0.0.1:{agent['ports'][0]['containerPort']}"
    assert agent["livenessProbe"]["httpGet"]["host"] == "127.0.0.1"
    mounts = {each["mountPath"]: each["name"] for each in agent["volumeMounts"]}
    (spool,) = (each for each in pod["volumes"] if each["name"] == mounts[settings.spool_dir])
    room = int(spool["emptyDir"]["sizeLimit"].removesuffix("Mi")) << 20
    assert room > settings.spool_bytes_max
    for file in (settings.token_file, settings.ca_file):
        folder, _, name = file.rpartition("/")
        assert folder in mounts
        assert name in secret("fabricscope-agent")
    assert settings.service_url == SERVICE_URL


SERVICE_URL = "https://fabricscope.fabricscope.svc:9700"


def parsed(container: Json) -> argparse.Namespace:
    """What our command line makes of a container's arguments."""
    verb, *words = container["args"]
    assert verb == "kubernetes"
    parser = argparse.ArgumentParser(allow_abbrev=False)
    cli.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("components", "mode"), [((), "report"), (("components/enforce",), "enforce")], ids=str
)
def test_the_controller_s_arguments_are_arguments(components: tuple[str, ...], mode: str) -> None:
    pod = find("Deployment", "fabricscope-controller", components)["spec"]["template"]["spec"]
    (controller,) = pod["containers"]
    given = parsed(controller)
    assert (given.mode, given.program, given.lease) == (mode, "controller", LEASE)
    assert 0 < given.share_max <= 0.2
    assert given.service == SERVICE_URL
    assert given.listen == f"0.0.0.0:{controller['ports'][0]['containerPort']}"
    assert {Path(given.token_file).name, Path(given.ca_file).name} == set(
        secret("fabricscope-controller")
    )


def test_the_scheduler_asks_the_extender_beside_it() -> None:
    components = ("components/scheduler",)
    pod = find("Deployment", "fabricscope-scheduler", components)["spec"]["template"]["spec"]
    scheduler, extender = pod["containers"]
    given = parsed(extender)
    assert given.program == "extender"
    text = find("ConfigMap", "fabricscope-scheduler", components)["data"]["scheduler.yaml"]
    settings = yaml.safe_load(text)
    assert settings["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    (stanza,) = settings["extenders"]
    assert stanza == {
        "urlPrefix": f"http://{given.listen}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 5,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "3s",
        "managedResources": [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}],
    }
    assert f"--config={pod_file(scheduler, 'settings')}/scheduler.yaml" in scheduler["command"]
    port = given.listen.rpartition(":")[2]
    assert extender["livenessProbe"]["exec"]["command"][-2:] == [port, "/healthz"]


def pod_file(container: Json, volume: str) -> str:
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == volume)
    return str(mount["mountPath"])


# --- they fit each other ------------------------------------------------------------------------


def test_everything_that_is_named_is_there() -> None:
    there = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in (*objects(ALL), *secrets())
    }
    for each in objects(ALL):
        if "template" not in each.get("spec", {}):
            continue
        space, pod = each["metadata"]["namespace"], each["spec"]["template"]["spec"]
        assert ("ServiceAccount", space, pod["serviceAccountName"]) in there
        for volume in pod["volumes"]:
            for kind, part, key in (
                ("Secret", "secret", "secretName"),
                ("ConfigMap", "configMap", "name"),
                ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
            ):
                if part in volume:
                    assert (kind, space, volume[part][key]) in there
        names = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= names
    for each in objects(ALL):
        assert each["metadata"].get("namespace", "fabricscope") in {
            "fabricscope",
            "fabricscope-agents",
            "kube-system",
        }


def test_selectors_select_and_policies_open_what_is_served() -> None:
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in objects(ALL)
        if "template" in each.get("spec", {})
    }
    served: dict[str, set[int]] = {}
    for each in objects(ALL):
        if "template" in each.get("spec", {}):
            assert (
                each["spec"]["selector"]["matchLabels"].items()
                <= labels[each["metadata"]["name"]].items()
            )
            ports = [port for one in containers_of(each) for port in one.get("ports", [])]
            served[each["metadata"]["name"]] = {port["containerPort"] for port in ports}
    for each in objects(ALL):
        if each["kind"] == "NetworkPolicy" and each["spec"]["podSelector"]:
            name = each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
            opened = {port["port"] for rule in each["spec"]["ingress"] for port in rule["ports"]}
            assert opened == served[name]
    policies = [each for each in objects() if each["kind"] == "NetworkPolicy"]
    assert policies[0]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


# --- secrets ------------------------------------------------------------------------------------


def test_each_program_gets_a_token_of_its_own_with_the_scope_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(secret("fabricscope")["tokens"])
    scopes = {token.name: list(token.scopes) for token in read_token_file(file)}
    assert scopes == {
        "operator": ["admin"],
        "agents": ["ingest"],
        "controller": ["operate"],
        "scheduler": ["read"],
    }
    lines = {line.split()[-1]: line.split()[0] for line in file.read_text().splitlines()}
    clients = {"agents": "fabricscope-agent", "controller": "fabricscope-controller"}
    for name, where in {**clients, "scheduler": "fabricscope-scheduler"}.items():
        assert secret(where)["token"].decode() == lines[name]
        assert secret(where)["ca.crt"] == secret("fabricscope")["ca.crt"]
    assert len(set(lines.values())) == 4


def test_the_certificate_is_the_service_s(tmp_path: Path) -> None:
    content = secret("fabricscope")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_bytes(content[name])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    one = client.wrap_bio(ends[0][0], ends[0][1], server_hostname="fabricscope.fabricscope.svc")
    other = server.wrap_bio(ends[1][0], ends[1][1], server_side=True)
    for _ in range(4):
        for end in (one, other):
            with suppressed():
                end.do_handshake()
            ends[1][0].write(ends[0][1].read())
            ends[0][0].write(ends[1][1].read())
    assert one.getpeercert()
    found = x509.load_pem_x509_certificate(content["tls.crt"])
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "fabricscope.fabricscope.svc" in names.get_values_for_type(x509.DNSName)


def suppressed() -> Any:  # noqa: ANN401 - a context

    return contextlib.suppress(ssl.SSLWantReadError)


def test_nothing_secret_lies_in_the_folder() -> None:
    assert "Secret" not in {each["kind"] for each in objects(ALL)}
    assert os.access(FOLDER / "make-secrets.sh", os.X_OK)
