"""The service's settings: what can be set, its default, and why the default is what it is."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from alerts.policy.file import read_policy
from alerts.rulebook.knobs import default_knobs, turn
from api.base.process_limits import WORKERS_MAX
from api.data.store.store import RETAINED_TABLES, RETENTION_DAYS_DEFAULT
from api.fabric.file import links_of, naming, read_file
from api.fabric.plan import read_plan
from api.http.duties import Role
from api.http.tenants import TenantLimits, check_limits
from api.http.tls import Certificate
from api.http.tokens.file import read_token_file
from api.oncall.notify.settings import (
    AlertmanagerTable,
    NotifierSettings,
    read_alertmanagers,
    read_notify_file,
)
from api.oncall.rules.settings import RuleSettings
from api.promql.values import Dialect
from collector.contract.client_flags import SERVICE_VARIABLE, TOKEN_VARIABLE
from collector.contract.errors import IdentityError, SettingsError
from collector.contract.identity import METRIC_LABEL, canonical_labels, check_labels
from collector.contract.layers import combine, read_layers, read_toml
from collector.contract.measurement import MeasurementKind

ENVIRONMENT_PREFIX = "FABRICSCOPE_"
AGENT_PREFIX = "FABRICSCOPE_AGENT_"
"""The agent's variables; the service must not take them for mistyped ones of its own."""

CLIENT_VARIABLES = frozenset({SERVICE_VARIABLE, TOKEN_VARIABLE})
"""What people set for programs that ask the service (`top`, `slurm`, …) in the same shell."""

RULES_INTERVAL_S_MIN, RULES_INTERVAL_S_MAX = 1.0, 3_600.0
"""Agents report every five seconds; and rules that run less than once an hour come too late."""

PRICE_MAX = 1e6
"""Of a GPU-hour, in any currency: above it a digit too many was typed."""
CURRENCY_CHARS_MAX = 8
HOST_NAME = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
"""A name in `allowed_hosts`: any, all below a name, or the name itself."""


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class RetentionDays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many days each table keeps. A month shows a trend, and fits on a laptop's disk."""

    samples: int = RETENTION_DAYS_DEFAULT
    """Days that samples are kept; older ones are refused as `too_old`."""
    series: int = RETENTION_DAYS_DEFAULT
    """Days that the names of series are kept: at least as long as the samples. Where roll-ups are
    kept longer, names are too: none could be asked about without."""
    events: int = RETENTION_DAYS_DEFAULT
    """Days that events are kept."""
    exemplars: int = RETENTION_DAYS_DEFAULT
    """Days that exemplars are kept."""
    collectives: int = 7
    """Days that records of collectives are kept: ten thousand ranks make 860 million a day, and
    what people ask of them later is in the series made from them."""
    steps: int = RETENTION_DAYS_DEFAULT
    """Days that records of training steps are kept."""
    findings: int = RETENTION_DAYS_DEFAULT
    """Days that findings and verdicts are kept; incidents are in the inventory."""
    rollup_5m: int = 90
    """Days that five-minute roll-ups of samples are kept."""
    rollup_1h: int = 400
    """Days that one-hour roll-ups of samples are kept: a year, and the month to compare with."""

    def by_table(self) -> dict[str, int]:
        """As the store keeps them: names as long as what they name."""
        days: dict[str, int] = msgspec.structs.asdict(self)
        return days | {"series": max(self.series, self.rollup_5m, self.rollup_1h)}


AUTO = "auto"
CORES_PER_WORKER = 4
"""Of `workers = "auto"`: a process that takes requests keeps one core busy at most; the engine's
inserts, merges and answers, and the evaluator, need the others. An estimate, to be measured."""

RETENTION_BYTES_MIN = 1 << 30
"""Below it a store of one host would drop yesterday every day: a mistaken unit."""
SENDER_BUDGETS_MAX = 1e6
"""Past it there is nothing to bound."""


PORT_MAX = (1 << 16) - 1
GRPC_LISTEN, GRPC_EXAMPLE = "otlp_grpc_listen", "0.0.0.0:4317"


