"""Every bound of the service: its name, its value, its reason, and what happens past it.

A request past a bound gets an answer that names the bound, and is counted
(`fabric_service_refused_total{rule}`).
The bounds of a native batch are part of its format and stand in `collector.contract.wire`.
"""

from __future__ import annotations

from typing import Final

BODY_BYTES_MAX: Final = 16 << 20
"""One request's body, as it arrives. Prometheus sends about 100 KiB, an agent less. → 413"""

UNPACKED_BYTES_MAX: Final = 32 << 20
"""One remote-write body, unpacked: 200,000 samples; checked before a byte is unpacked. → 413"""

INFLIGHT_BYTES_MAX: Final = 256 << 20
"""All bodies that are being received, decoded or waiting for the store. → 503, retry"""

INFLIGHT_BYTES_PER_SENDER_MAX: Final = 64 << 20
"""The same of one token, or of one address where no token is required: four senders that stall may
not stop the others. → 503, retry"""

BODY_SECONDS: Final = 30.0
"""How long a request's body may take to arrive: the largest at 5 Mbit/s. → 408"""

ANSWER_SECONDS: Final = 60.0
"""How long a client may leave its answer unread. → the connection ends"""

HEADER_SECONDS: Final = 10.0
"""How long a request's headers may take, from the connection or their first byte. → it ends"""

HEADER_BYTES_MAX: Final = 64 << 10
"""A request's headers; browsers send a few thousand bytes. → the connection ends"""

GRPC_REQUESTS_MAX: Final = 256
"""Requests over gRPC that are under way at once, of a process: 16 MiB each at most, and all bytes
together are bounded as those over HTTP. → RESOURCE_EXHAUSTED"""

CONNECTIONS_MAX: Final = 16_384
"""Connections at once: agents of 10,000 hosts, with room for people; 50 kB each. → 503, it ends"""

CONNECTIONS_PER_ADDRESS_MAX: Final = 1_024
"""Connections of one address: a proxy's or a NAT gateway's, with room. → 503, and it ends"""

BYTES_A_MINUTE_MAX: Final = 4 << 30
"""Bodies of one sender: an address without a token, or one that uses a token for a prefix of hosts
or for any. 70 MB/s is more than a hundred Prometheus servers send. → 429, Retry-After"""

BYTES_A_MINUTE_PER_HOST_MAX: Final = 128 << 20
"""The same of a token for named hosts, for each: an agent's 2 MB, and an hour's spool. → 429"""

SAMPLES_A_MINUTE_MAX: Final = 300_000_000
"""Samples and records of one sender: five million a second, all that two cores take. → 429"""

SAMPLES_A_MINUTE_PER_HOST_MAX: Final = 20_000_000
"""The same of a token for named hosts, for each: 5,000 a second, and an hour's spool. → 429"""

SERIES_NEW_A_MINUTE_MAX: Final = 1_000_000
"""Series of one sender that this process has not seen today. All of a sender's are new at its or
our start and at midnight (UTC): a Prometheus with 500,000 passes at once, as does a poller of 8,000
ports with a hundred counters. → 429; known series of the same request are stored"""

SERIES_NEW_A_MINUTE_PER_HOST_MAX: Final = 50_000
"""The same of a bound token, for each host: a host of 8 GPUs and 8 ports has 5,000. → 429"""

SERIES_A_DAY_MAX: Final = 5_000_000
"""Different series of one sender in a day (UTC), counted to 3 %: ten times the largest Prometheus
servers, whose pods come and go. → new series are refused until midnight, known ones are stored"""

SERIES_A_DAY_PER_HOST_MAX: Final = 100_000
"""The same of a bound token, for each host: its 5,000, with twenty jobs' processes."""

HOSTS_NEW_A_MINUTE_MAX: Final = 1_000
"""Hosts of one sender that neither the inventory nor this process knows. A fleet of 10,000 that one
Prometheus brings is complete after five minutes. → 429; known hosts' series are stored"""

HOSTS_NEW_AT_ONCE_MAX: Final = 5_000
"""So many of them may come together, if none came before: a large fleet's first minute."""

