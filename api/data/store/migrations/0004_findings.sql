-- What was said: findings of detectors and verdicts made of them, one row each time that something
-- is said anew, changes, or has stood for another minute.
--
-- Order: people ask what was said in a stretch of time, the newest first. Whom it is about are
-- columns, so that a question about one host reads no documents. `id` is the digest of who says
-- what of whom: the same thing said in the same millisecond is one row.
-- Empty, or -1, where a name does not apply.
CREATE TABLE IF NOT EXISTS findings {{on_cluster}}
(
    kind        LowCardinality(String),
    time        DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    id          UInt64 CODEC(ZSTD(1)),
    detector    LowCardinality(String),
    cause       LowCardinality(String),
    reason      LowCardinality(String),
    confidence  Float64 CODEC(ZSTD(1)),
    incident    LowCardinality(String),
    jobs        Array(LowCardinality(String)) CODEC(ZSTD(1)),
    host        LowCardinality(String),
    device      LowCardinality(String),
    port        LowCardinality(String),
    gpu         Int32 CODEC(ZSTD(1)),
    rank        Int32 CODEC(ZSTD(1)),
    switch      LowCardinality(String),
    switch_port LowCardinality(String),
    document    String CODEC(ZSTD(3))
)
ENGINE = {{engine}}
PARTITION BY toDate(time)
ORDER BY (kind, time, id)
TTL toDateTime(time) + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';
