"""What can be set for an agent: by a TOML file, by the environment, by flags, in that order."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from collector.contract.errors import SettingsError
from collector.contract.layers import Layer, combine, convert_table, read_layers, unknown
from collector.contract.wire import COMMON_LABELS_MAX, NAME_BYTES_MAX
from collector.sources import SourceSettings

ENVIRONMENT_PREFIX = "FABRICSCOPE_AGENT_"
INTERVAL_SECONDS_MIN = 0.01
"""A hundred reads a second; faster is the business of the burst sampler, of few counters."""
SPOOL_BYTES_MIN = 64 << 10
"""A batch of 500 series in five seconds has 9 to 18 kB: less than this holds nothing."""
RESERVED_LABELS = frozenset({"host", "cluster", "source", "metric", "reason"})

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

log = logging.getLogger(__name__)


class ConfigurationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether this host takes configurations that operators roll out (`fabricscope config`)."""

    from_service: bool = False
    """Take what the service hands out for sources and intervals. Off: this file alone counts."""
    key_file: str = ""
    """A file with the key that configurations must be signed with (`fabricscope config push
    --key-file`). Empty: TLS and the token are all that vouches for the service."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set for an agent, with the default and its reason."""

    host: str = ""
    """The name under which this host is known. Empty: the machine's own name."""
    cluster: str = ""
    """The cluster that the host belongs to; a label of everything that is sent. Empty: no label."""
    labels: dict[str, str] = {}
    """More labels for everything that is sent (rack, rail, …)."""
    service_url: str = "http://127.0.0.1:9700"
    """Where batches go. Empty: nowhere, for hosts that are only scraped."""
    token: str = ""
    """The bearer token. Better in `token_file`: a settings file is read by many."""
    token_file: str = ""
    """A file that holds the token; read at each attempt, so that it can be replaced."""
    ca_file: str = ""
    """Certificates that the service's must be signed by. Empty: the system's."""
    spool_dir: str = "/var/lib/fabricscope/agent"
    """Where batches wait. It survives a restart of the host, which /run would not."""
    spool_bytes_max: int = 256 << 20
    """An hour without the service at 500 series a second is 1.8 million samples: 720 batches of
    81 kB (2,500 samples of 20 bytes, and the table of series), 58 MB if nothing of it could be
    compressed, 6 to 13 MB as measured. The default holds four such hours at the very least."""
    listen: str = "127.0.0.1:9701"
    """HOST:PORT of the agent's own /metrics. Empty: off. Loopback, because it asks for no token."""
    flush_seconds: float = 5.0
    """How long readings are collected into one batch: the share of the table of series in a batch
    falls with it, and the delay until a detector sees a reading grows with it."""
    retry_seconds_max: float = 30.0
    """The longest pause between two attempts to send: on average half of it, so ten thousand
    agents ask a service that is down 670 times a second, which it survives coming back."""
    stop_seconds: float = 5.0
    """How long a stopping agent tries to deliver what it has. What remains stays in the spool. Well
    below the 30 s after which Kubernetes kills."""
    configuration: ConfigurationSettings = ConfigurationSettings()
    sources: dict[str, SourceSettings] = {}
    """One table for each source, with the source's own settings."""

    def common_labels(self, machine_name: str) -> dict[str, str]:
        given = {"host": self.host or machine_name, "cluster": self.cluster}
        return {**self.labels, **{name: value for name, value in given.items() if value}}

    def listen_address(self) -> tuple[str, int] | None:
        if not self.listen:
            return None
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    def token_reader(self) -> Callable[[], str]:
        """A function that gives the bearer token at each attempt to send."""
        return TokenFile(Path(self.token_file)).read if self.token_file else lambda: self.token


