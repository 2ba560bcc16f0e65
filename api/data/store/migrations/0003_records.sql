-- What ranks did in collective operations, one row for each rank and operation.
--
-- Order: everything that asks about collectives joins them over ranks, so the rows of one
-- operation lie side by side and are grouped as they are read. A job is not part of the key: a
-- communicator belongs to one job for ever, and which one may be found out later. Within a
-- communicator the sequence grows with time, so that the index on time cuts well.
-- `source` numbers its operations in its own way; another process under the same name (a job that
-- was started again) is another row. A resend, or a later state of the same, replaces the row.
CREATE TABLE IF NOT EXISTS collectives {{on_cluster}}
(
    communicator LowCardinality(String),
    operation    LowCardinality(String),
    sequence     UInt64 CODEC(Delta(8), ZSTD(1)),
    rank         UInt32 CODEC(Delta(4), ZSTD(1)),
    source       LowCardinality(String),
    host         LowCardinality(String),
    pid          UInt32 CODEC(ZSTD(1)),
    time         DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    entry        Nullable(DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    exit         Nullable(DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    enqueue      Nullable(DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    duration_ns  Nullable(Int64) CODEC(ZSTD(1)),
    size_bytes   Nullable(Int64) CODEC(ZSTD(1)),
    ranks        UInt32 CODEC(ZSTD(1)),
    peer         Nullable(Int32) CODEC(ZSTD(1)),
    algorithm    LowCardinality(String),
    protocol     LowCardinality(String),
    timing       LowCardinality(String),
    state        LowCardinality(String),
    job          LowCardinality(String),
    INDEX time_range time TYPE minmax GRANULARITY 1
)
ENGINE = {{engine}}
PARTITION BY toDate(time)
ORDER BY (communicator, operation, sequence, rank, source, host, pid)
TTL toDateTime(time) + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- Stretches of training steps: the whole step (`phase` is empty) and its phases. Ranks of one step
-- lie side by side. -1: the source does not say which rank.
CREATE TABLE IF NOT EXISTS steps {{on_cluster}}
(
    job    LowCardinality(String),
    step   UInt64 CODEC(Delta(8), ZSTD(1)),
    rank   Int32 CODEC(Delta(4), ZSTD(1)),
    phase  LowCardinality(String),
    start  DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    end    DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    source LowCardinality(String),
    host   LowCardinality(String),
    pid    UInt32 CODEC(ZSTD(1)),
    INDEX time_range start TYPE minmax GRANULARITY 1
)
ENGINE = {{engine}}
PARTITION BY toDate(start)
ORDER BY (job, step, rank, phase, start, source, host, pid)
TTL toDateTime(start) + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';
