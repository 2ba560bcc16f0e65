"""Where the API server is: kubeconfigs as people have them, pods, and what is refused by name."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.remote.kubernetes.access import Access, find_access, read_kubeconfig
from collector.contract.errors import SettingsError

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def config(
    cluster: Any = None,  # noqa: ANN401 - what YAML can hold
    user: Any = None,  # noqa: ANN401
    **more: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """A kubeconfig with one of each."""
    where = {"server": "https://10.0.0.1:6443", **(cluster or {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": "c", "cluster": where}],
        "users": [{"name": "u", "user": {"token": "secret-token"} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
        **more,
    }


def written(folder: Path, content: object, name: str = "config") -> Path:
    file = folder / name
    file.write_text(
        content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    )
    return file


def read(folder: Path, content: object, context: str = "") -> Access:
    return read_kubeconfig([written(folder, content)], context)


def test_a_token_and_a_namespace(tmp_path: Path) -> None:
    access = read(tmp_path, config())
    assert (access.server, access.namespace) == ("https://10.0.0.1:6443", "n")
    assert access.read_token() == "secret-token"
    assert "secret" not in repr(access)


def test_certificates_lie_in_the_file_or_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    data = base64.b64encode(PEM.encode()).decode()
    beside = read(tmp_path, config({"certificate-authority": "ca.pem"}))
    inside = read(
        tmp_path,
        config(
            {"certificate-authority-data": data, "certificate-authority": "not-looked-at"},
            {"client-certificate-data": data, "client-key-data": data},
        ),
    )
    assert beside.ca == inside.ca == inside.certificate == inside.key == PEM
    with pytest.raises(SettingsError, match=r"certificates for https://10\.0\.0\.1:6443"):
        inside.make_ssl()


def test_a_token_file_lies_beside_the_config_and_is_read_each_time(tmp_path: Path) -> None:
    access = read(tmp_path, config(user={"tokenFile": "token"}))
    with pytest.raises(SettingsError, match="token: No such file"):
        access.read_token()
    (tmp_path / "token").write_text("first-token\n")
    assert access.read_token() == "first-token"
    (tmp_path / "token").write_text("second-token\n")
    assert access.read_token() == "second-token"
    (tmp_path / "token").write_text("two\nlines")
    with pytest.raises(SettingsError, match="signs that no token has"):
        access.read_token()


def test_of_several_files_the_first_word_counts(tmp_path: Path) -> None:
    one = written(tmp_path, {"kind": "Config", "current-context": "x"}, "one")
    two = written(tmp_path, config(), "two")
    other = config({"server": "https://other:1"})
    three = written(tmp_path, other, "three")
    found = find_access("", "", {"KUBECONFIG": f"{one}:{two}:{three}"})
    assert found.server == "https://10.0.0.1:6443"
    assert find_access(str(three), "", {"KUBECONFIG": str(two)}).server == "https://other:1"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (config(user={"exec": {"command": "aws"}}), r"user 'u': exec: it starts a program"),
        (config(user={"auth-provider": {"name": "gcp"}}), "auth-provider: Kubernetes has dropped"),
        (config(user={"username": "a", "password": "b"}), "username: Kubernetes has dropped"),
        (config(user={"as": "root"}), "as: fabricscope does not do this"),
        (config(user={"client-key-data": "eA=="}), "client-certificate and client-key go together"),
        (config(user={"client-certificate-data": "%%"}), "no PEM in base64"),
        (config(user={"token": 5}), "token is int; it should be text"),
        (config({"insecure-skip-tls-verify": True}), "must know its server"),
        (config({"proxy-url": "http://p:1"}), "proxy-url: fabricscope does not do this"),
        (config({"tls-server-name": "x"}), "tls-server-name: fabricscope does not do this"),
        (config({"server": "http://10.0.0.1:8080"}), "without TLS only loopback"),
        (config({"server": "10.0.0.1:6443"}), "it must be https://HOST:PORT"),
        (config({"server": "https://u:p@h:1"}), "it must be https://HOST:PORT"),
        (config({"server": ""}), "it must be https://HOST:PORT"),
        (config(contexts=[]), "there is no context 'x'; there are: none"),
        (config(clusters=[]), "there is no cluster 'c'"),
        (config(users=None), "there is no user 'u'"),
        (config(users={}), "there is no user 'u'"),
        (config(users="x"), "users is no list"),
        (config(users=["x"]), "an entry of users is not"),
        (config(**{"current-context": ""}), "no current-context; name one with --context"),
        ("{", "is no kubeconfig"),
        ("[]", "it should be a map"),
        ("kind: Pod", "it should be a map with kind: Config"),
        ("a: &a [*a]", "no current-context"),
        ("\0", "is no kubeconfig"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    tmp_path: Path, content: object, words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        read(tmp_path, content)


def test_what_is_switched_off_is_not_refused(tmp_path: Path) -> None:
    assert read(tmp_path, config({"insecure-skip-tls-verify": False, "proxy-url": ""})).server


def test_kubectl_s_proxy_needs_nothing(tmp_path: Path) -> None:
    contexts = [{"name": "x", "context": {"cluster": "c"}}]
    content = config({"server": "http://127.0.0.1:8001/"}, contexts=contexts)
    access = read(tmp_path, content)
    assert (access.server, access.read_token()) == ("http://127.0.0.1:8001", "")
    assert access.make_ssl() is False


def test_a_pod_finds_its_account(tmp_path: Path) -> None:
    for name, text in (("token", "pod-token"), ("ca.crt", PEM), ("namespace", "fabric\n")):
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = find_access("", "", environment, tmp_path)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "fabric")
    assert (access.read_token(), access.ca) == ("pod-token", PEM)
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(SettingsError, match=r"ca\.crt: No such file"):
        find_access("", "", environment, tmp_path)


def test_elsewhere_it_says_what_to_set() -> None:
    with pytest.raises(SettingsError, match="neither KUBECONFIG nor --kubeconfig"):
        find_access("", "", {})
    with pytest.raises(SettingsError, match="nowhere: No such file"):
        find_access("nowhere", "", {})
