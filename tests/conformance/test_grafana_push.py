"""`fabricscope dashboards push` against a Grafana: the double, or a real one (`GRAFANA_URL`)."""

import datetime as dt
import ipaddress
import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dashboards.grafana.boards import discover
from dashboards.grafana.jumps import uid_of
from tests.conftest import Golden
from tests.doubles.grafana_double import EDITOR, VIEWER, Fault, GrafanaDouble
from tests.stands.grafana_stand import (
    BOARDS,
    FOLDER_UID,
    ROOT,
    SOURCE,
    Stand,
    run,
    run_alone,
    stand,
)

SERVICE = "http://127.0.0.1:9700"
CALLS = ROOT / "tests/fixtures/grafana/push_calls.txt"


@pytest.fixture
def grafana() -> Iterator[Stand]:
    with stand() as made:
        yield made


@pytest.fixture
def boards(tmp_path: Path) -> Path:
    """The test's boards, to be changed."""
    return Path(shutil.copytree(BOARDS, tmp_path / "boards"))


def rename(boards: Path, title: str, *, name: str = "first") -> None:
    """What a new release of ours would do: another title for the first panel."""
    file = boards / f"{name}.json"
    board = json.loads(file.read_text())
    board["panels"][0]["title"] = title
    file.write_text(json.dumps(board))


def test_the_first_push_makes_everything_and_the_second_changes_nothing(grafana: Stand) -> None:
    first = grafana.push("--service", SERVICE, "--datasource", SOURCE)
    assert first.status == 0, first.text
    assert "4 created" in first.text
    found = grafana.board()
    assert found["dashboard"]["title"] == "Test: the first"
    assert found["meta"]["folderUid"] == FOLDER_UID
    source = grafana.hand("GET", f"/datasources/uid/{FOLDER_UID}")
    assert (source["type"], source["url"]) == ("prometheus", SERVICE)
    assert source["jsonData"]["httpMethod"] == "POST"
    choice = found["dashboard"]["templating"]["list"][0]["current"]
    assert choice["value"] == FOLDER_UID, "boards choose the data source that was made for them"

    versions = found["dashboard"]["version"]
    second = grafana.push("--service", SERVICE, "--datasource", SOURCE)
    assert second.status == 0, second.text
    assert second.text.strip().endswith("4 as they should be")
    third = grafana.push()  # without a data source flag: the earlier choice stays
    assert third.status == 0, third.text
    assert grafana.board()["dashboard"]["version"] == versions


def test_it_is_a_command_like_the_others(grafana: Stand) -> None:
    words = ["push", "--from", str(BOARDS), "--folder", "Fabricscope test", "--grafana"]
    done = run_alone("dashboards", *words, grafana.url, GRAFANA_TOKEN=grafana.token)
    assert done.status == 0, done.text
    assert "3 created" in done.text


def test_a_dry_run_writes_nothing(grafana: Stand) -> None:
    done = grafana.push("--service", SERVICE, "--datasource", SOURCE, "--dry-run")
    assert done.status == 3, done.text
    assert "4 to create (dry run)" in done.text
    assert grafana.hand("GET", f"/folders/{FOLDER_UID}") is None
    assert grafana.hand("GET", "/dashboards/uid/fabricscope-test-first") is None
    if grafana.fake:
        assert grafana.fake.writes == []


def test_a_new_release_changes_only_what_differs(grafana: Stand, boards: Path) -> None:
    assert grafana.push().status == 0
    second = grafana.board("second")["dashboard"]["version"]
    rename(boards, "Utilisation")
    told = grafana.push("--dry-run", "-v", boards=boards)
    assert told.status == 3
    assert "+ panel 'Utilisation'" in told.text
    assert "- panel 'Load'" in told.text
    assert '-      "title": "Load",' in told.text
    done = grafana.push(boards=boards)
    assert done.status == 0, done.text
    assert "1 updated" in done.text
    assert grafana.board()["dashboard"]["panels"][0]["title"] == "Utilisation"
    assert grafana.board("second")["dashboard"]["version"] == second


