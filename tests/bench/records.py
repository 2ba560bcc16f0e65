"""What jobs write, in any amount: made lines that look like those of real runs."""

import json
import random


def inspector_lines(count: int, ranks: int, seed: int) -> bytes:
    """So many verbose lines of NCCL Inspector (v4.0, two channels): the ranks' files, one by one.

    A step is an all-reduce of 8 MiB and an all-gather of 256 KiB; all ranks leave it together and
    enter it up to 5 ms apart, as in a healthy run.
    """
    randomly = random.Random(seed)
    communicator = f"0x{randomly.getrandbits(56):014x}"
    files: list[list[bytes]] = [[] for _ in range(ranks)]
    now_us = 1_794_700_000_000_000
    sequence = 0
    while sum(map(len, files)) < count:
        for operation, size, duration_us in (
            ("AllReduce", 8 << 20, 9_000),
            ("AllGather", 256 << 10, 2_500),
        ):
            end_us = now_us + duration_us + randomly.randrange(2_000)
            for rank in range(ranks):
                start_us = now_us + randomly.randrange(5_000) % duration_us
                line = inspector_line(
                    communicator, (rank, ranks), (operation, size, sequence), (start_us, end_us)
                )
                files[rank].append(line)
            now_us = end_us + 3_000
        sequence += 1
    return b"".join([line for file in files for line in file][:count])


def inspector_line(
    communicator: str,
    place: tuple[int, int],
    what: tuple[str, int, int],
    times: tuple[int, int],
) -> bytes:
    """One line; ``place`` is rank and ranks, ``what`` operation, size and number, times in us."""
    (rank, ranks), (operation, size, sequence), (start_us, end_us) = place, what, times
    numbers = [
        {"channel_id": c, "kernel_start_sn": 3 + c, "kernel_stop_sn": 6 + c, "kernel_record_sn": 5}
        for c in (0, 1)
    ]
    moments = [
        {
            "channel_id": channel,
            "kernel_start_ts": start_us + channel,
            "kernel_stop_ts": end_us - channel,
            "kernel_record_ts": end_us - channel,
        }
        for channel in (0, 1)
    ]
    bandwidth = size / 1e3 / (end_us - start_us)
    record = {
        "header": {
            "id": communicator,
            "comm_name": "unknown",
            "rank": rank,
            "n_ranks": ranks,
            "nnodes": ranks,
        },
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "unknown",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": end_us + 500,
            "hostname": f"node{rank}",
            "pid": 1000 + rank,
        },
        "coll_perf": {
            "coll": operation,
            "coll_sn": sequence,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": end_us - start_us,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": round(bandwidth, 6),
            "coll_busbw_gbs": round(bandwidth * 2 * (ranks - 1) / ranks, 6),
            "event_trace_sn": {"coll_start_sn": 1, "coll_stop_sn": 2, "kernel_events": numbers},
            "event_trace_ts": {
                "coll_start_ts": start_us - 400,
                "coll_stop_ts": start_us - 380,
                "kernel_events": moments,
            },
        },
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
