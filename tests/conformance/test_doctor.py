"""`fabricscope doctor`: with and without a service, and each thing that an operator gets wrong."""

import contextlib
import datetime as dt
import errno
import fcntl
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import msgspec
import pytest

from api.data.inventory import migrate
from api.data.inventory.repository import Inventory
from api.data.inventory.rollout_model import Configuration, Rollout, RolloutState
from api.data.inventory.sightings import Observation, Sighting
from api.http.operating.doctor import kept, machine
from api.http.operating.doctor.model import Grade
from api.http.settings import ServiceSettings
from collector.cli import main
from tests.doubles.gnmi_server import make_certificates
from tests.stands.ports import free_port
from tests.stands.service import copy_migrated, in_process

NOW = dt.datetime.now(dt.UTC)

Found = dict[str, tuple[str, str]]
"""Grade and words by subject; of several with one subject the last."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """As a service leaves it that has run and was stopped."""
    folder = tmp_path / "data"
    folder.mkdir()
    copy_migrated(folder, with_store=True)
    return folder


def doctor(data: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Found]:
    listen = [] if "--listen" in more else ["--listen", f"127.0.0.1:{free_port()}"]
    status = main(["doctor", "--data", str(data), "--json", *listen, *more])
    document = json.loads(capsys.readouterr().out)
    looks = {look["subject"]: (look["grade"], look["found"]) for look in document["checks"]}
    assert (status == 1) == (document["grade"] == "wrong")
    assert all(look["todo"] for look in document["checks"] if look["grade"] != "ok")
    return status, looks


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """As a service that works on the folder."""
    with (data / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_folder_on_which_a_service_ran_is_sound(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = doctor(data, capsys)
    assert status == 0
    assert found["service"][0] == "warning"
    for subject in ("settings", "data folder", "store", "store schema", "inventory"):
        assert found[subject][0] == "ok", found[subject]
    assert found["inventory schema"] == ("ok", f"revision {migrate.head()}")
    assert found["tokens"][0] == found["TLS"][0] == found["rule files"][0] == "ok"
    assert found["agents"] == ("warning", "no host has ever sent anything")
    assert main(["doctor", "--data", str(data)]) == 0
    assert "→ start it: fabricscope serve" in capsys.readouterr().out


def test_it_is_of_use_before_the_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = doctor(tmp_path / "none", capsys)
    assert status == 0
    assert found["data folder"][0] == found["inventory"][0] == found["store"][0] == "warning"
    assert not (tmp_path / "none").exists(), "it makes nothing"


def test_a_running_service_answers_for_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_process(tmp_path) as running, locked(tmp_path):
        listen = f"127.0.0.1:{running.client.base_url.port}"
        status, found = doctor(tmp_path, capsys, "--listen", listen)
        assert status == 0
        assert found["service"] == ("ok", f"it is ready on {listen}")
        assert found["store"][1].startswith("the service has it open")
    with locked(tmp_path):
        status, found = doctor(tmp_path, capsys, "--listen", listen)
        assert status == 1
        assert "it runs and does not answer" in found["service"][1]


def test_a_mistake_in_the_settings_is_the_first_thing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text("rules_intervall_s = 3\n")
    status, found = doctor(data, capsys, "--config", str(tmp_path / "s.toml"))
    assert status == 1
    assert found["settings"][0] == "wrong"
    assert "rules_intervall_s" in found["settings"][1]
    assert "clock" in found


def test_what_a_person_may_not_look_at_is_the_service_s_user_s(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied", "/var/lib/x")
    monkeypatch.setattr(machine, "look_at_folder", Mock(side_effect=refused))
    assert main(["doctor", "--data", str(data)]) == 1
    said = capsys.readouterr().out
    assert "/var/lib/x: Permission denied\n" in said
    assert "run this as the service's user, or as root" in said


def test_schemas_of_a_newer_release_are_wrong_and_older_ones_are_no_trouble(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        patch.object(kept, "load_migrations", return_value=[]),
        patch.object(migrate, "head", return_value="0001"),
    ):
        status, found = doctor(data, capsys)
    assert status == 1
    assert "a newer release wrote it" in found["store schema"][1]
    assert found["inventory schema"][0] == "wrong"
    with (
        patch.object(kept, "load_migrations", return_value=[None] * 99),
        patch.object(migrate, "head", return_value="9999"),
    ):
        status, found = doctor(data, capsys)
    assert status == 0
    assert found["store schema"] == ("warning", "migration 7 of 99")
    assert found["inventory schema"][0] == "warning"


def test_what_others_can_reach_needs_a_token_and_tls(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listen = ("--listen", f"0.0.0.0:{free_port()}")
    status, found = doctor(data, capsys, *listen)
    assert status == 1
    assert found["tokens"][0] == "wrong"
    assert found["TLS"][0] == "warning"
    made = ["token", "create", "ops", "--scope", "admin", "--days", "3", "--data", str(data)]
    assert main(made) == 0
    capsys.readouterr()
    _, found = doctor(data, capsys, *listen)
    assert found["tokens"] == ("warning", "1 end within 14 days: ops")


def test_a_certificate_is_renewed_before_it_ends(tmp_path: Path) -> None:
    certificate = tmp_path / "server.crt"
    certificate.write_bytes(make_certificates(tmp_path).cert)
    ends_s = machine.certificate_end_s(certificate)
    assert ends_s is not None
    settings = ServiceSettings(tls_certificate=str(certificate), tls_key="k")
    grades = [
        look.grade
        for days in (30, 13, -1)
        for look in machine.look_at_certificate(settings, ends_s - days * 86_400)
    ]
    assert grades == [Grade.OK, Grade.WARNING, Grade.WRONG]
    assert machine.certificate_end_s(tmp_path / "none") is None


def test_receivers_that_cannot_be_reached_are_named_without_their_secrets(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notify = tmp_path / "notify.toml"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        address = f"http://127.0.0.1:{port}/hooks/secret"
        notify.write_text(f'[[receivers]]\nname = "a"\ntype = "webhook"\nurl = "{address}"\n')
        config = tmp_path / "s.toml"
        away = f"http://127.0.0.1:{free_port()}"
        config.write_text(f'notify_file = "{notify}"\nalertmanagers = ["{away}"]\n')
        status, found = doctor(data, capsys, "--config", str(config))
    assert status == 1
    assert found["receiver a"] == ("ok", f"127.0.0.1:{port} can be reached")
    assert found["alertmanager"][0] == "wrong"
    assert "secret" not in str(found)


def test_rule_files_with_mistakes_are_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    config = tmp_path / "s.toml"
    config.write_text(f'rules_dir = "{rules}"\n')
    assert doctor(data, capsys, "--config", str(config))[1]["rule files"][0] == "warning"
    text = "groups: [{name: a, rules: [{record: 'x:y', expr: 'sum('}]}]\n"
    (rules / "a.yaml").write_text(text)
    status, found = doctor(data, capsys, "--config", str(config))
    assert status == 1
    assert "1 problems, the first" in found["rule files"][1]


def test_hosts_are_silent_against_the_one_that_was_seen_last(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = Inventory(f"sqlite:///{data / 'inventory.db'}")
    for name, hours in (("here", 1), ("gone", 5)):
        for ago in (hours + 30, hours):
            at = NOW - dt.timedelta(hours=ago)
            inventory.observe([Observation.at(Sighting(host=name), at)])
    inventory.close()
    _, found = doctor(data, capsys)
    assert found["agents"] == ("warning", "1 of 2 are silent: gone")


def test_clocks_that_are_apart() -> None:
    with patch("time.time", return_value=1000.0):
        looks = [kept.clocks_apart("x", at).grade for at in (1000.5, 997.0, 1100.0)]
    assert looks == [Grade.OK, Grade.WARNING, Grade.WRONG]
    for state, grade in ((0, Grade.OK), (5, Grade.WARNING), (None, Grade.WARNING)):
        with patch.object(machine, "clock_state", return_value=state):
            assert next(machine.look_at_clock()).grade == grade


def test_a_roll_out_that_stands_is_said(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "roll-out" not in doctor(data, capsys)[1]
    inventory = Inventory(f"sqlite:///{data / 'inventory.db'}")
    pushed = Configuration(
        version=1, sha256="", signature="", document=b"", by="ann", why="", at=NOW
    )
    for version, state, grade in (
        (1, RolloutState.ROLLING, "ok"),
        (2, RolloutState.WAITING, "warning"),
        (3, RolloutState.STOPPED, "warning"),
    ):
        rollout = Rollout(
            version=version,
            base=0,
            shares=[5.0],
            state=state,
            failures_max=1,
            trial_seconds=60,
            reason="n1: source x fails",
            since=NOW,
        )
        made = Configuration(**{**msgspec.structs.asdict(pushed), "version": version})
        assert inventory.rollouts.push(made, rollout)
        found = doctor(data, capsys)[1]["roll-out"]
        assert found[0] == grade
        assert f"configuration {version} is {state} at 5 %" in found[1]
    assert "source x fails" in found[1]
    inventory.close()
