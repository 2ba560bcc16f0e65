"""What is asked of a Grafana has bounds, and what it says stays words."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from collector.contract.errors import SettingsError
from dashboards.grafana import connection
from dashboards.grafana.commands import chosen, read_boards, read_span
from dashboards.grafana.connection import (
    Target,
    check_url,
    fetch,
    read_token,
    why_unanswered,
)
from dashboards.grafana.failures import (
    Conflict,
    GrafanaError,
    NotAllowed,
    Refused,
    TokenRefused,
    Unreachable,
    explain,
    plain,
)


class Pieces(httpx.SyncByteStream):
    """An answer that comes in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces

    def close(self) -> None:
        self.is_closed = True


def fetched(pieces: Pieces) -> httpx.Response:
    """What `fetch` makes of an answer."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=pieces))
    with httpx.Client(transport=transport) as client:
        return fetch(client, "GET", "http://x")


def test_an_answer_is_read_whole() -> None:
    assert fetched(Pieces(b"ab", b"c")).content == b"abc"


def test_an_answer_that_is_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_BYTES_MAX", 10)
    answer = Pieces(b"x" * 6, b"x" * 6, b"x" * 6)
    with pytest.raises(ConnectionError, match="its answer is over"):
        fetched(answer)
    assert answer.is_closed


def test_an_answer_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS_MAX", -1.0)
    answer = Pieces(b"x")
    with pytest.raises(ConnectionError, match="not whole after"):
        fetched(answer)
    assert answer.is_closed


def test_a_time_out_is_told_in_seconds() -> None:
    assert why_unanswered(httpx.ReadTimeout("timed out"), []) == "no answer within 10 s"


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, {"message": "Invalid API key"}, TokenRefused, "Invalid API key"),
        (403, {"message": "Permissions needed: folders:create"}, NotAllowed, "folders:create"),
        (404, {"message": "Dashboard not found"}, Refused, "404, there is no such thing"),
        (409, {"message": "the same name"}, Conflict, "409 (the same name)"),
        (412, {"message": "x", "status": "version-mismatch"}, Conflict, "saved it meanwhile"),
        (412, {"message": "x", "status": "name-exists"}, Conflict, "rename that one"),
        (412, {"message": "x", "status": "plugin-dashboard"}, Conflict, "plug-in"),
        (412, {"status": ["odd"]}, Conflict, "no reason given"),
        (422, {"message": "no"}, Refused, "422, refused (no)"),
        (429, "slow down", Unreachable, "too busy"),
        (503, None, Unreachable, "no reason given"),
    ],
)
def test_each_status_has_a_name_and_a_word_of_help(
    status: int, body: object, kind: type[GrafanaError], said: str
) -> None:
    error = explain("read folder x", status, body)
    assert type(error) is kind
    assert said in str(error)


def test_words_of_others_are_cut_and_lose_secrets() -> None:
    text = plain("a" * 1_000 + "\x1b[2J")
    assert len(text) == 300
    assert plain("\x1b]0;x\x07 glsa_1234", ["glsa_1234", "x"]) == "]0;x ***"


@pytest.mark.parametrize("url", ["grafana", "ftp://x", "http://", "http://x:99999", "http://a b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="write http://HOST:PORT"):
        check_url(url, "--grafana")


def test_tokens_that_would_be_headers_of_their_own_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for bad in ("a\r\nX-Evil: 1", "ä", "x" * 5_000):
        file.write_text(bad, "utf-8")
        with pytest.raises(SettingsError, match="no token has"):
            read_token("", str(file), "", "token")
    file.write_text(" \n")
    with pytest.raises(SettingsError, match="is empty"):
        read_token("", str(file), "", "token")
    with pytest.raises(SettingsError, match="give one of them"):
        read_token("a", str(file), "", "token")


def test_a_target_does_not_show_its_token() -> None:
    assert "glsa" not in repr(Target(url="http://x", token="glsa_1234"))  # noqa: S106


def test_files_that_are_no_boards_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"0 \*\.json files"):
        read_boards(tmp_path)
    good = '{"uid": "a", "title": "A"}'
    for content, said in (
        ("{", "no dashboard's JSON"),
        ("[" * 100_000, "no dashboard's JSON"),
        ("[]", "no dashboard's JSON"),
        ('{"uid": "a/b", "title": "A"}', "uid is 'a/b'"),
        ('{"uid": "a", "title": ""}', "needs a title"),
    ):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(SettingsError, match=said):
            read_boards(tmp_path)
    (tmp_path / "x.json").write_text(good)
    (tmp_path / "y.json").write_text(good)
    with pytest.raises(SettingsError, match="in another file, too"):
        read_boards(tmp_path)


def test_a_board_that_is_none_is_named_with_its_neighbour() -> None:
    with pytest.raises(SettingsError, match="fleet"):
        chosen({"fleet": {}, "job": {}}, ["flet"])
    assert list(chosen({"fleet": {}, "job": {}}, ["job"])) == ["job"]


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1y", "9999999999h"])
def test_spans_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--since"):
        read_span(text)
