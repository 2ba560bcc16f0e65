"""Looks at this machine: folder, disk, clock, zone, open files, certificate, addresses."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from api.base.limits import DISK_FREE_BYTES_MIN
from api.http.cli import RESTORING, claim
from api.http.operating.doctor.model import Look, ok, warning, wrong
from api.http.settings import ServiceSettings
from api.oncall.notify.table import secret_of
from collector.contract.errors import SettingsError

DISK_SHARE_MIN = 0.1
"""Below it: a day of samples may not fit any more, and merges need room."""
FILES_MIN = 4_096
"""Open files of a service: a thousand connections, and the engine's parts."""
CERTIFICATE_DAYS_MIN = 14
CONNECT_SECONDS = 3.0
READY_SECONDS = 10.0
DAY_SECONDS = 86_400
UNSYNCHRONISED = 5
"""What adjtimex returns for a clock that nothing disciplines (TIME_ERROR)."""
TIMEX_BYTES = 512
"""More than Linux' struct timex has on any architecture."""
MIB = 1 << 20


def look_at_folder(settings: ServiceSettings) -> Iterator[Look]:
    data = settings.data_path
    if not data.is_dir():
        yield warning("data folder", f"{data} is not there", "the first start makes it")
        return
    if (data / RESTORING).exists():
        todo = "empty the folder, and restore again"
        yield wrong("data folder", f"a restore into {data} did not end", todo)
    if not os.access(data, os.W_OK | os.X_OK):
        todo = "run this as the service's user; if you did: chown -R it to that user"
        yield wrong("data folder", f"{data} cannot be written by this user", todo)
    else:
        yield ok("data folder", str(data))
    space = os.statvfs(data)
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    found = f"{free // MIB} of {total // MIB} MiB are free"
    todo = "free some, or set retention_days or retention_bytes lower"
    if free < DISK_FREE_BYTES_MIN:
        yield wrong("disk", found, f"inserts fail soon: {todo}")
    elif free < DISK_SHARE_MIN * total:
        yield warning("disk", found, todo)
    else:
        yield ok("disk", found)


def is_locked(data: Path) -> bool:
    """Whether a service, or a restore, works on this folder now."""
    try:
        with (data / "lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # not ours to read: the look at the folder says so
        return False
    return False


def look_at_service(settings: ServiceSettings, *, is_running: bool) -> Iterator[Look]:
    """Asks `/readyz`, which needs no token; without a service, whether its address is free."""
    host, port = settings.address
    if not is_running:
        try:
            for each in claim(host, port):
                each.close()
        except SettingsError as error:
            yield wrong("service", str(error), "or the service that runs there has other settings")
            return
        found = f"none runs on this data folder; {settings.listen} is free"
        yield warning("service", found, "start it: fabricscope serve")
        return
    try:
        answer = ask_ready(settings)
    except httpx.HTTPError as error:
        found = f"it runs and does not answer on {settings.listen}: {error}"
        yield wrong("service", found, "does it listen there? See its log")
        return
    if answer.status_code == httpx.codes.OK:
        yield ok("service", f"it is ready on {settings.listen}")
        return
    for line in answer.text.strip().splitlines()[1:] or [f"HTTP {answer.status_code}"]:
        yield wrong("service", line, "its log says more; runbooks are at /runbooks")


def ask_ready(settings: ServiceSettings) -> httpx.Response:
    host, port = settings.address
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - is compared
    where = f"[{near}]" if ":" in near else near
    scheme = "https" if settings.tls_certificate else "http"
    # The certificate has the service's public name, and nothing secret is sent.
    with httpx.Client(verify=False, trust_env=False, timeout=READY_SECONDS) as client:  # noqa: S501
        return client.get(f"{scheme}://{where}:{port}/readyz")


def look_at_clock() -> Iterator[Look]:
    state = clock_state()
    if state == UNSYNCHRONISED:
        todo = "start chrony, systemd-timesyncd or ntpd: samples of hosts are compared by time"
        yield warning("clock", "nothing synchronises this machine's clock", todo)
    elif state is None:
        yield warning("clock", "its state cannot be read", "see that NTP or PTP runs here")
    else:
        yield ok("clock", "it is synchronised")
    zone = time.strftime("%Z, UTC%z")
    yield ok("time zone", f"{zone}: the log is in it, everything else is in UTC")


def clock_state() -> int | None:
    """What the kernel says of its clock (man adjtimex); None: it cannot be asked."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        # All zero: it sets nothing.
        state = int(libc.adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)))
        return None if state < 0 else state
    return None


def look_at_files() -> Iterator[Look]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_MIN:
        todo = "ulimit -n 65536, or LimitNOFILE= in the unit, as the one that is shipped has"
        yield warning("open files", f"{soft} for programs started from here", todo)
    else:
        yield ok("open files", f"up to {soft} for programs started from here")


def look_at_certificate(settings: ServiceSettings, now_s: float) -> Iterator[Look]:
    if not settings.tls_certificate:
        if settings.is_loopback:
            yield ok("TLS", f"none is needed on {settings.listen}")
        else:
            todo = "set tls_certificate and tls_key, or put a proxy that speaks TLS before it"
            yield warning("TLS", f"none on {settings.listen}: tokens can be read on the way", todo)
        return
    ends_s = certificate_end_s(Path(settings.tls_certificate))
    if ends_s is None:
        todo = "look with openssl x509 -noout -enddate -in FILE"
        yield warning("TLS", "the end of the certificate cannot be read", todo)
        return
    days = (ends_s - now_s) / DAY_SECONDS
    found = f"{settings.tls_certificate} ends {time.strftime('%Y-%m-%d', time.gmtime(ends_s))}"
    if days < 0:
        yield wrong("TLS", f"{found}, which is over", "renew it; the service takes it by itself")
    elif days < CERTIFICATE_DAYS_MIN:
        yield warning("TLS", found, "renew it; the service takes it by itself")
    else:
        yield ok("TLS", found)


def certificate_end_s(file: Path) -> float | None:
    """When a chain's first certificate ends, unix seconds.

    Python's own reader: of its public ones each needs a connection.
    """
    try:
        read = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]  # noqa: SLF001
        return float(ssl.cert_time_to_seconds(read(str(file))["notAfter"]))
    except (AttributeError, KeyError, ValueError, OSError):
        return None


def look_at_receivers(settings: ServiceSettings) -> Iterator[Look]:
    """Connects to each, and sends nothing."""
    notifier = settings.notifier
    targets = [("alertmanager", each.url) for each in notifier.alertmanagers]
    for receiver in notifier.file.receivers:
        address = secret_of(receiver, "url", f"receiver {receiver.name}")
        if address.startswith(("http://", "https://")):
            targets.append((f"receiver {receiver.name}", address))
    if not notifier.alertmanagers and not notifier.file.receivers:
        todo = "set alertmanagers or notify_file (docs: get paged)"
        yield warning("notices", "no alert leaves the service", todo)
    for name, address in targets:
        yield from look_at_address(name, address)


def look_at_address(name: str, address: str) -> Iterator[Look]:
    """Only host and port are shown: the rest may be a secret."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    where = f"{parts.hostname}:{port}"
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except OSError as error:
        todo = "its notices are lost or late: check name, port and firewall"
        yield wrong(name, f"{where} cannot be reached: {error}", todo)
    else:
        yield ok(name, f"{where} can be reached")