HOSTS_KNOWN_MAX: Final = 1_000_000
"""Names of hosts that are not new, about 100 MB. Past it those not named for longest are new."""

SENDERS_KEPT_MAX: Final = 10_000
"""Senders whose budgets are kept, about 20 MB. The one quiet longest begins anew."""

PENDING_ROWS_MAX: Final = 4_000_000
"""Rows that wait for the store: about 150 MB, and several seconds of its work. → 503, retry"""

COMMIT_ROWS_EAGER: Final = 50_000
"""The store writer commits this many waiting rows at once, unless more are being decoded: an insert
costs 7 ms of CPU whatever its size, and small inserts are merged more often."""

COMMIT_ROWS_MAX: Final = 500_000
"""The store writer commits this many waiting rows even while more are being decoded."""

RETRY_AFTER_SECONDS: Final = 2
"""`Retry-After` in the answer to a sender while the service is overloaded."""

ACCEPT_FUTURE_SECONDS: Final = 600
"""Rule `too_far_in_future`: Prometheus' own limit; past it a clock is wrong, not skewed."""

MALLOC_ARENAS_MAX: Final = 2
"""Arenas of the C library. Its own bound is eight a core; each keeps what its threads needed."""

ENGINE_CACHE_BYTES_MAX: Final = 256 << 20
"""Each cache of the embedded engine. Past it what was used longest ago is read from disk again."""

MALLOC_BLOCK_BYTES_MAX: Final = 1 << 20
"""Blocks in these arenas; a larger one is apart, and goes back to the kernel when it is freed."""

GIVE_BACK_SECONDS: Final = 60.0
"""How often memory that was freed goes back to the kernel."""

TABLE_BYTES_CACHED_MAX: Final = 512 << 20
"""What all native series tables that are cached take: 4,000 hosts with 5,000 series, 14 bytes each,
and what they show of their hosts. The tables used longest ago are evicted."""

TABLE_IDLE_SECONDS: Final = 300.0
"""A native series table that was idle for longer is evicted: agents use theirs all the time."""

WRITTEN_SERIES_CACHED_MAX: Final = 20_000_000
"""Series of all agents that are remembered as written today, 160 MB. Past it the agents that wrote
longest ago are forgotten, and their series are written once more."""

REMOTE_SERIES_CACHED_MAX: Final = 1_000_000
"""Remote-write series cached by their bytes, about 400 MB. Past it idle ones are evicted; further
ones are parsed with every request, which costs five times as much."""

FORGOTTEN_SERIES_MAX: Final = 8_000_000
"""Further ones of which it is known that the store has them, 192 MB."""

REMOTE_RUNS_MAX: Final = 10_000
"""Runs of 64 remote-write series cached whole, about 200 MB. Past it the cache is cleared."""

REMOTE_LABELS_CACHED_MAX: Final = 1_000_000
"""Remote-write labels cached by their bytes, about 300 MB. Past it the cache is cleared."""

METADATA_CACHED_MAX: Final = 100_000
"""Metrics whose metadata is cached, so that it is written once. Past it the cache is cleared."""

METADATA_CACHED_BYTES_MAX: Final = 64 << 20
"""Their texts together: 600 bytes each. Past it the cache is cleared."""

CACHED_BYTES_MAX: Final = 512 << 20
"""Bytes of keys in each cache of remote write and OTLP: 500 a series. Past it it is cleared."""

REMOTE_SERIES_MAX: Final = 200_000
"""Series in one remote-write request; Prometheus sends 2,000 at most by default. → 413"""

REMOTE_SAMPLES_MAX: Final = 1_000_000
"""Samples, or exemplars, in one remote-write request: as many as in a native batch. → 413"""

OTLP_SERIES_CACHED_MAX: Final = 1_000_000
"""OTLP series cached by their attributes, about 500 MB. Past it the cache is cleared."""

OTLP_DELTAS_MAX: Final = 1_000_000
"""Series whose deltas are summed, about 200 MB. Past it the series that was quiet longest restarts
at zero, which looks like a counter reset."""

OTLP_BUCKETS_MAX: Final = 512
"""Buckets, or quantiles, of one point; SDKs make 160 at most. → that point is refused"""

