"""The token file: tokens that an operator has written, or that are mounted as a secret.

One a line: the token, its scopes with commas between them (left out: admin), the hosts of which it
may send telemetry (`hosts=node-a,gpu-*`; left out: any), a name.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from api.base.host_names import ANY, parse_patterns
from api.base.limits import TOKEN_CHARS_MAX, TOKEN_CHARS_MIN, TOKEN_FILE_TOKENS_MAX
from api.data.inventory.token_model import Scope, Token
from api.http.tokens.model import digest_of
from api.http.tokens.scopes import parse_scopes
from collector.contract.errors import SettingsError
from collector.contract.identity import printable

HOSTS_WORD = "hosts="
EPOCH = dt.datetime.fromtimestamp(0, tz=dt.UTC)


def read_token_file(file: Path) -> tuple[Token, ...]:
    """The tokens of a file, at least one; SettingsError names the line, never the token."""
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise SettingsError(f"token_file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"token_file {file} is not text: {error.reason}") from error
    lines = enumerate(text.splitlines(), start=1)
    tokens = tuple(
        parse_line(line, number, file)
        for number, line in lines
        if line.strip() and not line.lstrip().startswith("#")
    )
    if not 1 <= len(tokens) <= TOKEN_FILE_TOKENS_MAX:
        raise SettingsError(
            f"token_file {file} has {len(tokens)} tokens; it needs 1 to {TOKEN_FILE_TOKENS_MAX}, "
            "one a line (more: fabricscope token create)"
        )
    return tokens


def parse_line(line: str, number: int, file: Path) -> Token:
    secret, scopes, rest, *_ = [*line.split(maxsplit=2), "", ""]
    word, _, others = rest.partition(" ")
    patterns, name = (word, others) if word.startswith(HOSTS_WORD) else ("", rest)
    if not TOKEN_CHARS_MIN <= len(secret) <= TOKEN_CHARS_MAX:
        raise SettingsError(
            f"token_file {file}, line {number}: a token of {len(secret)} characters; it needs "
            f"{TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX}"
        )
    try:
        allowed = parse_scopes(scopes) if scopes else {Scope.ADMIN}
        hosts = parse_patterns(patterns.removeprefix(HOSTS_WORD)) if patterns else (ANY,)
    except SettingsError as error:
        raise SettingsError(f"token_file {file}, line {number}: {error}") from error
    return Token(
        id=f"line{number}",
        name=printable(name.strip()) or f"line {number} of the token file",
        digest=digest_of(secret),
        scopes=tuple(sorted(allowed)),
        created_at=EPOCH,
        hosts=hosts,
    )
