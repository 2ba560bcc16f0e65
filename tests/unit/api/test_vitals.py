"""Ages by a clock that is never set, and steps of the one that is."""

from api.base.vitals import ClockWatch, Vitals


class Clocks:
    def __init__(self) -> None:
        self.wall, self.steady = 1_794_000_000.0, 50.0

    def pass_time(self, seconds: float, *, step: float = 0.0) -> None:
        self.steady += seconds
        self.wall += seconds + step

    def vitals(self) -> Vitals:
        return Vitals(lambda: self.wall, lambda: self.steady)


def test_failing_counts_from_the_first_failure_in_a_row() -> None:
    clocks = Clocks()
    pulse = clocks.vitals().commit
    assert (pulse.failing_s, pulse.succeeded_s) == (0.0, 0.0)
    pulse.fail("away")
    clocks.pass_time(10)
    pulse.fail("still away")
    assert pulse.failing_s == 10
    pulse.succeed()
    assert (pulse.failing_s, pulse.succeeded_s, pulse.why) == (0.0, clocks.wall, "")
    clocks.pass_time(5)
    pulse.fail("away")
    assert (pulse.failing_s, pulse.quiet_s) == (0.0, 5)


def test_a_clock_that_is_set_makes_nothing_late() -> None:
    clocks = Clocks()
    pulse = clocks.vitals().evaluation
    pulse.succeed()
    clocks.pass_time(5, step=3_600)
    assert pulse.quiet_s == 5


def test_work_of_another_process_is_neither_late_nor_failing() -> None:
    clocks = Clocks()
    pulse = clocks.vitals().evaluation
    pulse.fail("away")
    clocks.pass_time(500)
    pulse.rest()
    assert (pulse.failing_s, pulse.quiet_s) == (0.0, 0.0)


def test_a_step_of_the_clock_is_found_once_and_slewing_is_not_one() -> None:
    clocks = Clocks()
    watch = ClockWatch(clocks.vitals(), tolerance_s=2.0)
    clocks.pass_time(15)
    assert watch.step_s() == 0.0
    clocks.pass_time(15, step=0.5)
    assert watch.step_s() == 0.0
    clocks.pass_time(15, step=-90)
    assert watch.step_s() == -90
    clocks.pass_time(15)
    assert watch.step_s() == 0.0
