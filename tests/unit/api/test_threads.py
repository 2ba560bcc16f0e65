"""CPU time is counted under the work that it was spent on."""

import asyncio
import threading
import time

from api.base.threads import ENGINE, LOOP, WORK, Threads, cpu_seconds, note_loop


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def spent(work: str) -> float:
    return dict(cpu_seconds()).get(work, 0.0)


def test_a_pool_counts_under_its_own_name() -> None:
    with Threads(1, work="digging") as pool:
        pool.submit(burn, 0.05).result()
        pool.submit(burn, 0.05).result()
    assert 0.1 <= spent("digging") < 0.2


def test_what_a_pool_hands_on_counts_as_its_own_work() -> None:
    with Threads(1, work="outer") as outer, Threads(1) as helpers:
        outer.submit(lambda: helpers.submit(burn, 0.05).result()).result()
    assert 0.05 <= spent("outer") < 0.1


def test_a_call_that_fails_is_counted() -> None:
    def fail() -> None:
        burn(0.05)
        raise ValueError

    with Threads(1, work="failing") as pool:
        assert isinstance(pool.submit(fail).exception(), ValueError)
    assert spent("failing") >= 0.05


def test_a_call_counts_while_it_runs() -> None:
    may_end = threading.Event()

    def work() -> None:
        burn(0.05)
        may_end.wait(60)

    with Threads(1, work="running") as pool:
        done = pool.submit(work)
        while spent("running") < 0.05:
            assert not done.done()
        may_end.set()
        done.result()
    assert 0.05 <= spent("running") < 0.1


def test_tasks_of_one_loop_share_threads_and_are_told_apart() -> None:
    async def work(name: str, seconds: float) -> None:
        WORK.set(name)
        await asyncio.to_thread(burn, seconds)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(Threads(1))
        await asyncio.gather(work("much", 0.1), work("little", 0.02))

    asyncio.run(main())
    assert spent("much") >= 0.1
    assert 0.02 <= spent("little") < 0.1


def test_the_loop_s_thread_counts_while_it_lives() -> None:
    before = spent(LOOP)
    may_end = threading.Event()
    ready = threading.Event()

    def loop() -> None:
        note_loop()
        burn(0.05)
        ready.set()
        may_end.wait(60)

    thread = threading.Thread(target=loop)
    thread.start()
    assert ready.wait(60)
    during = spent(LOOP)
    may_end.set()
    thread.join(60)
    assert during >= before + 0.05
    assert spent(LOOP) < during, "an ended thread has no clock"


def test_parts_add_up_to_the_process() -> None:
    before = time.process_time()
    total = sum(seconds for _, seconds in cpu_seconds())
    # Rounding of clocks aside; other tests' threads belong to the engine's part.
    assert total >= before * 0.999
    assert spent(ENGINE) >= 0
