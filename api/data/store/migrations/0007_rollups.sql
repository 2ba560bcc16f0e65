-- Samples of five minutes, or of one hour, of a series in one row. They outlive the samples, and
-- questions about days and months read one row for sixty samples or seven hundred.
--
-- A bucket is open on the left, (time - 5 min, time], as a window of PromQL is, so that windows of
-- whole buckets are exact. Stale markers are not among its samples. A counter's growth in a bucket is
-- `last - first + lost`: `lost` is the sum of the values from which it fell. The smallest and the
-- largest value are written as what they differ from the first and the last, bit by bit: those of a
-- counter, or of a value that stands still, take no room.
CREATE TABLE IF NOT EXISTS rollup_5m {{on_cluster}}
(
    metric     UInt32 CODEC(ZSTD(1)),
    series     UInt64 CODEC(ZSTD(1)),
    time       DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    count      UInt32 CODEC(ZSTD(1)),
    first      Float64 CODEC(Delta(8), ZSTD(1)),
    last       Float64 CODEC(Delta(8), ZSTD(1)),
    low_bits   UInt64 CODEC(ZSTD(1)),
    high_bits  UInt64 CODEC(ZSTD(1)),
    total      Float64 CODEC(Delta(8), ZSTD(1)),
    lost       Float64 CODEC(ZSTD(1)),
    first_ms   UInt32 CODEC(ZSTD(1)),
    last_ms    UInt32 CODEC(ZSTD(1)),
    is_odd     UInt8 CODEC(ZSTD(1)),
    ends_stale UInt8 CODEC(ZSTD(1)),
    low  Float64 ALIAS reinterpretAsFloat64(bitXor(low_bits, reinterpretAsUInt64(first))),
    high Float64 ALIAS reinterpretAsFloat64(bitXor(high_bits, reinterpretAsUInt64(last)))
)
ENGINE = {{engine}}
PARTITION BY toMonday(time)
ORDER BY (metric, series, time)
TTL time + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '', merge_selector_base = 16,
         max_bytes_to_merge_at_max_space_in_pool = 8589934592;

CREATE TABLE IF NOT EXISTS rollup_1h {{on_cluster}} AS rollup_5m
ENGINE = {{engine}}
PARTITION BY toMonday(time)
ORDER BY (metric, series, time)
TTL time + toIntervalDay({{retention_days}})
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '', merge_selector_base = 16,
         max_bytes_to_merge_at_max_space_in_pool = 8589934592;

-- Which hours are rolled up: all from `since` to `until`. The last row counts.
CREATE TABLE IF NOT EXISTS rollup_span {{on_cluster}}
(
    id    UInt8,
    since DateTime('UTC'),
    until DateTime('UTC')
)
ENGINE = {{engine}}
ORDER BY id;

-- Hours of metrics that got samples after they were over: `hour` is their end. Until such an hour is
-- rolled up again (`is_rolled`), questions about it read samples.
CREATE TABLE IF NOT EXISTS rollup_late {{on_cluster}}
(
    metric    UInt32,
    hour      DateTime('UTC'),
    noted     DateTime64(3, 'UTC'),
    is_rolled UInt8
)
ENGINE = {{engine}}
PARTITION BY toDate(noted)
ORDER BY (metric, hour, noted)
TTL toDateTime(noted) + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';