FIELDS_MAX: Final = 1_000_000
"""Fields of one protobuf message. An empty one has two bytes, and snappy packs twenty of them into
one: without this bound, a body of a few megabytes would fill the memory. → 413"""

SELECTOR_BYTES_MAX: Final = 2_048
"""A selector's text. The parser behind it overflows the stack on 8,000 nested brackets. → 400"""

EVENT_KINDS_MAX: Final = 20
"""Kinds of events that one request may name; there are about ten."""
SELECTORS_MAX: Final = 16
"""`match` parameters in one request. → 400"""

QUERY_BYTES_MAX: Final = 64 << 10
"""A PromQL query's text. Generated ones with long lists of names have a few thousand. → 400"""

QUERY_NESTING_MAX: Final = 64
"""Brackets, functions and signs inside each other. People write five; the parser's stack ends at
5,000 and the evaluator's at 300. → 400"""

QUERY_OPERATORS_MAX: Final = 2_000
"""Operators in one query; a chain of 8,000 ends the parser's stack. → 400"""

QUERY_STEPS_MAX: Final = 11_000
"""Points in one series of an answer: Prometheus' bound, more than a screen has. → 400"""

QUERY_SERIES_MAX: Final = 200_000
"""Series that one selector may touch; more if their labels fit into 1/12 of memory. → 422"""

QUERY_SAMPLES_MAX: Final = 50_000_000
"""Samples that a query may load: Prometheus' default. Of what the store reduces, results. → 422"""

QUERY_POINTS_MAX: Final = 20_000_000
"""Cells (series x steps) of one matrix, about 180 MB, or raw samples held at once. → 422"""

QUERY_MEMORY_BYTES_MAX: Final = 2 << 30
"""Memory that the store may use for one part of a query; 1/4 of all if that is less. → 422"""

QUERY_SUBQUERY_STEPS_MAX: Final = 1_000_000
"""Moments at which a subquery is evaluated: `x[1y:1s]` would have 31 million. → 422"""

QUERY_SECONDS_DEFAULT: Final = 60.0
"""How long a query may take; `timeout` can only shorten it. → 503"""

QUERIES_MAX: Final = 4
"""Queries that are evaluated at once. More would take the cores from each other and from ingest."""

QUERIES_WAITING_MAX: Final = 200
"""Queries that wait for their turn: a few dashboards that are opened together. → 503, retry"""

QUERY_WAIT_SECONDS: Final = 20.0
"""How long a query waits for its turn: a dashboard's patience. → 503, retry"""

QUERY_LABELS_CACHED_MAX: Final = 1_000_000
"""Label sets that queries cache by series, about 700 MB. Past it the cache is cleared."""

FORM_BYTES_MAX: Final = 1 << 20
"""The body of a POST to Prometheus' paths: a query and a few selectors, with room. → 413"""

FORM_FIELDS_MAX: Final = 1_000
"""Parameters of one request to Prometheus' paths. → 400"""

SERIES_FOUND_MAX: Final = 200_000
"""Series, or values of a label, in one list. → the first of them, with a warning"""

EXEMPLARS_FOUND_MAX: Final = 100_000
"""Exemplars in one answer. → 422"""

FEDERATED_SERIES_MAX: Final = 200_000
"""Series in one answer of `/federate`. → 422"""

EXPORT_SERIES_MAX: Final = 100_000
"""Series that one export may touch: their labels are held in memory. → 422"""

EXPORT_SERIES_CHUNK: Final = 2_000
"""Series whose samples are fetched at once while an export streams."""

EXPORT_SAMPLES_MAX: Final = 50_000_000
"""Samples in one export; more is a job for several requests. → 422"""

EXPORT_JSON_SAMPLES_MAX: Final = 500_000
"""Samples in one JSON document; NDJSON and Arrow stream and have no such bound. → 422"""

ODDITIES_MAX: Final = 256
"""Kinds of refused, and of quarantined things that are remembered for `/v1/refused`: rules times
senders of a bad day. Past it the kind that was quiet longest is forgotten; the counters stay."""