def address_of(setting: str, value: str, example: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; SettingsError names the setting."""
    host, _, port = value.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal():
        raise SettingsError(f"{setting} is {value!r}; write HOST:PORT, as {example}")
    if int(port) > PORT_MAX:
        raise SettingsError(f"{setting} is {value!r}; a port is 0 to {PORT_MAX}, as in {example}")
    return host, int(port)


def is_loopback_host(host: str) -> bool:
    return host == "localhost" or (is_ip(host) and ipaddress.ip_address(host).is_loopback)


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set; the same names in the file, the environment and as flags."""

    data: str = "/var/lib/fabricscope"
    """Folder of the embedded store and inventory."""
    listen: str = "127.0.0.1:9700"
    """Loopback, so that an install without a token is reachable from this machine only."""
    otlp_grpc_listen: str = ""
    """Where OTLP over gRPC is taken, as 0.0.0.0:4317; the certificate and the tokens are those of
    ``listen``. Empty: over HTTP alone."""
    store: str = ""
    """Telemetry: chdb:///path or clickhouse://user:password@host:8123/database?cluster=name, with
    &shards=N where the cluster has several. Empty: chDB below ``data``."""
    inventory: str = ""
    """Inventory: sqlite:///path or postgresql+psycopg://… Empty: SQLite below ``data``."""
    role: str = Role.ALL.value
    """all, ingest, query or evaluate: what this service does of what several do that share a
    ClickHouse and an inventory. `ingest` takes telemetry, `query` answers questions, `evaluate`
    judges, pages and acts."""
    workers: str | int = 0
    """Processes that take requests, beside one that evaluates and, with the embedded store, one
    that owns it. 0: one process does it all. `auto`: 0 below 4 cores, else one for every 4."""
    token_file: str = ""
    """File with bearer tokens, one a line: TOKEN, then its scopes with commas (left out: admin),
    the hosts of which it may send telemetry (`hosts=node-a,gpu-*`; left out: any) and a name, if
    you like; read again when it changes. Or make tokens with `fabricscope token`. To
    listen on anything but loopback there must be one."""
    require_tokens: bool = False
    """Ask for a token on loopback too, as behind a proxy. Beyond it, and with a `token_file`, the
    service always asks."""
    allowed_hosts: str | list[str] = ""
    """Names by which clients may call the service (their Host header), as a list or with commas
    between them; `*.example` allows all names below it, `*` any. Loopback names and the one in
    `external_url` are always allowed. Empty: these only, or any name where tokens are required."""
    sender_budgets: float = 1.0
    """Times all budgets of senders (bytes, samples, new series and hosts a minute, series a day):
    2 doubles them, 0 leaves senders unbounded."""
    tenant_limits: dict[str, TenantLimits] = {}
    """Bounds of what comes with one token, by its name; `*`: of every other token, each for itself.
    In the file a table a token: samples_a_second, active_series (of a day), queries (at once),
    query_samples_a_minute. 0 or left out: unbounded. Of each process, where there are several."""
    accept_alerts: bool = False
    """Whether senders may write `ALERTS` and `ALERTS_FOR_STATE`, as a vmalert does that keeps its
    state here. The service's own rules write them, so by default what senders send is refused."""
    tls_certificate: str = ""
    """Certificate chain (PEM). With it and the key, the service speaks TLS. Both are read again
    when they change."""
    tls_key: str = ""
    """The certificate's private key (PEM)."""
    retention_days: RetentionDays = RetentionDays()
    price_per_gpu_hour: float = 0.0
    """What an hour of a GPU costs you, for `/v1/costs`. 0: not known, costs are in GPU-hours."""
    currency: str = "USD"
    """What that price is in."""
    retention_bytes: int = 0
    """Bytes on disk that samples, records, events and findings may take together; past it the
    oldest days are dropped, of all tables, never today; roll-ups, which are kept longer, shrink by
    the same share. 0: unbounded, `retention_days` alone counts."""
    probe_mesh: bool = False
    """Whether agents that allow it (`networks` of their source `probes`) are told whom to probe: a
    few hosts of each rail, so that each leaf, and each pair of leaves, is crossed by some."""
    rollups: bool = True
    """Whether samples are rolled up into rows of five minutes and of an hour, which are kept for
    months and answer questions about long times. Not on a cluster of several shards."""
    hosts_kept_days: int = 90
    """Days without a sign after which a host or switch leaves the inventory, with its devices,
    ports and cables: a quarter outlasts a repair. One that is held stays. 0: never."""
    promql_dialect: str = Dialect.PROMETHEUS_3.value
    """prometheus-3 or prometheus-2: whose rules decide where the generations differ."""
    promql_aliases: bool = True
    """A query on our metric names also sees what other exporters call the same thing."""
    audit_expectations: str = ""
    """File (TOML) with the values that the audit expects; empty: the majority of like hosts."""
    topology_file: str = ""
    """Cables that no port reports (TOML or JSON), beside those that ports report."""
    topology_plan: str = ""
    """What should be cabled (TOML or JSON: links, or a pattern); cables are compared with it."""
    rules_pack: bool = True
    """Whether the rule pack that is shipped is evaluated."""
    rules_knobs: str = ""
    """File (TOML) with `name = value` lines: other thresholds for the pack. Empty: its own."""
    rules_dir: str = ""
    """Folder of rule files of your own (*.yaml, *.yml); read again when they change."""
    rules_interval_s: float = 30.0
    """How often a rule group without an interval of its own is evaluated, in seconds."""
    own_numbers: bool = True
    """Whether the service writes its own metrics to its store, so that rules can be about it."""
    external_url: str = ""
    """The address at which people reach this service: links in alerts begin with it."""
    grafana_url: str = ""
    """The address at which people reach Grafana. With it, alerts get a link to the dashboard about
    the thing that they name, at that time (annotation `dashboard`)."""
    perfetto_url: str = "https://ui.perfetto.dev"
    """The Perfetto in which the page opens traces, in a new tab and when its reader asks for it:
    the browser hands the trace over, and the service sends nothing there. It may be a copy of your
    own. Empty: the page offers files only, as in networks that must not reach others."""
    external_labels: dict[str, str] = {}
    """Labels that distinguish this installation's alerts from those of others."""
    alertmanagers: str | list[str | AlertmanagerTable] = ""
    """Alertmanagers that are sent every alert: addresses with commas between them, or in the file a
    list of addresses or tables (url, username, password_file, bearer_token_file, timeout_s)."""
    notify_file: str = ""
    """File (TOML) with receivers and routes of the built-in notifier. Empty: it notifies no
    receiver."""
    policy_file: str = ""
    """File (TOML) that decides which verdicts drain a host, for how long and how many; read again
    when it changes. Empty: the shipped one, which only writes down what it would have done."""
    ask_back: str | list[str] = "burst_capture,ras_status"
    """Measurements that the service requests by itself where a verdict stays unsure, as a list or
    with commas between them. A burst capture costs an agent a copy of what its sampler holds, and a
    status of NCCL's RAS a thread of a job some milliseconds, so both are on. Empty: it requests
    nothing, and verdicts only name what would decide."""
    log_level: str = "info"
    """debug, info, warning or error."""

    @property
    def data_path(self) -> Path:
        """Absolute."""
        return Path(self.data).expanduser().resolve()

    @property
    def store_url(self) -> str:
        return self.store or f"chdb://{self.data_path / 'telemetry'}"

    @property
    def inventory_url(self) -> str:
        return self.inventory or f"sqlite:///{self.data_path / 'inventory.db'}"

    @property
    def is_store_embedded(self) -> bool:
        return self.store_url.startswith("chdb:")

    @property
    def worker_count(self) -> int:
        """``workers``; raises SettingsError for what is no number of processes."""
        given = str(self.workers)
        if given == AUTO:
            return len(os.sched_getaffinity(0)) // CORES_PER_WORKER
        if not given.isdecimal() or int(given) > WORKERS_MAX:
            raise SettingsError(
                f"workers is {given!r}; write auto, or a number from 0 to {WORKERS_MAX}"
            )
        return int(given)

    @property
    def address(self) -> tuple[str, int]:
        return address_of("listen", self.listen, "127.0.0.1:9700")

    @property
    def grpc_address(self) -> tuple[str, int]:
        return address_of(GRPC_LISTEN, self.otlp_grpc_listen, GRPC_EXAMPLE)

    @property
    def public_url(self) -> str:
        """Prefix of links in alerts: ``external_url``, or where the service listens."""
        scheme = "https" if self.tls_certificate else "http"
        return self.external_url.rstrip("/") or f"{scheme}://{self.listen}"

    @property
    def is_loopback(self) -> bool:
        return not self.reachable

    @property
    def reachable(self) -> str:
        """The first setting by which others can reach the service, and its value; empty: none."""
        if not is_loopback_host(self.address[0]):
            return f"listen is {self.listen}"
        if self.otlp_grpc_listen and not is_loopback_host(self.grpc_address[0]):
            return f"{GRPC_LISTEN} is {self.otlp_grpc_listen}"
        return ""

    @property
    def token_need(self) -> str:
        """Why a request needs a token; empty: it does not."""
        if reachable := self.reachable:
            return f"{reachable}, which others can reach"
        if self.require_tokens:
            return "require_tokens is set"
        return "token_file is set" if self.token_file else ""

    @property
    def host_names(self) -> tuple[str, ...]:
        """``allowed_hosts``, each in lower case."""
        given = self.allowed_hosts
        names = given.split(",") if isinstance(given, str) else given
        return tuple(name.strip().lower() for name in names if name.strip())

    @property
    def kinds_asked(self) -> frozenset[MeasurementKind]:
        """``ask_back``; raises SettingsError for a kind that nothing serves."""
        given = self.ask_back
        names = given.split(",") if isinstance(given, str) else given
        served = [kind for kind in MeasurementKind if kind.facts.is_served]
        wanted = {name.strip() for name in names if name.strip()}
        if odd := sorted(wanted - {kind.value for kind in served}):
            raise SettingsError(
                f"ask_back has {', '.join(odd)}; the service can request {', '.join(served)}"
            )
        return frozenset(map(MeasurementKind, wanted))

    @property
    def rules(self) -> RuleSettings:
        return RuleSettings(
            pack=self.rules_pack,
            knobs=self.rules_knobs,
            folder=self.rules_dir,
            interval_s=self.rules_interval_s,
            external_labels=self.external_labels,
            public_url=self.public_url,
            port=self.address[1],
        )

    @property
    def notifier(self) -> NotifierSettings:
        """The settings of the notifier, with its file read. Raises SettingsError."""
        return NotifierSettings(
            file=read_notify_file(self.notify_file),
            alertmanagers=read_alertmanagers(self.alertmanagers),
            interval_s=self.rules_interval_s,
            external_labels=self.external_labels,
            public_url=self.public_url,
        )

    def check(self) -> None:
        """Raise SettingsError for settings that cannot work, before anything is opened."""
        _ = self.address, self.reachable
        self._check_processes()
        if self.token_file:
            read_token_file(Path(self.token_file))
        if self.topology_file:
            with naming(Path(self.topology_file)):
                links_of(read_file(Path(self.topology_file)))
        if self.topology_plan:
            read_plan(Path(self.topology_plan))
        self._check_door()
        check_limits(self.tenant_limits)
        self._check_rules()
        self._check_price()
        _ = self.notifier, self.kinds_asked
        read_policy(self.policy_file)
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise SettingsError("tls_certificate and tls_key go together; one of them is not set")
        if self.tls_certificate:
            Certificate(self.tls_certificate, self.tls_key).check()
        if self.promql_dialect not in set(Dialect):
            raise SettingsError(
                f"promql_dialect is {self.promql_dialect!r}; there are {', '.join(Dialect)}"
            )
        for table in RETAINED_TABLES:
            days = getattr(self.retention_days, table)
            if not 1 <= days <= 3650:  # noqa: PLR2004 - ten years
                raise SettingsError(f"retention_days.{table} is {days}; between 1 and 3650")
        if self.retention_bytes and self.retention_bytes < RETENTION_BYTES_MIN:
            raise SettingsError(
                f"retention_bytes is {self.retention_bytes}; 0 (unbounded), or at least "
                f"{RETENTION_BYTES_MIN}; it is in bytes"
            )
        if not 0 <= self.hosts_kept_days <= 3650:  # noqa: PLR2004 - the same
            raise SettingsError(f"hosts_kept_days is {self.hosts_kept_days}; 0 (never) to 3650")
        if self.retention_days.series < self.retention_days.samples:
            raise SettingsError(
                f"retention_days.series is {self.retention_days.series}, less than samples' "
                f"{self.retention_days.samples}: samples would outlive their names"
            )

    def _check_processes(self) -> None:
        """Refuse roles and workers that could not see each other's data, by name."""
        if self.role not in set(Role):
            raise SettingsError(f"role is {self.role!r}; there are {', '.join(Role)}")
        if self.worker_count and self.role == Role.EVALUATE:
            raise SettingsError(
                f"role is evaluate and workers {self.workers}: workers take requests, and this role"
                " takes none; leave workers out, and start more services to share evaluation"
            )
        if self.otlp_grpc_listen and self.role not in {Role.ALL, Role.INGEST}:
            raise SettingsError(
                f"{GRPC_LISTEN} is set and role is {self.role}, which takes no telemetry; leave it"
                " out, or set it where role is ingest"
            )
        if self.role == Role.ALL:
            return
        if self.is_store_embedded:
            raise SettingsError(
                f"role is {self.role} and the store is embedded: no other process could open it;"
                " set store to clickhouse://…, or leave role out and set workers"
            )
        if not self.inventory:
            raise SettingsError(
                f"role is {self.role} and the inventory is in this service's own data folder: set"
                " inventory to postgresql+psycopg://…, or to sqlite:///PATH on a disk of this"
                " machine, for all services that share the work"
            )

    def _check_door(self) -> None:
        for name in self.host_names:
            if not HOST_NAME.fullmatch(name) and not is_ip(name):
                raise SettingsError(f"allowed_hosts has {name!r}; write names without port or path")
        if not 0 <= self.sender_budgets <= SENDER_BUDGETS_MAX:
            raise SettingsError(
                f"sender_budgets is {self.sender_budgets:g}; from 0, which is unbounded, to "
                f"{SENDER_BUDGETS_MAX:g}"
            )

    def _check_price(self) -> None:
        if not 0 <= self.price_per_gpu_hour <= PRICE_MAX:
            raise SettingsError(
                f"price_per_gpu_hour is {self.price_per_gpu_hour}; 0 (not known) to {PRICE_MAX:g}"
            )
        if not 1 <= len(self.currency) <= CURRENCY_CHARS_MAX or not self.currency.isprintable():
            raise SettingsError(
                f"currency is {self.currency!r}; 1 to {CURRENCY_CHARS_MAX} characters, as USD"
            )

    def _check_rules(self) -> None:
        if not RULES_INTERVAL_S_MIN <= self.rules_interval_s <= RULES_INTERVAL_S_MAX:
            raise SettingsError(
                f"rules_interval_s is {self.rules_interval_s:g}; between "
                f"{RULES_INTERVAL_S_MIN:g} and {RULES_INTERVAL_S_MAX:g} seconds"
            )
        if self.rules_knobs:
            turn(read_toml(Path(self.rules_knobs)), default_knobs())
        if self.rules_dir and not Path(self.rules_dir).is_dir():
            raise SettingsError(f"rules_dir is {self.rules_dir}, which is no folder")
        for name in ("external_url", "grafana_url", "perfetto_url"):
            url = getattr(self, name)
            if url and not url.startswith(("http://", "https://")):
                raise SettingsError(f"{name} is {url!r}; write http://HOST:PORT or https://HOST")
        try:
            check_labels(canonical_labels({**self.external_labels, METRIC_LABEL: "x"}))
        except IdentityError as error:
            raise SettingsError(f"external_labels: {error}") from error


def load_service_settings(
    file: Path | None, flags: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> ServiceSettings:
    variables = os.environ if environment is None else environment
    layers = read_layers(
        file=file,
        environment={
            name: value
            for name, value in variables.items()
            if not name.startswith(AGENT_PREFIX) and name not in CLIENT_VARIABLES
        },
        prefix=ENVIRONMENT_PREFIX,
        flags=flags,
    )
    settings = combine(ServiceSettings, layers)
    settings.check()
    return settings