def test_what_a_person_changed_is_named_and_left_alone(grafana: Stand, boards: Path) -> None:
    assert grafana.push().status == 0
    grafana.edit("Mine")
    rename(boards, "Utilisation")
    done = grafana.push(boards=boards)
    assert done.status == 1, done.text
    assert "conflict dashboard first" in done.text
    assert "--overwrite" in done.text
    assert grafana.board()["dashboard"]["panels"][0]["title"] == "Mine"
    forced = grafana.push("--overwrite", boards=boards)
    assert forced.status == 0, forced.text
    assert grafana.board()["dashboard"]["panels"][0]["title"] == "Utilisation"
    assert "as they should be" in grafana.push(boards=boards).text


def test_only_names_one_board_and_prune_removes_what_is_gone(grafana: Stand, boards: Path) -> None:
    done = grafana.push("--only", "second")
    assert done.status == 0, done.text
    assert grafana.hand("GET", "/dashboards/uid/fabricscope-test-first") is None
    assert grafana.push().status == 0
    (boards / "second.json").unlink()
    assert grafana.push(boards=boards).status == 0
    assert grafana.board("second"), "without --prune nothing is removed"
    pruned = grafana.push("--prune", boards=boards)
    assert "1 removed" in pruned.text, pruned.text
    assert grafana.hand("GET", "/dashboards/uid/fabricscope-test-second") is None
    assert grafana.board(), "what is still made stays"


def test_a_wrong_token_is_named_and_never_shown(grafana: Stand) -> None:
    secret = "glsa_wrong_987654321"  # noqa: S105 - of no account
    done = grafana.run("push", "--from", str(BOARDS), "--token", secret)
    assert done.status == 2
    assert "401, the token is refused" in done.text
    assert secret not in done.text
    if grafana.fake:
        echo = json.dumps({"message": f"no {grafana.token}"}).encode()
        grafana.fake.faults.append(Fault("GET /folders", 400, echo))
        told = grafana.push()
        assert "refused (no ***)" in told.text


# --- what only the double can do -----------------------------------------------------------------


def test_the_calls_are_those_that_were_agreed(grafana: Stand, boards: Path, golden: Golden) -> None:
    double = grafana.double
    written = []
    for title, words in (
        ("the first push", ["--service", SERVICE, "--datasource", SOURCE]),
        ("the same once more", ["--service", SERVICE, "--datasource", SOURCE]),
        ("one panel has another title", []),
        ("a board is gone", ["--prune"]),
    ):
        if title.startswith("one"):
            rename(boards, "Utilisation")
        if title.endswith("gone"):
            (boards / "second.json").unlink()
        double.calls.clear()
        assert grafana.push(*words, boards=boards).status == 0
        written.append(f"# {title}\n")
        for method, address, body in double.calls:
            text = f" {json.dumps(body, sort_keys=True)}" if body is not None else ""
            written.append(f"{method} {address}{text}\n")
    golden(CALLS, "".join(written))


def test_an_editor_may_push_boards_and_is_told_about_the_data_source(grafana: Stand) -> None:
    double = grafana.double
    done = Stand(grafana.url, EDITOR, double).push("--service", SERVICE)
    assert done.status == 1, done.text
    assert "datasources:read" in done.text
    assert "3 created" in done.text
    assert set(double.boards) == {"fabricscope-test-first", "fabricscope-test-second"}


def test_a_viewer_is_told_what_the_token_lacks(grafana: Stand) -> None:
    done = Stand(grafana.url, VIEWER, grafana.double).push()
    assert done.status == 2
    assert "403" in done.text
    assert "folders:create" in done.text
    assert "Editor" in done.text


def test_a_save_between_our_look_and_our_write_wins(grafana: Stand, boards: Path) -> None:
    double = grafana.double
    assert grafana.push().status == 0
    rename(boards, "Utilisation")
    body = {"message": "The dashboard has been changed by someone else"}
    mismatch = json.dumps({**body, "status": "version-mismatch"}).encode()
    double.faults.append(Fault("POST /dashboards/db", 412, mismatch))
    done = grafana.push(boards=boards)
    assert done.status == 1
    assert "another user saved it meanwhile" in done.text