ODDITY_EXAMPLES_MAX: Final = 3
"""Examples of each kind that are remembered, the latest: enough to find the sender's mistake."""

ODDITY_EXAMPLE_CHARS_MAX: Final = 300
"""Characters of an example; the rest is cut off."""

PAGE_DEFAULT: Final = 100
"""Entries of one page when the client names no limit."""

PAGE_MAX: Final = 1_000
"""Entries of one page of a list. → 422"""

TIMELINE_BUCKETS_DEFAULT: Final = 120
TIMELINE_BUCKETS_MAX: Final = 2_000
"""Stretches of a job's timeline: about as many as a screen has columns. → 400"""

TIMELINE_CELLS_MAX: Final = 200_000
"""Ranks times stretches in one timeline, about 2 MB. Past it the latest ranks are shown, and the
answer counts the others."""

LOOK_RECORDS_MAX: Final = 2_000_000
"""Records that a timeline or heat map reads, seconds of work. Past it, every nth operation is read,
or all operations of some ranks, and the answer states which."""

HEAT_RANKS_MAX: Final = 1_024
"""Rows of a heat map: more than a screen has lines. Past it the map shows outliers and a sample of
the other ranks, and the answer counts those left out."""

HEAT_STEPS_MAX: Final = 500
"""Columns of a heat map: with as many rows 2 MB. Past it a column stands for several steps, and
shows the worst of them."""

TIMELINES_WAITING_MAX: Final = 8
"""Timelines that are made or wait for their turn: each takes up to some seconds of a core. → 503,
retry"""

HEATS_WAITING_MAX: Final = 8
"""Heat maps, and cells of them, that are made or wait for their turn: each takes up to some seconds
of a core, one after the other. → 503, retry"""

CELL_SECONDS_MAX: Final = 3_600
"""Of time in one cell of a heat map: a column of the longest time that is drawn. → 422"""

CELL_OPERATIONS_MAX: Final = 200
"""Collectives in one cell. Past it those that took longest, and the answer counts the others."""

CELL_MARKS_MAX: Final = 200
"""Steps and phases that a training loop marked in one cell, the first ones."""

FABRIC_FRAMES_DEFAULT: Final = 60
FABRIC_FRAMES_MAX: Final = 120
"""Moments of the fabric's state: a slider has no more places that a hand can find. → 422"""

FABRIC_LINKS_MAX: Final = 16_384
"""Links in one answer of the fabric's state. More is asked for host by host or tier by tier, as the
topology. → 422"""

FABRIC_CELLS_MAX: Final = 1_000_000
"""Links times moments, about 25 MB. Past it there are fewer moments."""

FABRIC_SAMPLES_MAX: Final = 100_000_000
"""Samples in the requested time, ten seconds of two cores. → 422 with the time that would fit"""

FABRICS_WAITING_MAX: Final = 8
"""Requests for the fabric's state in progress or waiting, answered in turn. → 503, retry"""

CAPTURES_PER_AGENT_MAX: Final = 4
"""Pending requests for raw samples of one agent, which serves them one by one. → 429"""

CAPTURES_PENDING_MAX: Final = 1_000
"""Such requests of all agents: every service process holds them. → 429"""

CAPTURES_KEPT_DAYS: Final = 30
"""How long the record of a capture is kept: as long as its samples."""

INCIDENTS_KEPT_DAYS: Final = 90
"""How long a closed incident is kept: a quarter, over which operators look for recurring faults."""

INCIDENTS_KEPT_MAX: Final = 10_000
"""Incidents that are kept, 200 MB at worst: a hundred a day for a quarter. The oldest closed go."""

INCIDENT_NAMES_MAX: Final = 1_000
"""Jobs, hosts and switches that one incident is found by; victims past it are in its verdict."""

INCIDENT_CHANGES_KEPT_MAX: Final = 10_000
"""Changes of incidents kept for clients that reconnect: those of a bad day."""

INCIDENT_CHANGES_PAGE_MAX: Final = 1_000
"""Changes of incidents that one read returns."""

CAPTURE_SECONDS_MAX: Final = 300.0
"""Of a capture, before and after the moment: as long as the longest ring of an agent. → 422"""