class TokenFile:
    """A token in a file that may be replaced, or be missing for a moment while it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._is_failing = False

    def read(self) -> str:
        """The token now; the last one that could be read, while the file cannot be."""
        try:
            self._token = self._path.read_text("utf-8").strip()
            self._is_failing = False
        except (OSError, UnicodeDecodeError) as error:
            if not self._is_failing:
                log.warning("token_file %s cannot be read: %s", self._path, error)
            self._is_failing = True
        return self._token


def load_settings(
    source_types: Mapping[str, type[SourceSettings]],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    served: Layer | None = None,
) -> AgentSettings:
    """The settings, checked. ``flags`` are those given on the command line, by setting's name.

    ``served`` is what the service handed out: it wins over the file, and the environment and the
    flags, which are of this host alone, win over it.
    """
    layers = read_layers(file=file, environment=environment, prefix=ENVIRONMENT_PREFIX, flags=flags)
    if served is not None:
        layers.insert(1 if file is not None else 0, served)
    sources = combine_sources(source_types, layers)
    settings = msgspec.structs.replace(combine(AgentSettings, layers), sources=sources)
    check_settings(settings, str(file) if file is not None else "settings")
    return settings


def combine_sources(
    source_types: Mapping[str, type[SourceSettings]], layers: Iterable[Layer]
) -> dict[str, SourceSettings]:
    """Settings of every source there is; takes the table ``sources`` out of the layers."""
    chosen: dict[str, dict[str, Any]] = {name: {} for name in source_types}
    places = dict.fromkeys(source_types, "settings")
    for layer in layers:
        tables = layer.values.pop("sources", {})
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            raise SettingsError(f"{layer.place}: sources must be tables: [sources.NAME]")
        for name, table in tables.items():
            if name not in source_types:
                raise SettingsError(f"{layer.place}: {unknown('source', name, source_types)}")
            path = f"sources.{name}."
            chosen[name] |= convert_table(source_types[name], table, layer, path)
            places[name] = f"{layer.place}: sources.{name}"
    found: dict[str, SourceSettings] = {}
    for name, settings_type in source_types.items():
        found[name] = settings_type(**chosen[name])
        check_source(found[name], places[name])
    return found


def check_settings(settings: AgentSettings, where: str) -> None:
    def refuse(key: str, why: str) -> None:
        raise SettingsError(f"{where}: {key} = {getattr(settings, key)!r}: {why}")

    if settings.service_url and not _is_service_url(settings.service_url):
        refuse("service_url", "must be http://HOST[:PORT] or https://HOST[:PORT]")
    if settings.token and settings.token_file:
        raise SettingsError(f"{where}: token and token_file are both set; keep one")
    if settings.configuration.key_file and not settings.configuration.from_service:
        raise SettingsError(
            f"{where}: configuration.key_file is set and configuration.from_service is not: "
            "set it to true, or leave the key out"
        )
    if settings.listen and not _is_address(settings.listen):
        refuse("listen", "must be HOST:PORT, or empty for no /metrics")
    if settings.spool_bytes_max < SPOOL_BYTES_MIN:
        refuse("spool_bytes_max", f"must be at least {SPOOL_BYTES_MIN}")
    for key in ("flush_seconds", "retry_seconds_max"):
        if not 0 < getattr(settings, key) <= 3600:  # noqa: PLR2004 - an hour
            refuse(key, "must be above 0 and at most 3600")
    if not 0 <= settings.stop_seconds <= 3600:  # noqa: PLR2004 - an hour
        refuse("stop_seconds", "must be from 0 to 3600")
    if len(settings.host) > NAME_BYTES_MAX or not settings.host.isprintable():
        refuse("host", f"must be at most {NAME_BYTES_MAX} printable characters")
    if why := fault_in_labels(settings.labels):
        refuse("labels", why)


def fault_in_labels(labels: Mapping[str, str]) -> str:
    """Why these cannot be labels of everything that is sent; empty if they can."""
    if len(labels) > COMMON_LABELS_MAX - 2:
        return f"at most {COMMON_LABELS_MAX - 2} labels, beside host and cluster"
    for name in labels:
        if not _LABEL_NAME.fullmatch(name) or name.startswith("__"):
            return f"{name!r} is not a label's name: letters, digits and _"
        if name in RESERVED_LABELS:
            return f"{name!r} is set by the agent itself"
    return ""


def check_source(settings: SourceSettings, where: str) -> None:
    if not INTERVAL_SECONDS_MIN <= settings.interval_seconds <= 86_400:  # noqa: PLR2004 - a day
        value = settings.interval_seconds
        raise SettingsError(f"{where}: interval_seconds = {value!r}: must be 0.01 to 86400")
    if not 0 < settings.timeout_seconds <= 3600:  # noqa: PLR2004 - an hour
        value = settings.timeout_seconds
        raise SettingsError(f"{where}: timeout_seconds = {value!r}: must be above 0, at most 3600")


def _is_service_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and int(port) < 1 << 16