def test_a_title_that_is_taken_is_one_board_s_conflict(grafana: Stand) -> None:
    double = grafana.double
    assert grafana.push("--only", "second").status == 0
    rows = double.boards.pop("fabricscope-test-second")
    rows[-1]["dashboard"]["title"] = "Test: the first"
    double.boards["somebody-s"] = rows
    done = grafana.push()
    assert done.status == 1
    assert "412" in done.text
    assert "uid or, in its folder, its title" in done.text
    assert "fabricscope-test-second" in double.boards, "the other board goes on"


def test_a_board_of_provisioned_files_is_not_fought_over(grafana: Stand, boards: Path) -> None:
    double = grafana.double
    assert grafana.push().status == 0
    double.provisioned.add("fabricscope-test-first")
    rename(boards, "Utilisation")
    double.calls.clear()
    done = grafana.push(boards=boards)
    assert done.status == 1
    assert "provisioning" in done.text
    assert double.writes == []


def test_a_server_that_fails_for_a_moment_is_asked_again(grafana: Stand) -> None:
    double = grafana.double
    broken = b'{"message":"database is locked"}'
    double.faults += [
        Fault("GET /folders", 503, b"<html>upstream</html>", content_type="text/html"),
        Fault("POST /dashboards/db", 500, broken),
    ]
    done = grafana.push()
    assert done.status == 0, done.text
    assert "2 attempts were repeated" in done.text


def test_a_write_whose_answer_was_lost_is_not_a_conflict(grafana: Stand) -> None:
    double = grafana.double
    double.faults += [
        Fault("POST /folders", 504, b"gateway timeout", is_done=True),
        Fault("POST /dashboards/db", 502, b"bad gateway", is_done=True),
    ]
    done = grafana.push()
    assert done.status == 0, done.text
    assert [len(rows) for rows in double.boards.values()] == [1, 1]


def test_a_server_that_goes_on_failing_is_given_up(grafana: Stand) -> None:
    double = grafana.double
    double.faults.append(Fault("GET /folders", 500, b'{"message":"oops \\u001b[31m"}', times=99))
    done = grafana.push()
    assert done.status == 2
    assert "500" in done.text
    assert "\x1b" not in done.text
    assert sum(call[1].startswith("/folders") for call in double.calls) == 4
    assert double.writes == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("GET /health", 404, b'{"message":"Not found"}'), "is this Grafana's address"),
        (
            Fault("GET /health", 200, b"<html>Sign in</html>", content_type="text/html"),
            "no JSON but '<html>Sign in</html>'",
        ),
        (
            Fault("GET /health", 302, b"", headers={"Location": "http://127.0.0.1:1/login"}),
            "redirects, probably to a login page",
        ),
        (Fault("GET /health", 200, b"[]"), "does not answer as a Grafana does"),
        (Fault("GET /folders", 200, b"{not json"), "no JSON"),
        (Fault("GET /folders", 200, b"null"), "no JSON but 'null'"),
        (Fault("GET /folders", 200, b'{"a\\u001b": 1}'), "does not answer as a Grafana does"),
        (
            Fault("GET /folders", 422, b'{"message":"validation failed"}'),
            "422, refused (validation",
        ),
    ],
    ids=["404", "page", "login", "other", "broken", "null", "shape", "422"],
)
def test_what_is_no_grafana_s_answer_is_named(grafana: Stand, fault: Fault, said: str) -> None:
    grafana.double.faults.append(fault)
    done = grafana.push()
    assert done.status == 2
    assert said in done.text
    assert "\\u001b" not in done.text, "the SDK shows answers as they are, on the terminal"
    assert grafana.double.writes == []


def test_a_board_that_is_refused_does_not_stop_the_others(grafana: Stand) -> None:
    body = b'{"message":"bad field"}'
    grafana.double.faults.append(Fault("POST /dashboards/db", 422, body))
    done = grafana.push()
    assert done.status == 1
    assert "422, refused (bad field)" in done.text
    assert set(grafana.double.boards) == {"fabricscope-test-second"}


def test_an_old_grafana_is_told_apart() -> None:
    with GrafanaDouble(version="8.5.27") as double:
        done = Stand(double.url, "glsa_admin_0123456789", double).push()
    assert done.status == 2
    assert "Grafana 8.5.27 is too old" in done.text