CAPTURE_DEVICES_MAX: Final = 64
"""Devices that one capture may name. → 422"""

TOPOLOGY_LINKS_MAX: Final = 300_000
"""Links in one answer of `/v1/topology`, about 250 MB: three tiers over 12,000 hosts of 8 NICs.
More is asked for host by host or tier by tier. → 422"""

TOPOLOGY_HOSTS_ASKED_MAX: Final = 1_000
"""`host` parameters in one request for a topology. → 422"""

PATHS_DEFAULT: Final = 16
PATHS_MAX: Final = 1_000
"""Ways in one answer of `/v1/paths`: the first of them, beside their number."""

NAME_CHARS_MAX: Final = 1_024
"""A host's, device's or port's name in a request. → 422"""

JOB_RANKS_MAX: Final = 200_000
"""Ranks, and hosts, that one request may name: twice the largest job. → 422"""

JOB_GROUP_RANKS_MAX: Final = 2_000_000
"""Numbers in a job's parallelism groups: ten dimensions of such a job. → 422"""

JOB_ATTRIBUTES_MAX: Final = 64
"""Attributes, and kinds of groups, of a job. → 422"""

JOB_TEXT_CHARS_MAX: Final = 512
"""A job's name, user, or attribute. → 422"""

JOB_COMMUNICATORS_SHOWN_MAX: Final = 1_000
"""Communicators in the answer about one job: the first of them, beside their number."""

RECORDS_PAGE_MAX: Final = 10_000
"""Records of collectives or steps of one page. → 422"""

RECORDS_EXPORT_MAX: Final = 50_000_000
"""Records in one NDJSON or Arrow stream; more is a job for several requests. → 422"""

RECORDS_EXPORT_CHUNK: Final = 100_000
"""Records that are in memory at once while they are streamed: about 30 MB."""

EXPLAIN_SECONDS_DEFAULT: Final = 180
EXPLAIN_SECONDS_MAX: Final = 3_600
"""Of time that one explanation covers: detectors read three minutes, and the records of a large job
are thinned past an hour anyway. → 422"""

EXPLAINS_WAITING_MAX: Final = 8
"""Explanations that are made or wait for their turn: each takes a second or more of a core, one
after the other. → 503, retry"""

EXPLAIN_OPERATIONS_MAX: Final = 50_000
"""Operations of a job in one explanation, about 5 MB. Past it every nth; the answer states n."""

EXPLAIN_RECORDS_MAX: Final = 200_000
"""Single ranks' records in one explanation, about 15 MB. Past it every nth operation's."""

EXPLAIN_RANKS_MAX: Final = 20_000
"""Rows of ranks (rank times kind of operation) of a job: two kinds of 10,000 ranks. Past it those
whose own time is longest."""

EXPLAIN_CELLS_MAX: Final = 200_000
"""Ranks times steps of a job's own times, about 5 MB. Past it the ranks most waited for."""

EXPLAIN_LADDER_PLACES_MAX: Final = 20_000
"""Places of all rings of a job together. Past it the rings that come later are left out."""

EXPLAIN_STEPS_MAX: Final = 10_000
"""Steps of a job, the latest."""

EXPLAIN_CLOCKS_MAX: Final = 10_000
"""Hosts' clocks times stretches of time, the latest."""

EXPLAIN_PENDING_MAX: Final = 1_000
"""Operations of a job that did not end, the first ones: the head of the queue is what hangs."""

EXPLAIN_THINGS_MAX: Final = 200
"""Ports, GPUs and hosts whose readings are shown: a large switch, or sixteen hosts."""

EXPLAIN_VALUES_MAX: Final = 500_000
"""Numbers in all readings of one explanation, about 5 MB. Past it things are left out."""

EXPLAIN_EVENTS_MAX: Final = 1_000
"""Events in one explanation, the newest."""

EXPLAIN_JOBS_MAX: Final = 8
"""Jobs whose collectives are shown where a host, link or incident was asked for."""

LIVE_QUIET_SECONDS: Final = 15.0
"""An idle stream sends a keep-alive comment this often: proxies close connections that are silent
for 30 to 60 seconds, and a dead connection is noticed only when something is sent."""

