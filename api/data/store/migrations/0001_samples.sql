-- Every number that was ever read, one row each.
--
-- Order: a question names a metric first, then a few of its series, then a stretch of time.
-- A resend writes the same (metric, series, time) again; Replacing makes it one row at the next
-- merge, and until then readers say FINAL or use aggregates that ignore repeats.
-- Counters are whole numbers far more often than not, and as integers they take a third less
-- room: a whole value lies in `whole` (`fraction` is then 0), any other in `fraction`, bit for
-- bit, so that Prometheus' stale marker (a NaN with a payload) and -0 survive.
CREATE TABLE IF NOT EXISTS samples {{on_cluster}}
(
    metric   UInt32 CODEC(ZSTD(1)),
    series   UInt64 CODEC(ZSTD(1)),
    time     DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    whole    Int64 CODEC(DoubleDelta, ZSTD(1)),
    fraction Float64 CODEC(Delta(8), ZSTD(1)),
    value    Float64 ALIAS if(reinterpretAsUInt64(fraction) = 0, toFloat64(whole), fraction)
)
ENGINE = {{engine}}
PARTITION BY toDate(time)
ORDER BY (metric, series, time)
TTL toDateTime(time) + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '', merge_selector_base = 16,
         old_parts_lifetime = 60;

-- What a series id means, once for each day on which the series was seen: old names go away
-- with their samples, and a question about today never looks at last month's names.
CREATE TABLE IF NOT EXISTS series {{on_cluster}}
(
    day         Date,
    metric_name LowCardinality(String),
    series      UInt64 CODEC(ZSTD(1)),
    labels      Map(LowCardinality(String), String) CODEC(ZSTD(1))
)
ENGINE = {{engine}}
PARTITION BY day
ORDER BY (metric_name, series)
TTL day + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- Things that happened at one moment. `id` is the digest of the whole event, so that a resend
-- is the same row.
CREATE TABLE IF NOT EXISTS events {{on_cluster}}
(
    kind       LowCardinality(String),
    time       DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    id         UInt64,
    labels     Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    message    String CODEC(ZSTD(1)),
    attributes Map(LowCardinality(String), String) CODEC(ZSTD(1))
)
ENGINE = {{engine}}
PARTITION BY toDate(time)
ORDER BY (kind, time, id)
TTL toDateTime(time) + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- Exemplars of remote write: a sample with the labels of one trace that it belongs to.
CREATE TABLE IF NOT EXISTS exemplars {{on_cluster}}
(
    series UInt64,
    time   DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    value  Float64,
    labels Map(LowCardinality(String), String) CODEC(ZSTD(1))
)
ENGINE = {{engine}}
PARTITION BY toDate(time)
ORDER BY (series, time, value)
TTL toDateTime(time) + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- What remote-write senders say of their metrics (type, help, unit); the latest word counts.
CREATE TABLE IF NOT EXISTS metadata {{on_cluster}}
(
    metric_name String,
    type        LowCardinality(String),
    help        String,
    unit        LowCardinality(String)
)
ENGINE = {{engine}}
ORDER BY metric_name;
