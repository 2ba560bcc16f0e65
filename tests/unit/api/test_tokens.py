"""Tokens: the scope of each route, the callers it admits, how soon a revocation works."""

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.base.edited import SETTLED_SECONDS
from api.base.limits import TOKEN_CHARS_MAX, TOKEN_FILE_TOKENS_MAX, TOKEN_USED_SECONDS
from api.data.inventory.token_model import Scope, Token
from api.data.inventory.tokens import TokenTables
from api.http.app import ROUTERS, make_bare_app
from api.http.settings import ServiceSettings
from api.http.tokens.book import TokenBook
from api.http.tokens.file import read_token_file
from api.http.tokens.model import (
    Caller,
    Denial,
    DenialReason,
    digest_of,
    given_in,
    id_in,
    make_secret,
)
from api.http.tokens.parts import make_book
from api.http.tokens.rate import Bucket
from api.http.tokens.scopes import INCLUDED, SCOPES, is_open, parse_scopes
from api.http.tokens.wish import Wish, issue
from api.http.works import working
from collector.contract.errors import InventoryError, SettingsError
from tests.stands.edited import write_aged

NOW_S = 1_800_000_000.0
NOW = dt.datetime.fromtimestamp(NOW_S, tz=dt.UTC)


# --- the table ----------------------------------------------------------------------------------


def lines() -> set[str]:
    """Method and path of every route."""
    routes: list[Any] = [route for router in ROUTERS for route in router.routes]
    return {f"{method} {route.path}" for route in routes for method in route.methods}


def test_every_route_is_open_or_asks_for_a_scope_and_no_line_is_about_nothing() -> None:
    closed = {line for line in lines() if not is_open(line.partition(" ")[2])}
    assert closed - set(SCOPES) == set(), "give these routes a scope in api/http/tokens/scopes.py"
    assert set(SCOPES) - closed == set(), "these routes do not exist or need no token"


def test_the_app_has_no_route_besides() -> None:
    assert make_bare_app(working(None, None)).routes == []  # type: ignore[arg-type]


def test_only_the_agents_scope_writes_telemetry_and_it_reads_what_is_for_agents_alone() -> None:
    writing = {line for line, scope in SCOPES.items() if scope is Scope.INGEST}
    doors = {"POST /v1/ingest", "POST /api/v1/write", "POST /otlp/v1/metrics"}
    targets = "GET /v1/agents/{agent}/probe-targets"
    assert writing == doors | {"GET /v1/configurations/{version}/document", targets}
    assert INCLUDED[Scope.INGEST] == {Scope.INGEST}
    assert Scope.INGEST not in INCLUDED[Scope.OPERATE] | INCLUDED[Scope.READ]


def test_what_changes_something_asks_for_more_than_reading() -> None:
    changing = {line for line in SCOPES if line.startswith(("PUT ", "PATCH ", "DELETE "))}
    assert {SCOPES[line] for line in changing} <= {Scope.OPERATE, Scope.ADMIN}
    assert {scope for line, scope in SCOPES.items() if "/v1/tokens" in line} == {Scope.ADMIN}


@pytest.mark.parametrize("text", ["", "reed", "read,", "read operate", "READ"])
def test_a_scope_that_is_none_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="unknown scope"):
        parse_scopes(text)


# --- texts --------------------------------------------------------------------------------------


def test_a_new_token_is_found_by_its_id_and_not_two_are_alike() -> None:
    (first, text), (second, other) = make_secret(), make_secret()
    assert (id_in(text), id_in(other)) == (first, second)
    assert text != other
    assert len(text) == 60
    assert given_in(f"Bearer {text}") == text


def test_what_is_no_token_is_none() -> None:
    assert given_in("Bearer " + "x" * TOKEN_CHARS_MAX) != ""
    assert given_in("Bearer " + "x" * (TOKEN_CHARS_MAX + 1)) == ""
    for text in ("fsc_0123456789ab_", "fsc_0123456789AB_" + "x" * 43, "\udcff", "ÿþ"):
        assert id_in(text) == ""
        assert len(digest_of(text)) == 64


