"""The order in which a stage of an interleaved pipeline computes and exchanges."""

from __future__ import annotations

from collections.abc import Iterator

FORWARD, BACKWARD = 1.0, 2.0
"""What a part of a micro-batch costs, in forward passes."""
Exchange = tuple[list[int], list[int]]
"""Stages to send to and to receive from, at once."""


def interleaving(
    stage: int, stages: int, chunks: int, micro_batches: int
) -> Iterator[float | Exchange]:
    """One forward, one backward with several parts of the model a stage, as Megatron-LM 0.12 does.

    A number is work, a pair is an exchange. Micro-batches are a multiple of stages.
    """
    total = micro_batches * chunks
    warm_up = min(total, (stages - stage - 1) * 2 + (chunks - 1) * stages)
    is_first, is_last = stage == 0, stage == stages - 1
    after, before = (stage + 1) % stages, (stage - 1) % stages

    def chunk_of(number: int, *, is_forward: bool) -> int:
        chunk = number % (stages * chunks) // stages
        return chunk if is_forward else chunks - 1 - chunk

    def forward_comes(number: int) -> bool:
        """Whether this stage's forward pass of that number has its input from another stage."""
        return number < total and not (is_first and chunk_of(number, is_forward=True) == 0)

    def backward_comes(number: int) -> bool:
        is_end = is_last and chunk_of(number, is_forward=False) == chunks - 1
        return number < total and not is_end

    def forward_goes(number: int) -> bool:
        return not (is_last and chunk_of(number, is_forward=True) == chunks - 1)

    def backward_goes(number: int) -> bool:
        return not (is_first and chunk_of(number, is_forward=False) == 0)

    if forward_comes(0):
        yield [], [before]
    for number in range(warm_up):
        yield FORWARD
        receive = [before] if forward_comes(number + 1) else []
        if number == warm_up - 1 and warm_up < total and not is_last:
            receive.append(after)
        yield [after] if forward_goes(number) else [], receive
    if warm_up in {0, total} and backward_comes(0):
        yield [], [after]
    for number in range(total - warm_up):
        ahead = number + warm_up
        yield FORWARD
        yield BACKWARD
        send = ([after] if forward_goes(ahead) else []) + (
            [before] if backward_goes(number) else []
        )
        receive = [before] if forward_comes(ahead + 1) else []
        receive += [after] if backward_comes(number + 1) else []
        yield send, receive
    for number in range(total - warm_up, total):
        yield BACKWARD
        yield (
            [before] if backward_goes(number) else [],
            [after] if backward_comes(number + 1) else [],
        )
