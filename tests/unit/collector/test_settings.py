"""Settings: where they come from, which one wins, and the error for a mistake."""

from pathlib import Path
from typing import Any

import pytest

from collector.agent.settings import AgentSettings, TokenFile, load_settings
from collector.contract.errors import SettingsError
from collector.sources import SourceSettings


class BurstSettings(SourceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    counters: tuple[str, ...] = ()


TYPES: dict[str, type[SourceSettings]] = {"ib_sysfs": SourceSettings, "bursts": BurstSettings}


def load(
    text: str | None = None,
    *,
    folder: Path = Path(),
    environment: dict[str, str] | None = None,
    flags: dict[str, Any] | None = None,
) -> AgentSettings:
    file = None
    if text is not None:
        file = folder / "agent.toml"
        file.write_text(text)
    return load_settings(TYPES, file=file, environment=environment or {}, flags=flags or {})


def test_defaults_enable_every_source() -> None:
    settings = load()
    assert settings.service_url == "http://127.0.0.1:9700"
    assert settings.listen_address() == ("127.0.0.1", 9701)
    assert list(settings.sources) == ["ib_sysfs", "bursts"]
    assert settings.common_labels("node-0") == {"host": "node-0"}


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    settings = load(
        'host = "file"\ncluster = "file"\nlisten = ""\n[sources.bursts]\ncounters = ["a"]\n',
        folder=tmp_path,
        environment={"FABRICSCOPE_AGENT_CLUSTER": "env", "FABRICSCOPE_AGENT_HOST": "env"},
        flags={"host": "flag"},
    )
    assert (settings.host, settings.cluster) == ("flag", "env")
    assert settings.listen_address() is None
    assert settings.sources["bursts"] == BurstSettings(counters=("a",))


def test_environment_holds_numbers_and_labels() -> None:
    environment = {
        "FABRICSCOPE_AGENT_FLUSH_SECONDS": "0.5",
        "FABRICSCOPE_AGENT_LABELS__RACK": "r1",
        "FABRICSCOPE_AGENT_LABELS__RAIL": "2",
        "FABRICSCOPE_AGENT_SOURCES__BURSTS__INTERVAL_SECONDS": "2",
        "PATH": "/bin",
    }
    settings = load(environment=environment)
    assert settings.flush_seconds == 0.5
    assert settings.sources["bursts"].interval_seconds == 2.0
    assert settings.common_labels("n") == {"rack": "r1", "rail": "2", "host": "n"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('spool_dri = "/x"', "unknown setting 'spool_dri'; did you mean 'spool_dir'?"),
        ("flush_seconds = 'soon'", "flush_seconds = 'soon': Expected `float`, got `str`"),
        ("flush_seconds = 0", "flush_seconds = 0.0: must be above 0"),
        ("spool_bytes_max = 10", "spool_bytes_max = 10: must be at least 65536"),
        ('service_url = "node:9700"', "service_url = 'node:9700': must be http://HOST"),
        ('service_url = "http://n:99999"', "must be http://HOST"),
        ('listen = "9701"', "listen = '9701': must be HOST:PORT"),
        ('token = "a"\ntoken_file = "b"', "token and token_file are both set"),
        ('[labels]\nhost = "x"', "'host' is set by the agent itself"),
        ('[labels]\n"a-b" = "x"', "'a-b' is not a label's name"),
        ("[sources.ib_sysf]", "unknown source 'ib_sysf'; did you mean 'ib_sysfs'?"),
        ("[sources.zzz]", "unknown source 'zzz'; there are: bursts, ib_sysfs"),
        (
            "[sources.ib_sysfs]\nintervall_seconds = 1",
            "unknown setting 'sources.ib_sysfs.intervall_seconds'; did you mean 'sources.ib_s",
        ),
        ("[sources.ib_sysfs]\ninterval_seconds = 0", "interval_seconds = 0.0: must be 0.01"),
        ("[sources.ib_sysfs]\ntimeout_seconds = -1", "timeout_seconds = -1.0: must be above 0"),
        ("sources = 3", "sources must be tables"),
        ("host =", "not a TOML file"),
    ],
)
def test_a_mistake_names_file_key_and_value(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text, folder=tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/agent.toml: ")
    assert message in str(caught.value)


def test_mistakes_outside_the_file_name_their_place(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"environment: unknown setting .* did you mean"):
        load(environment={"FABRICSCOPE_AGENT_SPOOL_DRI": "/x"})
    with pytest.raises(SettingsError, match="environment: flush_seconds = 'x'"):
        load(environment={"FABRICSCOPE_AGENT_FLUSH_SECONDS": "x"})
    with pytest.raises(SettingsError, match="command line: flush_seconds = 'x'"):
        load(flags={"flush_seconds": "x"})
    with pytest.raises(SettingsError, match="environment: unknown source 'burst'"):
        load(environment={"FABRICSCOPE_AGENT_SOURCES__BURST__ENABLED": "0"})
    with pytest.raises(SettingsError, match=r"absent\.toml: No such file"):
        load_settings(TYPES, file=tmp_path / "absent.toml", environment={}, flags={})


def test_a_token_file_is_read_again_and_its_last_token_kept(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = TokenFile(file)
    assert token.read() == ""
    file.write_text("one\n")
    assert token.read() == "one"
    file.write_text("two")
    assert token.read() == "two"
    file.unlink()
    assert token.read() == "two"


def test_listen_on_ipv6() -> None:
    assert load(flags={"listen": "[::1]:9701"}).listen_address() == ("::1", 9701)