# --- the file -----------------------------------------------------------------------------------


def test_a_file_says_who_may_what(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(
        "# agents\n0123456789abcdef\n\n  fedcba9876543210  ingest,read  the agents' \x1b[2J\n"
    )
    everything, agents = read_token_file(file)
    assert everything.scopes == (Scope.ADMIN,)
    assert everything.name == "line 2 of the token file"
    assert agents.scopes == (Scope.INGEST, Scope.READ)
    assert agents.name == "the agents' \ufffd[2J"
    assert agents.digest == digest_of("fedcba9876543210")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has 0 tokens"),
        (b"# nobody\n", "has 0 tokens"),
        (b"0123456789abcdef\nshort\n", "line 2: a token of 5 characters; it needs 16 to"),
        (b"0123456789abcdef reed\n", "line 1: unknown scope 'reed'; did you mean 'read'?"),
        (b"0123456789abcdef fedcba9876543210\n", "line 1: unknown scope"),
        (b"\xff" * 20, "is not text"),
        (b"0123456789abcdef\n" * (TOKEN_FILE_TOKENS_MAX + 1), "more: fabricscope token create"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_showing_a_token(
    tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_token_file(file)
    assert says in str(caught.value)
    assert "0123456789abcdef" not in str(caught.value)


# --- the book -----------------------------------------------------------------------------------


class Kept(TokenTables):
    """An inventory's tokens in memory; with `broken` the inventory does not answer."""

    def __init__(self, *tokens: Token) -> None:
        self.rows = list(tokens)
        self.used: list[dict[str, dt.datetime]] = []
        self.broken = False

    def all(self) -> list[Token]:
        if self.broken:
            raise InventoryError("the inventory is away")
        return list(self.rows)

    def note_used(self, used: Any) -> None:  # noqa: ANN401 - as the real one
        self.used.append(dict(used))


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def made(*scopes: Scope, days: float | None = None, rate: float | None = None) -> tuple[Token, str]:
    wish = Wish(name="ada", scopes=scopes or [Scope.READ], days=days, requests_per_second=rate)
    return issue(wish, NOW)


def reason_of(found: Caller | Denial) -> DenialReason:
    assert isinstance(found, Denial), found
    return found.reason


def test_only_the_whole_token_is_the_token() -> None:
    token, text = made(Scope.OPERATE)
    book = TokenBook(Kept(token), Clock())
    book.load()
    assert book.find(text) == Caller("ada", frozenset({Scope.OPERATE, Scope.READ}))
    other = text[:-1] + ("a" if text[-1] != "a" else "b")
    for wrong in (other, text[:-1], text + "x", token.digest, token.id, "\udcff", ""):
        assert reason_of(book.find(wrong)) is DenialReason.UNKNOWN_TOKEN
    assert text not in repr(token)


def test_a_token_ends_when_it_is_due_or_revoked_and_says_which() -> None:
    clock = Clock()
    token, text = made(days=1)
    kept = Kept(token)
    book = TokenBook(kept, clock)
    book.load()
    clock.now_s += 86_399
    assert isinstance(book.find(text), Caller)
    assert not book.is_empty()
    clock.now_s += 1
    assert reason_of(book.find(text)) is DenialReason.TOKEN_EXPIRED
    assert book.is_empty()
    clock.now_s = NOW_S
    kept.rows = [msgspec.structs.replace(token, revoked_at=NOW)]
    assert isinstance(book.find(text), Caller), "the service has not read the revocation yet"
    book.look()
    denial = book.find(text)
    assert reason_of(denial) is DenialReason.TOKEN_REVOKED
    assert isinstance(denial, Denial)
    assert token.id in denial.words
    kept.rows = []
    book.look()
    assert reason_of(book.find(text)) is DenialReason.UNKNOWN_TOKEN


def test_while_the_inventory_is_away_what_was_known_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    token, text = made()
    kept = Kept(token)
    book = TokenBook(kept, Clock())
    book.load()
    kept.broken = True
    book.look()
    book.look()
    assert isinstance(book.find(text), Caller)
    said = [line for line in caplog.messages if "tokens stay as they were" in line]
    assert len(said) == 1, "the service logs this once, not every two seconds"
    kept.broken, kept.rows = False, []
    book.look()
    assert reason_of(book.find(text)) is DenialReason.UNKNOWN_TOKEN


def test_a_file_is_read_again_and_one_that_is_half_written_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    write_aged(file, "0123456789abcdef read\n", 0.0)
    book = TokenBook(Kept(), Clock(), file=str(file))
    book.load()
    assert isinstance(book.find("0123456789abcdef"), Caller)
    write_aged(file, "", SETTLED_SECONDS + 1)
    book.look()
    assert isinstance(book.find("0123456789abcdef"), Caller)
    write_aged(file, "fedcba9876543210 read\n", 0.0)
    book.look()
    assert isinstance(book.find("0123456789abcdef"), Caller), "the file may be half of itself"
    write_aged(file, "fedcba9876543210 read\n", SETTLED_SECONDS + 1)
    book.look()
    assert reason_of(book.find("0123456789abcdef")) is DenialReason.UNKNOWN_TOKEN
    assert isinstance(book.find("fedcba9876543210"), Caller)


def test_when_a_token_was_used_is_written_now_and_then() -> None:
    clock = Clock()
    token, text = made()
    kept = Kept(token)
    book = TokenBook(kept, clock)
    book.load()
    for _ in range(3):
        book.find(text)
    book.look()
    assert [list(used) for used in kept.used] == [[token.id]]
    moment = kept.used[0][token.id]
    assert 0 <= NOW_S - moment.timestamp() < TOKEN_USED_SECONDS
    kept.rows = [msgspec.structs.replace(token, used_at=moment)]
    book.look()
    book.find(text)
    book.look()
    assert len(kept.used) == 1, "the service writes one use in five minutes"
    clock.now_s += TOKEN_USED_SECONDS
    book.find(text)
    book.look()
    assert len(kept.used) == 2


def test_a_token_with_a_rate_is_told_to_wait() -> None:
    ticks = Clock()
    token, text = made(rate=2.0)
    kept = Kept(token)
    book = TokenBook(kept, Clock(), ticks=ticks)
    book.load()
    assert [isinstance(book.find(text), Caller) for _ in range(5)] == [True] * 4 + [False]
    book.look()
    assert reason_of(book.find(text)) is DenialReason.TOKEN_RATE, "a reload refills no bucket"
    ticks.now_s += 0.5
    assert isinstance(book.find(text), Caller)
    assert reason_of(book.find(text)) is DenialReason.TOKEN_RATE


def test_a_slow_rate_lets_one_through_and_time_that_goes_back_gives_nothing() -> None:
    bucket = Bucket(0.1, 100.0)
    assert [bucket.take(at) for at in (100.0, 105.0, 50.0, 59.9, 60.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]


# --- the start ----------------------------------------------------------------------------------


def book_of(settings: ServiceSettings, kept: Kept) -> TokenBook:
    return make_book(kept, Clock(), file=settings.token_file, need=settings.token_need)


def test_on_loopback_nobody_needs_a_token() -> None:
    assert not ServiceSettings().token_need
    assert book_of(ServiceSettings(), Kept()).is_empty()


@pytest.mark.parametrize(
    "settings",
    [ServiceSettings(require_tokens=True), ServiceSettings(listen="10.0.0.1:9700")],
    ids=["required", "reachable"],
)
def test_whoever_others_can_reach_does_not_start_without_a_token(settings: ServiceSettings) -> None:
    assert settings.token_need
    with pytest.raises(SettingsError, match="there is no token: make one"):
        book_of(settings, Kept())
    expired = issue(Wish(name="x", scopes=[Scope.READ], days=1), NOW - dt.timedelta(days=2))[0]
    with pytest.raises(SettingsError, match="there is no token"):
        book_of(settings, Kept(expired))
    assert not book_of(settings, Kept(made()[0])).is_empty()