def test_it_works_under_a_path_and_with_the_newer_list_of_versions(boards: Path) -> None:
    with GrafanaDouble(path="/grafana", version="12.1.0") as double:
        grafana = Stand(double.url, "glsa_admin_0123456789", double)
        assert grafana.push().status == 0
        rename(boards, "Utilisation")
        done = grafana.push(boards=boards)
        assert "1 updated" in done.text, done.text


def test_nobody_there_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with GrafanaDouble() as double:
        url = double.url
    gone = Stand(url, "glsa_admin_0123456789", None).push()
    assert gone.status == 2
    assert "look whether" in gone.text
    missing = str(tmp_path / "ca.pem")
    told = Stand(url, "glsa_admin_0123456789", None).push("--ca-file", missing)
    assert "there is no such file" in told.text


def make_tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server on 127.0.0.1 speaks TLS with, and the file of the authority behind it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    ca_file, key_file = folder / "ca.pem", folder / "key.pem"
    ca_file.write_bytes(signed.public_bytes(pem))
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca_file, key_file)
    return context, ca_file


def test_a_certificate_is_trusted_only_if_its_authority_is(tmp_path: Path) -> None:
    tls, ca_file = make_tls(tmp_path)
    with GrafanaDouble(tls=tls) as double:
        grafana = Stand(double.url, "glsa_admin_0123456789", double)
        refused = grafana.push()
        assert refused.status == 2
        assert "its certificate is not trusted" in refused.text
        assert "--ca-file" in refused.text
        assert double.calls == []
        trusted = grafana.push("--ca-file", str(ca_file))
        assert trusted.status == 0, trusted.text


def test_our_own_boards_are_taken_as_they_are(grafana: Stand) -> None:
    double = grafana.double
    first = grafana.run("push", "--service", SERVICE)
    assert first.status == 0, first.text
    assert set(double.boards) == {uid_of(name) for name in discover()}
    again = grafana.run("push", "--service", SERVICE, "--dry-run")
    assert again.status == 0, again.text
    assert all(len(rows) == 1 for rows in double.boards.values())


def test_a_token_for_the_service_is_sent_once_and_never_shown(
    grafana: Stand, tmp_path: Path
) -> None:
    double = grafana.double
    secret = tmp_path / "token"
    secret.write_text("service-secret-0123456789\n")
    words = ["--service", SERVICE, "--service-token-file", str(secret)]
    first = grafana.push(*words)
    assert first.status == 0, first.text
    stored = double.sources["fabricscope"]
    header = stored["secureJsonData"]["httpHeaderValue1"]
    assert header == "Bearer service-secret-0123456789"
    assert stored["jsonData"]["httpHeaderName1"] == "Authorization"
    second = grafana.push(*words, "-v")
    assert "4 as they should be" in second.text
    renewed = grafana.push(*words, "--renew-service-token")
    assert "1 updated" in renewed.text
    assert "service-secret" not in first.text + second.text + renewed.text


def test_what_people_set_on_the_data_source_stays(grafana: Stand) -> None:
    double = grafana.double
    assert grafana.push("--service", SERVICE).status == 0
    double.sources["fabricscope"] |= {"isDefault": True, "url": "http://old:9700"}
    double.sources["fabricscope"]["jsonData"] |= {"queryTimeout": "120s"}
    done = grafana.push("--service", SERVICE)
    assert done.status == 0, done.text
    stored = double.sources["fabricscope"]
    assert (stored["url"], stored["isDefault"]) == (SERVICE, True)
    assert stored["jsonData"]["queryTimeout"] == "120s"


def test_without_a_token_or_with_bad_words_nothing_is_asked(grafana: Stand) -> None:
    url = grafana.url
    none = run("dashboards", "push", "--grafana", url)
    assert (none.status, "--token-file" in none.text) == (2, True)
    for words, said in (
        (["--grafana", "ftp://x"], "http://HOST:PORT"),
        (["--grafana", "http://me:secret@x"], "no user and password"),
        (["--grafana", url, "--only", "flet"], "flet"),
        (["--grafana", url, "--only", "fleet", "--prune"], "--only and --prune"),
    ):
        done = run("dashboards", "push", "--token", "glsa_x", *words)
        assert done.status == 2, done.text
        assert said in done.text
    assert "secret" not in run("dashboards", "push", "--grafana", "http://me:secret@x").text
    if grafana.fake:
        assert grafana.fake.calls == []