LIVE_SEND_SECONDS: Final = 30.0
"""How long one message may take to reach a client's socket. A client that does not read for longer
is dropped: it comes back with `Last-Event-ID` and gets what it missed."""

LIVE_RESUMED_MAX: Final = 1_000
"""Changes that a reconnecting client receives. If there are more, it learns that it missed some."""

RULE_FILES_MAX: Final = 500
"""Rule files in the user's folder; those past it, by name, are not read. → logged, counted"""

RULE_GROUPS_MAX: Final = 5_000
"""Rule groups of all files together. A file that would pass it is refused, by name."""

RULES_MAX: Final = 20_000
"""Rules of all files together; large installations of Prometheus have 10,000. → file refused"""

ALERTS_PER_RULE_MAX: Final = 5_000
"""Alerts of one rule. An operator cannot act on more; the rule fails, and its last alerts stand."""

ALERTS_MAX: Final = 50_000
"""Alerts of all rules together, about 100 MB. A rule that would pass it fails, likewise."""

ALERT_BYTES_MAX: Final = 16 << 10
"""One alert in the inventory. What has more is kept there without its annotations, and counted."""

ALERT_LABELS_BYTES_MAX: Final = 8 << 10
"""An alert's labels. A rule that makes more fails: its templates write texts into labels."""

RECORDED_SERIES_MAX: Final = 50_000
"""Series that one rule may record; it fails past that."""

RULES_TEMPLATE_QUERIES_MAX: Final = 200
"""Different queries that the templates of one rule may run in one evaluation."""

OWN_SERIES_MAX: Final = 5_000
"""Series of the service's own numbers that it writes to its store; there are about 1,000. The
others are left out and counted."""

OUTBOX_MAX: Final = 10_000
"""Notices that wait for their receivers, about 100 MB at worst. One waits for each group of alerts
and receiver, whatever the outage; past it the oldest that are not critical are dropped, counted."""

NOTICES_KEPT_MAX: Final = 10_000
"""Notices that were sent, or not, and are kept for people to look at: the latest."""

NOTICES_KEPT_DAYS: Final = 30
"""How long they are kept."""

SILENCES_MAX: Final = 1_000
"""Silences that are not over. Each alert is compared with all of them. → 409"""

SILENCES_KEPT_DAYS: Final = 5
"""How long a silence is kept after its end, as in Alertmanager: an audit of last night's."""

SILENCE_MATCHERS_MAX: Final = 20
"""Matchers of one silence, or route. → 422"""

SILENCE_DAYS_MAX: Final = 366
"""From now to a silence's end: instead of a permanent silence, remove the rule. → 422"""

PATTERN_CHARS_MAX: Final = 1_000
"""Of a matcher's value. Patterns are RE2's, whose time and memory are linear in it. → 422"""

COMMENT_CHARS_MAX: Final = 2_000
"""Of a silence's comment. → 422"""

HEALTH_HOSTS_MAX: Final = 200_000
"""Hosts whose health is kept at hand, about 100 MB: several times the largest fleets. Those past
it, by name, have none."""

GHOST_SEEN_SECONDS: Final = 600
"""A host that was seen for less, from first to last, may be a typing error or junk: a ghost."""

GHOST_LISTED_SECONDS: Final = 1_800
"""How long after its last sign a ghost stays in `/v1/health`, in placement and in `/v1/hosts`
(`all=true` shows it): a machine that dies while it is set up is seen for that long."""

GHOST_KEPT_DAYS: Final = 7
"""How long after its last sign the inventory forgets a ghost. Its samples stay as others do."""

GHOSTS_FORGOTTEN_AT_ONCE: Final = 10_000
"""Ghosts that are deleted in one transaction, once an hour: below a second of work."""

HEALTH_REASONS_SHORT_MAX: Final = 3
"""Reasons of one host in lists, the heaviest; `/v1/hosts/{host}/health` has all."""

HEALTH_WAIT_SECONDS_MAX: Final = 60.0
"""How long a scheduler may wait for a change in one request: proxies close what is silent. → 422"""

