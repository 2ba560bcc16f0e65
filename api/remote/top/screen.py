"""The state of the screen, and how keys change it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from api.remote.top.keys import Key
from api.remote.top.model import Order, Picture, View, Wanted
from api.remote.top.rows import Entry, entries

FILTER_CHARS_MAX = 60
"""Of a filter: longer than any name that fits on a line."""
PAGE_LINES = 10
"""That Page Down moves by: half a small terminal, so that one keeps one's place."""

LISTS = (View.NOW, View.JOBS, View.LINKS, View.HOSTS)
VIEW_KEYS = {str(number): view for number, view in enumerate(View, start=1)}
MOVES = {
    "j": 1,
    Key.DOWN: 1,
    "k": -1,
    Key.UP: -1,
    Key.PAGE_DOWN: PAGE_LINES,
    " ": PAGE_LINES,
    Key.PAGE_UP: -PAGE_LINES,
}
BACK = {Key.ESCAPE, Key.BACKSPACE, Key.LEFT, "h"}


@dataclass
class Screen:
    """The state of one user's screen."""

    view: View = View.NOW
    order: Order = Order.UTILISATION
    filter: str = ""
    is_typing: bool = False
    is_helping: bool = False
    is_done: bool = False
    wants_answer: bool = False
    """The user pressed `r`; the requester resets it."""
    incident: str = ""
    came_from: View = View.NOW
    scroll: int = 0
    """First line of the details that is shown; `draw` keeps it within them."""
    chosen: dict[View, str] = field(default_factory=dict)
    """The selected entry of each list, by its id: lists are sorted again with each answer, and
    Enter must open the entry that the user selected."""
    places: dict[View, int] = field(default_factory=dict)
    """Where it was, for when it is gone."""

    @property
    def wanted(self) -> Wanted:
        return Wanted(
            views=frozenset({View.NOW, self.view}),
            order=self.order,
            incident=self.incident if self.view is View.INCIDENT else "",
        )

    def listed(self, picture: Picture | None) -> list[Entry]:
        return entries(self.view, picture, self.filter)

    def selected(self, shown: Sequence[Entry]) -> int:
        """The selected entry's place; 0 if there are none."""
        ids = [entry.id for entry in shown]
        if (wanted := self.chosen.get(self.view)) in ids:
            return ids.index(wanted)
        return max(0, min(self.places.get(self.view, 0), len(ids) - 1))

    def press(self, key: str, picture: Picture | None) -> None:
        if self.is_typing:
            self._type(key)
        elif self.is_helping:
            self.is_helping = False
            self.is_done = key == "q"
        elif key == "q":
            self.is_done = True
        elif key == "?":
            self.is_helping = True
        elif key == "r":
            self.wants_answer = True
        elif key in VIEW_KEYS:
            self._show(VIEW_KEYS[key], picture)
        elif key in {Key.TAB, Key.RIGHT, "l"}:
            self._show(self._next_list(), picture)
        elif self.view is View.INCIDENT:
            self._press_in_details(key)
        else:
            self._press_in_list(key, picture)

    def _next_list(self) -> View:
        here = LISTS.index(self.view) if self.view in LISTS else -1
        return LISTS[(here + 1) % len(LISTS)]

    def _show(self, view: View, picture: Picture | None) -> None:
        """Change to a view; the one of incidents opens the selected incident, or the first."""
        if view is not View.INCIDENT:
            self.view = view
        elif self.view is not View.INCIDENT:
            first = picture.incidents[0].id if picture and picture.incidents else ""
            self._enter(self._incident(picture) or first)

    def _incident(self, picture: Picture | None) -> str:
        shown = self.listed(picture)
        return shown[self.selected(shown)].incident if shown else ""

    def _enter(self, incident: str) -> None:
        self.came_from, self.view = self.view, View.INCIDENT
        self.incident, self.scroll = incident, 0

    def _press_in_details(self, key: str) -> None:
        if key in BACK:
            self.view = self.came_from
        elif key in MOVES:
            self.scroll = max(0, self.scroll + MOVES[key])
        elif key in {"g", Key.HOME}:
            self.scroll = 0

    def _press_in_list(self, key: str, picture: Picture | None) -> None:
        if key == "/":
            self.is_typing = True
        elif key == Key.ESCAPE:
            self.filter = ""
        elif key == Key.ENTER:
            if incident := self._incident(picture):
                self._enter(incident)
        elif key == "s" and self.view is View.LINKS:
            orders = list(Order)
            self.order = orders[(orders.index(self.order) + 1) % len(orders)]
        else:
            self._move(key, self.listed(picture))

    def _move(self, key: str, shown: Sequence[Entry]) -> None:
        if not shown:
            return
        last = len(shown) - 1
        place = self.selected(shown)
        if key in MOVES:
            place = max(0, min(last, place + MOVES[key]))
        elif key in {"g", Key.HOME}:
            place = 0
        elif key in {"G", Key.END}:
            place = last
        else:
            return
        self.chosen[self.view], self.places[self.view] = shown[place].id, place

    def _type(self, key: str) -> None:
        if key == Key.ENTER:
            self.is_typing = False
        elif key == Key.ESCAPE:
            self.is_typing, self.filter = False, ""
        elif key == Key.BACKSPACE:
            self.filter = self.filter[:-1]
        elif len(key) == 1 and len(self.filter) < FILTER_CHARS_MAX:
            self.filter += key
