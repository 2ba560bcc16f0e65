"""The front door as an operator sets it up: other names, and a token for each sender."""

from pathlib import Path
from unittest.mock import patch

from api.data.ingest import ingest as ingest_module
from api.http.settings import ServiceSettings
from tests.stands.service import eventually, in_process
from tests.stands.strangers import DECLARED, JSON, SILENCE, metric, send, stalled


def test_operators_name_other_hosts(tmp_path: Path) -> None:
    settings = ServiceSettings(
        data=str(tmp_path),
        rules_pack=False,
        own_numbers=False,
        allowed_hosts="scope.example, *.cluster.example",
        external_url="https://watch.example/scope",
    )
    with in_process(tmp_path, settings=settings) as service:
        for host, status in {
            "scope.example": 200,
            "Scope.Example:443": 200,
            "a.cluster.example": 200,
            "watch.example": 200,
            "cluster.example": 421,
            "xcluster.example": 421,
            "other.example": 421,
        }.items():
            assert send(service, "GET", "/v1/hosts", Host=host).status_code == status, host
        answer = send(
            service, "POST", "/v1/silences", SILENCE, Origin="https://watch.example", **JSON
        )
        assert answer.status_code != 403


def test_one_sender_does_not_take_all_the_room(tmp_path: Path) -> None:
    """Two clients with a token each: the one that stalls with real bytes stops only itself."""
    tokens = {name: f"fsc-file-token-of-{name}-0123456789abcdef" for name in ("greedy", "honest")}
    file = tmp_path / "tokens"
    file.write_text("".join(f"{text} ingest,read {name}\n" for name, text in tokens.items()))
    file.chmod(0o600)
    settings = ServiceSettings(
        data=str(tmp_path), rules_pack=False, own_numbers=False, token_file=str(file)
    )
    small = patch.multiple(ingest_module, INFLIGHT_BYTES_PER_SENDER_MAX=40_000)
    with small, in_process(tmp_path, settings=settings) as service:

        def post(name: str) -> int:
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            return service.client.post(
                "/v1/placement", content=b" " * 20_000, headers=headers
            ).status_code

        head = DECLARED.replace(b"/v1/ingest", b"/v1/placement")
        bearer = f"\r\nAuthorization: Bearer {tokens['greedy']}\r\n\r\n".encode()
        head = head.replace(b"\r\n\r\n", bearer) + b" " * 30_000
        with stalled(service, 1, head):
            held = "fabric_service_inflight_bytes"
            headers = {"Authorization": f"Bearer {tokens['honest']}"}
            service.client.headers.update(headers)
            eventually(lambda: metric(service, held) >= 30_000, "its bytes are held")
            assert post("greedy") == 503
            assert post("honest") == 400
