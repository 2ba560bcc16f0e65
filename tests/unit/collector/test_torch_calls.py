"""Calls of one rank: what must be equal over a group is in their words, and nothing else."""

from typing import Any

from collector.parsing.torch_calls import calls_of


def entry(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - a dump holds anything
    return {
        "process_group": ("0", "default_pg"),
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": 7,
        "time_created_ns": 5,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["BFloat16"],
        "is_p2p": False,
        "state": "completed",
        "frames": [
            {"filename": "/v/site-packages/torch/distributed/c10d.py", "line": 3068},
            {"filename": "/job/train.py", "line": 152},
            {"filename": "/job/train.py", "line": 190},
        ],
        **changes,
    }


def words(**changes: Any) -> list[str]:  # noqa: ANN401
    return [call.words for call in calls_of({"entries": [entry(**changes)]})]


def test_a_call_has_its_size_type_and_place_in_the_program() -> None:
    (call,) = calls_of({"entries": [entry()]})
    assert (call.group, call.sequence, call.is_done) == ("0", 7, True)
    assert call.words == "all_reduce of 8 BFloat16"
    assert call.frames == ("/job/train.py:152", "/job/train.py:190")


def test_shapes_may_differ_sizes_and_types_may_not() -> None:
    assert words(input_sizes=[[8]]) == words()
    assert words(input_sizes=[[9]]) != words()
    assert words(input_dtypes=["Half"]) != words()


def test_operations_whose_ranks_give_different_amounts_are_compared_by_name() -> None:
    for name in ("nccl:all_to_all", "nccl:gather", "nccl:scatter", "nccl:alltoall_base"):
        assert words(profiling_name=name) == words(profiling_name=name, input_sizes=[[99]])
    gathered = words(profiling_name="nccl:_all_gather_base")
    assert gathered != words(profiling_name="nccl:_all_gather_base", input_sizes=[[99]])


def test_calls_put_together_are_one_in_their_order() -> None:
    both = [entry(), entry(profiling_name="nccl:broadcast", state="started")]
    (call,) = calls_of({"entries": both})
    assert call.words == "all_reduce of 8 BFloat16 + broadcast of 8 BFloat16"
    assert not call.is_done


def test_messages_between_two_ranks_are_no_calls_of_the_group() -> None:
    assert words(is_p2p=True) == []


def test_what_is_not_understood_is_left_out() -> None:
    odd: list[dict[str, Any]] = [
        {"process_group": None}, {"profiling_name": 3}, {"collective_seq_id": "7"},
        {"time_created_ns": None},
    ]  # fmt: skip
    for changes in odd:
        assert words(**changes) == []
    assert words(input_sizes=[["x"]]) == ["all_reduce"]
    assert words(frames=[{"filename": 1}, "x"]) == words()
    assert calls_of({}) == []
    assert calls_of({"entries": "x"}) == []


def test_what_ends_a_batch_of_messages_is_no_call_either() -> None:
    """Also where the ring has lost the messages themselves, and not where collectives are ended."""
    message = entry(profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=4)
    ends = entry(profiling_name="nccl:coalesced", p2p_seq_id=4)
    assert calls_of({"entries": [message, ends]}) == []
    assert calls_of({"entries": [ends]}) == []
    of_collectives = entry(profiling_name="nccl:coalesced", p2p_seq_id=4, collective_seq_id=8)
    called = calls_of({"entries": [entry(p2p_seq_id=4), of_collectives]})
    assert [call.sequence for call in called] == [7, 8]
