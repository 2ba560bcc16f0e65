"""Bounds of a service of several processes; as `…limits`."""

from __future__ import annotations

from typing import Final

WORKERS_MAX: Final = 64
"""Processes that take requests (`workers`). One takes what some hundred hosts send; more than a
machine has cores only wait for each other. → the service does not start"""

OWNER_CONNECTIONS_MAX: Final = 1_024
"""Connections to the process that owns an embedded store: ten of each of WORKERS_MAX, and some.
Past it a connection is closed at once, and logged; the process that asked answers 503."""

OWNER_QUERIES_MAX: Final = 16
"""Questions that it has under way for all processes. The others wait, OWNER_WAIT_SECONDS at most,
and are then refused as busy. → 503, retry"""

OWNER_INSERTS_MAX: Final = 8
"""Inserts that it has under way; they do not wait for questions. The same."""

OWNER_WAIT_SECONDS: Final = 10.0
"""How long a statement waits for its turn there."""

OWNER_STATEMENT_BYTES_MAX: Final = 64 << 20
"""One statement and its bound values: a question about as many series as a query may read
names them by their ids, 20 bytes each."""

OWNER_BODY_BYTES_MAX: Final = 1 << 30
"""The rows of one insert, which wait in a file: PENDING_ROWS_MAX of the widest. → 503, retry"""

GATHER_SECONDS: Final = 0.03
"""How long rows wait there for those of other processes, which send theirs at the same moment."""

GATHER_BYTES_MAX: Final = 32 << 20
"""Rows that are gathered into one insert, in memory; those of one process that are more are
inserted on their own, by way of a file."""

INSERT_LOG_BYTES: Final = 64 << 20
"""What was inserted lately, in memory that all processes of a service share: 28 bytes a sample,
half a minute of a hundred hosts. A process that reads nothing for longer forgets what it held of
the last minutes, and loads it from the store again. Memory is taken as it is used."""

INSERT_NOTE_BYTES_MAX: Final = 32 << 10
"""What the writer of rows says of them, in a header of its request. Where it is more, it says
nothing, and what others keep of that table's past is asked for again."""

START_SECONDS_MAX: Final = 1_800.0
"""How long a process of the service may take until it is ready: an upgrade of large tables. Past it
the service stops, and says which one it was."""

RESTARTS_MAX: Final = 5
"""Times in a row that one process of the service may end within RESTART_QUIET_SECONDS of its start.
Past it the whole service stops with a status that makes its supervisor act."""

RESTART_QUIET_SECONDS: Final = 60.0
"""A process that ran for so long has come up: what ends it then is a new trouble."""

RESTART_WAIT_SECONDS_MAX: Final = 8.0
"""A process that ended is started again at once; when it ends soon after that, in 1, 2, 4 s, and
not later than this."""

DRAIN_SECONDS: Final = 25.0
"""How long processes may take to end, each kind in its turn, before they are killed: longer than
requests that are under way may take, and shorter than systemd and Kubernetes wait together."""

PEER_SECONDS_MAX: Final = 5.0
"""How long the processes of a service wait for each other's state. One that takes longer is shown
as not answering. → `/readyz` 503"""

PEER_ANSWER_BYTES_MAX: Final = 16 << 20
"""What one of them may say of itself: its metrics are about 200 KB."""
