"""`top`'s keys: what bytes mean, and what keys do; lists that change under a selection."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.remote.top.keys import PENDING_BYTES_MAX, SEQUENCES, Decoder, Key
from api.remote.top.model import HostRow, Incident, JobRow, LinkRow, Order, Picture, View
from api.remote.top.screen import FILTER_CHARS_MAX, Screen
from collector.contract.verdict import Culprit


def incident(name: str, **culprit: str) -> Incident:
    return Incident(
        id=name,
        state="open",
        cause="slow_link",
        culprit=Culprit(**culprit),  # type: ignore[arg-type]
        confidence=0.9,
        since_ns=0,
        last_seen_ns=0,
        jobs=(f"job-of-{name}",),
    )


FIRST, SECOND = incident("first", host="node1", device="mlx5_0"), incident("second", host="node2")
PICTURE = Picture(
    time_s=0.0,
    incidents=(FIRST, SECOND),
    jobs=(JobRow(job="calm"), JobRow(job="job-of-second")),
    links=(
        LinkRow(host="node2", device="mlx5_0", port="1"),
        LinkRow(host="node1", device="mlx5_0", port="1"),
    ),
    hosts=(HostRow(host="node0"), HostRow(host="node2")),
)


def press(screen: Screen, *keys: str, picture: Picture | None = PICTURE) -> Screen:
    for key in keys:
        screen.press(key, picture)
    return screen


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_sequence_is_one_key_however_it_is_cut(sequence: bytes) -> None:
    assert Decoder().feed(sequence) == [SEQUENCES[sequence]]
    for cut in range(1, len(sequence)):
        decoder = Decoder()
        assert decoder.feed(sequence[:cut]) == []
        assert decoder.is_waiting
        assert decoder.feed(sequence[cut:]) == [SEQUENCES[sequence]]
        assert not decoder.is_waiting


def test_an_escape_that_nothing_follows_is_the_escape_key() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.flush() == [Key.ESCAPE]
    assert decoder.flush() == []


def test_unknown_sequences_and_control_signs_are_no_keys() -> None:
    # Focus, a function key, a mouse report, bracketed paste, NUL, and a broken UTF-8 sign.
    assert Decoder().feed(b"\x1b[I\x1b[15~\x1b[<0;3;4M\x1b[200~\x00\xffq") == ["q"]
    assert Decoder().feed("ä漢".encode()) == ["ä", "漢"]
    halves = Decoder()
    assert halves.feed("ä".encode()[:1]) == []
    assert halves.feed("ä".encode()[1:]) == ["ä"]


@given(st.binary(max_size=300))
def test_whatever_is_typed_or_pasted_breaks_nothing(data: bytes) -> None:
    decoder = Decoder()
    screen = Screen()
    for key in (*decoder.feed(data), *decoder.flush()):
        screen.press(key, PICTURE)
    assert len(screen.filter) <= FILTER_CHARS_MAX
    assert screen.filter.isprintable()
    decoder.feed(b"\x1b[" + b"1" * 10 * PENDING_BYTES_MAX)
    assert not decoder.is_waiting


# --- what keys do ---------------------------------------------------------------------------------


def test_numbers_and_tab_change_the_view() -> None:
    screen = Screen()
    for key, view in (("2", View.JOBS), ("3", View.LINKS), ("4", View.HOSTS), ("1", View.NOW)):
        assert press(screen, key).view is view
        assert view in screen.wanted.views
    seen = [press(screen, Key.TAB).view for _ in range(4)]
    assert seen == [View.JOBS, View.LINKS, View.HOSTS, View.NOW]


def test_only_what_is_looked_at_is_asked_for() -> None:
    assert Screen().wanted.views == {View.NOW}
    assert press(Screen(), "3").wanted.views == {View.NOW, View.LINKS}
    assert not Screen().wanted.incident
    assert press(Screen(), Key.ENTER).wanted.incident == "first"
    assert not press(Screen(), Key.ENTER, Key.ESCAPE).wanted.incident


def test_enter_opens_what_is_selected_and_escape_leads_back() -> None:
    screen = press(Screen(), "j", Key.ENTER)
    assert (screen.view, screen.incident) == (View.INCIDENT, "second")
    assert press(screen, Key.ESCAPE).view is View.NOW
    screen = press(Screen(), "2", Key.ENTER)
    assert screen.incident == "second", "the troubled job stands first"
    assert press(screen, Key.BACKSPACE).view is View.JOBS
    assert press(Screen(), "4", Key.ENTER).incident == "second"
    assert press(Screen(), "3", "j", Key.ENTER).incident == "first"
    assert press(Screen(), "3", Key.ENTER).view is View.LINKS, "nothing is known against it"


def test_enter_opens_what_was_selected_even_when_the_list_was_sorted_anew() -> None:
    screen = press(Screen(), "j")
    swapped = msgspec.structs.replace(PICTURE, incidents=(SECOND, FIRST))
    assert press(screen, Key.ENTER, picture=swapped).incident == "second"


def test_a_selection_that_is_gone_moves_to_its_neighbour() -> None:
    screen = press(Screen(), "G")
    one_left = msgspec.structs.replace(PICTURE, incidents=(FIRST,))
    assert press(screen, Key.ENTER, picture=one_left).incident == "first"


def test_selecting_stops_at_both_ends() -> None:
    screen = press(Screen(view=View.HOSTS), "k", Key.UP, Key.PAGE_UP)
    assert screen.selected(screen.listed(PICTURE)) == 0
    press(screen, *["j"] * 10, Key.PAGE_DOWN, Key.END)
    assert screen.selected(screen.listed(PICTURE)) == 1
    press(screen, "g")
    assert screen.selected(screen.listed(PICTURE)) == 0


def test_a_selection_gets_past_entries_of_one_name() -> None:
    twins = msgspec.structs.replace(PICTURE, links=(LinkRow(host="node1", port="1"),) * 3)
    screen = press(Screen(view=View.LINKS), "j", "j", picture=twins)
    assert screen.selected(screen.listed(twins)) == 2


def test_five_without_an_incident_shows_that_there_is_none() -> None:
    quiet = Picture(time_s=0.0)
    screen = press(Screen(), "5", picture=quiet)
    assert (screen.view, screen.incident) == (View.INCIDENT, "")


def test_a_filter_is_typed_kept_and_removed() -> None:
    screen = press(Screen(view=View.HOSTS), "/", *"NODE2x", Key.BACKSPACE)
    assert screen.is_typing
    assert [entry.id for entry in screen.listed(PICTURE)] == ["node2"]
    press(screen, Key.ENTER)
    assert (screen.is_typing, screen.filter) == (False, "NODE2")
    press(screen, Key.ESCAPE)
    assert len(screen.listed(PICTURE)) == 2
    assert press(screen, "/", "q", Key.ESCAPE).filter == ""
    assert not screen.is_done, "q was part of a filter"


def test_s_goes_through_the_orders_of_links() -> None:
    screen = press(Screen(), "3")
    seen = [press(screen, "s").order for _ in range(3)]
    assert seen == [Order.ERRORS, Order.PAUSE, Order.UTILISATION]
    assert screen.wanted.order is Order.UTILISATION


def test_help_goes_with_any_key_and_q_quits() -> None:
    screen = press(Screen(), "?")
    assert screen.is_helping
    assert not press(screen, "j").is_helping
    assert press(screen, "r").wants_answer
    assert press(screen, "q").is_done


def test_keys_before_the_first_answer_break_nothing() -> None:
    keys = [*"jkgG25/x", Key.ENTER, Key.ESCAPE, Key.TAB, Key.PAGE_DOWN, *"1s"]
    assert not press(Screen(), *keys, picture=None).is_done