HEALTH_WAITERS_MAX: Final = 256
"""Requests that wait for a change at once: every scheduler of a large site. → 503, retry"""

HEALTH_BODIES_MAX: Final = 32
"""Answers of `/v1/health`, by what was asked, that are kept as bytes until something changes, about
25 MB for 10,000 hosts. The oldest goes."""

DATA_LATE_SECONDS: Final = 60.0
"""When the newest sample is older, `/v1/freshness` calls the data late: agents report every five to
thirty seconds, and another process' data is noted half a minute later."""

EVALUATION_STALE_SECONDS: Final = 60.0
"""An evaluation that is older is too old to count: they are made every few seconds, and one that
takes long is rare."""

HEALTH_STALE_SECONDS: Final = 60.0
"""When the inventory was unreadable for so long, health is stale, no scheduler may act. → 503"""

HEALTH_TURNS_A_ROUND_MAX: Final = 1_000
"""Changes of state that are written in one round, every two seconds. When all of a large fleet
falls silent at once, the others follow in the next rounds."""

HEALTH_TURNS_KEPT_MAX: Final = 50_000
"""Changes of state that are kept, 25 MB: 10,000 hosts went and came back twice. The oldest go."""

HEALTH_TURNS_KEPT_DAYS: Final = 90
"""How long they are kept: as long as the incidents behind them."""

HEALTH_TURNS_PAGE_MAX: Final = 1_000
"""Changes of state that are read at once."""

HEALTH_SIGNS_MAX: Final = 1_000
"""Latest findings that are searched for faults outside any incident."""

HEALTH_SERIES_MAX: Final = 1_000
"""Hosts that have series of state and risk at once, those at the highest risk. More are counted and
left out: a rule needs to know that there are many."""

HOLDS_MAX: Final = 20_000
"""Holds (draining, out) in force at once: a site that is being emptied. → 409"""

HOLDS_KEPT_DAYS: Final = 90
"""How long a hold is kept after its end, as an audit of who took what out, and why."""

HOLD_DAYS_MAX: Final = 366
"""From now to a hold's end, where it has one. → 422"""

ACTIONS_KEPT_MAX: Final = 20_000
"""Actions that are over and are kept, about 40 MB: the latest. Those that stand are kept anyway."""

ACTIONS_KEPT_DAYS: Final = 90
"""How long an action is kept after its end: as long as the holds that it made."""

ACTIONS_READ_MAX: Final = 5_000
"""Actions of the last day that a policy looks back upon, the latest: cool-downs, refusals."""

ACTIONS_A_ROUND_MAX: Final = 100
"""New actions, refusals included, that are written in one round, every ten seconds. The others come
again in the next; a policy that wants more of a fleet is wrong anyway."""

CHECK_BYTES_MAX: Final = 1 << 20
"""A result of nccl-tests that is compared with a floor: forty sizes have 8 KiB. → 413"""

EXTENDER_NODES_MAX: Final = 100_000
"""Nodes in one request of kube-scheduler: twenty times the largest clusters that Kubernetes
supports. → an answer with `Error`"""

EXTENDER_GANGS_MAX: Final = 1_000
"""Jobs whose hosts were chosen together and whose pods are still coming. The oldest is evicted: its
other pods are placed one by one."""

EXTENDER_GANG_SECONDS: Final = 600.0
"""How long a job's pods are sent to the hosts that were chosen for it: a large image takes minutes
to arrive, and pods that come later are another attempt."""

TOKEN_CHARS_MIN: Final = 16
"""Length of a token that an operator made up: a shorter one can be guessed. → it does not start"""

TOKEN_CHARS_MAX: Final = 4_096
"""Length of a presented token; issued ones have 60. A longer one is refused unread. → 401"""

TOKEN_FILE_TOKENS_MAX: Final = 100
"""Tokens of the token file: each request is compared with all of them."""

TOKENS_MAX: Final = 1_000
"""Tokens that are not revoked: every team and program of a large site. → 409"""

TOKENS_KEPT_DAYS: Final = 90
"""How long a token is kept after its end, as an audit of who could do what."""

TOKEN_NAME_CHARS_MAX: Final = 100
"""Of a token's name: it stands in lists and beside what was done with it. → 422"""

