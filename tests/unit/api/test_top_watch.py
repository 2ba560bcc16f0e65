"""`top` in a terminal against a stand-in: start, keys, sizes, signals; away and back; live."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.remote.client import RETRY_SECONDS_MAX, Odd, Target, backoff
from api.remote.top.watch import STREAM_BYTES_MAX, Phase, Watch, read_events
from collector.cli import EXIT_USAGE, main
from tests.doubles.top_service import FakeService, fake_service, incident
from tests.stands.environment import clean_environment
from tests.stands.service import ROOT, eventually
from tests.stands.terminals import (
    ENTER_SCREEN,
    LEAVE_SCREEN,
    SHOW_CURSOR,
    TerminalProgram,
    in_terminal,
)

INTERVAL = "0.5"
HOSTILE = "evil\x1b]0;owned\x07\x1b[2J\u202e[red]"


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as found:
        found.incidents = [incident("first"), incident("second")]
        found.hosts = [{"host": "node1", "last_seen": "2026-11-16T00:00:00Z"}]
        yield found


def words(service: FakeService, *more: str) -> list[str]:
    return ["top", "--service", service.url, "--interval", INTERVAL, *more]


def is_as_before(program: TerminalProgram) -> None:
    """The terminal has its mode, its screen and its cursor again."""
    assert program.mode() == program.before
    assert ENTER_SCREEN in program.output
    eventually(
        lambda: program.output.rfind(LEAVE_SCREEN) > program.output.rfind(ENTER_SCREEN),
        "the usual screen",
    )
    # What it wrote before it stopped may still be on its way.
    eventually(
        lambda: SHOW_CURSOR in program.output[program.output.rfind(ENTER_SCREEN) :], "the cursor"
    )


# --- in a terminal --------------------------------------------------------------------------------


def test_it_starts_obeys_keys_follows_the_size_and_quits(service: FakeService) -> None:
    with in_terminal(*words(service)) as program:
        program.shows("the summary of first")
        assert program.mode() != program.before, "keys come one by one"
        program.shows("live")
        program.type("\x1b[B\r")
        program.shows("Esc back")
        program.shows("the action against second")
        program.type("\x1b")
        program.shows("the action against first")
        program.type("4")
        program.shows("▸ node1")
        program.type("/zz")
        program.shows("show only: zz")
        program.shows("nothing matches the filter")
        program.type("\x1b?")
        program.shows("what is wrong now, jobs, links, hosts")
        program.resize(44, 12)
        program.type("x1")
        eventually(lambda: len(program.screen.splitlines()) == 12, "12 lines")
        assert max(map(len, program.screen.splitlines())) <= 44
        program.resize(30, 5)
        program.shows("needs 40 columns")
        program.type("q")
        assert program.end() == 0
        is_as_before(program)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(service: FakeService, number: signal.Signals) -> None:
    with in_terminal(*words(service)) as program:
        program.shows("the summary of first")
        if number is signal.SIGINT:
            program.type("\x03")
        else:
            os.kill(program.process.pid, number)
        assert program.end() == 128 + number
        is_as_before(program)


def test_control_z_gives_the_terminal_back_until_it_is_continued(service: FakeService) -> None:
    with in_terminal(*words(service)) as program:
        program.shows("the summary of first")
        # The shell's part: it sees that its child has stopped, and wakes it.
        os.kill(program.process.pid, signal.SIGTSTP)
        os.waitid(os.P_PID, program.process.pid, os.WSTOPPED | os.WNOWAIT)
        is_as_before(program)
        stopped_at = len(program.output)
        os.kill(program.process.pid, signal.SIGCONT)
        eventually(lambda: ENTER_SCREEN in program.output[stopped_at:], "the other screen again")
        program.shows("the summary of first")
        program.type("q")
        assert program.end() == 0
        is_as_before(program)


def test_nothing_that_the_service_says_reaches_the_terminal_raw(service: FakeService) -> None:
    service.incidents = [incident("first", summary=HOSTILE, action=HOSTILE, jobs=[HOSTILE])]
    service.incidents[0]["culprit"] = {"host": HOSTILE}
    service.hosts = [{"host": HOSTILE}]
    with in_terminal(*words(service)) as program:
        program.shows("evil\ufffd]0;owned\ufffd\ufffd[2J\ufffd[red]")
        service.tell("opened", 2)
        program.type("4")
        program.shows("▸ evil")
        program.type("q")
        assert program.end() == 0
    for raw in (b"\x1b]0;owned", b"\x1b[2J", b"\x07", "\u202e".encode()):
        assert raw not in program.output


def test_without_colours_it_draws_without_colours(service: FakeService) -> None:
    with in_terminal(*words(service), NO_COLOR="1") as plain:
        plain.shows("the summary of first")
        plain.type("q")
        assert plain.end() == 0
    assert b"\x1b[1;31m" not in plain.output
    with in_terminal(*words(service)) as coloured:
        coloured.shows("the summary of first")
        coloured.type("q")
        assert coloured.end() == 0
    assert b"\x1b[1;31m" in coloured.output


def test_a_service_that_goes_away_leaves_the_last_picture_and_comes_back(
    service: FakeService,
) -> None:
    with in_terminal(*words(service), columns=100) as program:
        program.shows("the summary of first")
        service.stop()
        program.shows("No answer since")
        program.shows("Connection refused")
        assert "the summary of first" in program.screen
        service.incidents = [incident("third")]
        service.start()
        program.type("r")
        program.shows("the summary of third")
        assert "No answer since" not in program.screen
        program.shows("live")


def test_a_refusal_stays_on_the_screen_until_the_file_has_the_right_token(
    service: FakeService, tmp_path: Path
) -> None:
    service.token = "the-right-token"  # noqa: S105 - a test's
    file = tmp_path / "token"
    file.write_text("the-wrong-token\n")
    with in_terminal(*words(service, "--token-file", str(file))) as program:
        program.shows("does not accept this token")
        file.write_text("the-right-token\n")
        program.shows("the summary of first")


def test_a_dumb_terminal_gets_it_once(service: FakeService) -> None:
    with in_terminal(*words(service), TERM="dumb") as program:
        assert program.end() == 0
        eventually(lambda: b"the summary of first" in program.output, "the text")
    assert b"\x1b" not in program.output


# --- without a terminal ---------------------------------------------------------------------------


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = "import sys; from collector.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", command, *arguments],
        cwd=ROOT,
        env={**clean_environment(), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_pipe_gets_it_once_and_in_ascii_where_nothing_else_is_known(
    service: FakeService,
) -> None:
    done = run(*words(service), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the summary of first" in done.stdout
    assert "\x1b" not in done.stdout


def test_once_says_in_a_line_why_it_cannot(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.token = "a-token"  # noqa: S105 - a test's
    assert main(words(service, "--once")) == 1
    assert "--token-file FILE" in capsys.readouterr().err
    service.token = ""
    service.stop()
    assert main(words(service, "--json")) == 1
    assert "Connection refused" in capsys.readouterr().err
    assert main(words(service, "--token-file", "/none")) == EXIT_USAGE
    assert "No such file" in capsys.readouterr().err
    assert main(["top", "--interval", "0"]) == EXIT_USAGE
    assert "between 0.5 and 3600" in capsys.readouterr().err


# --- the threads ----------------------------------------------------------------------------------


@pytest.fixture
def watch(service: FakeService) -> Iterator[Watch]:
    """One that would not ask again by itself for an hour."""
    found = Watch(Target(url=service.url), interval_s=3_600.0)
    found.start()
    eventually(lambda: found.latest.phase is Phase.ANSWERS, "an answer")
    yield found
    found.stop()


def test_an_event_is_told_and_asked_about_at_once(service: FakeService, watch: Watch) -> None:
    eventually(lambda: watch.latest.is_live, "the stream")
    service.incidents = [incident("third")]
    service.tell("opened", 7)
    eventually(lambda: watch.latest.news == "opened: the summary of third", "the news")

    def is_shown() -> bool:
        picture = watch.latest.picture
        return picture is not None and [one.id for one in picture.incidents] == ["third"]

    eventually(is_shown, "the new incident")


def test_a_stream_is_resumed_where_it_was(service: FakeService, watch: Watch) -> None:
    eventually(lambda: watch.latest.is_live, "the stream")
    service.tell("updated", 7)
    eventually(lambda: watch.latest.news != "", "the news")
    service.stop()
    eventually(lambda: not watch.latest.is_live, "the end of the stream")
    service.start()
    eventually(lambda: watch.latest.is_live, "the stream again")
    assert service.resumed_from == ["", "7"]


def test_without_a_stream_it_is_polled(service: FakeService) -> None:
    service.has_stream = False
    told = threading.Event()
    watch = Watch(Target(url=service.url), interval_s=0.05, notify=told.set)
    watch.start()
    try:
        eventually(lambda: watch.latest.phase is Phase.ANSWERS, "an answer")
        service.incidents = []
        eventually(
            lambda: watch.latest.picture is not None and not watch.latest.picture.incidents,
            "the next answer",
        )
        assert not watch.latest.is_live
        assert told.is_set()
    finally:
        watch.stop()


def test_what_breaks_inside_the_service_is_away_and_not_the_end(
    service: FakeService, watch: Watch
) -> None:
    service.status = 500
    watch.hurry()
    eventually(lambda: watch.latest.phase is Phase.AWAY, "away")
    assert "HTTP 500" in watch.latest.why
    assert watch.latest.picture is not None
    since = watch.latest.away_since_s
    watch.hurry()
    asked = len(service.asked)
    eventually(lambda: len(service.asked) > asked, "another try")
    assert watch.latest.away_since_s == since, "since the first failure, not the last"
    service.status = 200
    watch.hurry()
    eventually(lambda: watch.latest.phase is Phase.ANSWERS, "an answer")
    assert watch.latest.away_since_s is None


def test_waits_grow_to_a_bound_and_differ() -> None:
    waits = [backoff(failures) for failures in range(1, 60)]
    assert 0 < waits[0] <= 1.0
    assert max(waits) <= RETRY_SECONDS_MAX
    assert min(waits[10:]) > 20
    assert len(set(waits)) > 50


def test_events_may_be_odd_and_are_bounded() -> None:
    odd = b"event: x\ndata\n\n\n\nnonsense\n\nevent: \xff\nid: 1\x1b2\ndata: {}\n\n"
    found = list(read_events(iter([odd[:9], odd[9:]])))
    assert [(data, number) for _, data, number in found] == [(b"", ""), (b"{}", "")]
    with pytest.raises(Odd, match="an event of more than"):
        list(read_events(iter([b"x" * (STREAM_BYTES_MAX + 1)])))