TOKEN_DAYS_MAX: Final = 3_650
"""From now to a token's end, where it has one. → 422"""

TOKEN_RATE_MAX: Final = 1_000_000.0
"""Requests a second that a token may be limited to: past it there is nothing to limit. → 422"""

TOKENS_FRESH_SECONDS: Final = 2.0
"""Within this time each service process sees a token that was made or revoked. While the inventory
does not answer, the last known tokens stay valid: an outage must not lock out senders."""

TOKEN_USED_SECONDS: Final = 300
"""Resolution of a token's time of last use: one write per token in this time."""

PASS_SECONDS: Final = 86_400
"""How long the link of a notice lets its reader acknowledge the incident: a shift and the next. A
notice that is repeated has a new one. → 401"""

PLACEMENT_HOSTS_MAX: Final = 20_000
"""Candidates, names to avoid, and hosts of one set in a request for placement. → 422"""

PLACEMENT_SETS_DEFAULT: Final = 3
PLACEMENT_SETS_MAX: Final = 10
"""Sets in one answer: a scheduler takes the first, a person compares a few. → 422"""

PLACEMENT_GPUS_MAX: Final = 1_024
"""GPUs of one host in a request: more than any machine has. → 422"""

PLACEMENT_REFUSED_SHOWN_MAX: Final = 1_000
"""Hosts in one answer that were not placed, each with its reason; the first by name, beside the
number of all and their kinds."""

PLACEMENT_JOBS_SHOWN_MAX: Final = 20
"""Running jobs that share something with a set, those that share most; beside their number."""

PLACEMENT_PLACES_MAX: Final = 500_000
"""Hosts of all running jobs together, about 60 MB: several times the largest fleets. Past it the
jobs that come later by name weigh nothing, and the answer reports it."""

PLACEMENTS_WAITING_MAX: Final = 16
"""Requests for placement in progress or waiting: each takes up to 0.2 s of a core, one after the
other. → 503, retry"""

COMMITS_FAILING_SECONDS: Final = 30.0
"""How long every insert, or every renewal of the inventory's lease, may fail before the service is
not ready: two rounds of its own numbers, so that one odd request or a short stall does not take it
out of service. → `/readyz` 503"""

COMMIT_STUCK_SECONDS: Final = 60.0
"""How long rows may wait while no insert ends: several times the slowest one. → `/readyz` 503"""

EVALUATION_LATE_SECONDS: Final = 120.0
"""How long the process that leads may go without a completed evaluation, which is due every five
seconds; a machine that is far too busy needs half a minute for one. → `/readyz` 503"""

DISK_FREE_BYTES_MIN: Final = 128 << 20
"""Free space below which the service is not ready: some large inserts and the merges of small
parts. The engine refuses inserts that it cannot reserve space for. → `/readyz` 503"""

DAMAGE_SHOWN_SECONDS: Final = 300.0
"""How long after a read of damaged data the service is not ready. Rules and dashboards read what is
in use more often; what is read by no client harms none. → `/readyz` 503"""

WORK_BREAKS_MAX: Final = 3
"""Times in a row that background work may break, each within half a minute of its start, before the
service is not ready. → `/readyz` 503"""

STORE_LOOK_SECONDS: Final = 60.0
"""How often the engine is asked for its parts: 10 ms of a core each."""

DISK_LOOK_SECONDS: Final = 15.0
"""How often free space is read: as often as the service writes its own numbers."""

CLOCK_STEP_SECONDS: Final = 2.0
"""A step of the service's clock that is counted. Daemons that discipline a clock slew smaller ones;
verdicts compare times of hosts to milliseconds. → `fabric_service_clock_steps_total`"""

SELF_WATCH_KEPT_SECONDS: Final = 1_200.0
"""The service's own numbers that are kept in memory for the rules about itself: their longest range
is 15 minutes. 80 looks of some 50 series, about 1 MB."""

DIRECT_NOTICES_MAX: Final = 100
"""Notices about the service itself that wait in memory while the inventory is away: more than it
has rules about itself. Past it the oldest are dropped and counted."""
