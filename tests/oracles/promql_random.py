"""Random series and random questions about them, for tests/oracles/promql_oracle.py.

Two correct engines agree on a value to the last digits, not to the last bit: they add in another
order, and their sine is another one. So a question must not turn a last digit into another answer
(`1 / (avg(x) - avg(x))`, `topk(1, stddev(x))`). Instead of a lax comparison, every expression has
a `Level` that says how well its value is determined, and is used only where that suffices.
"""

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.worlds.remote_write import STALE, TimeSeries

START_MS = 1_780_272_000_000
"""2026-06-01T00:00:00Z: a fixed time, so that a seed says everything."""
LENGTH_MS = 40 * 60_000
DEPTH = 4
LOOSE_ABSOLUTE = 1e-9
"""The inputs are up to 1e4, so this is 1e-13 of the largest magnitude involved."""


class Level(enum.IntEnum):
    """How well a value is determined, the best first."""

    DYADIC = 0
    """A multiple of 1/256 below 2**44 (or NaN, or infinite): even sums are exact in any order."""
    EXACT = 1
    """Made from dyadic values by single IEEE operations: the same bits in every engine. Sums may
    differ, comparisons not."""
    LOOSE = 2
    """Determined to about 1e-13 of the inputs' magnitude. May be added, scaled and averaged; not
    compared, not divided by, not rounded."""
    WILD = 3
    """The result of a steep function of an exact value. Nothing more is computed from it."""


@dataclass(frozen=True)
class Question:
    """What to ask, and how to compare the answers. ``step_ms`` 0: at ``start_ms`` only."""

    text: str
    start_ms: int
    end_ms: int
    step_ms: int = 0
    absolute: float = 0.0
    """The difference that is allowed besides the relative one."""
    ordered: bool = False
    """Whether the order of the series is part of the answer."""
    parts: Sequence[str] = ()
    """Smaller questions inside: to find the smallest that shows a difference."""

    def about(self, text: str) -> "Question":
        """Another expression at the same times."""
        return replace(self, text=text, ordered=self.ordered and text == self.text, parts=())


# --- series ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Some random series. Their metrics' names end in the number of the world."""

    number: int
    series: list[TimeSeries]

    def metric(self, name: str) -> str:
        """The name of a metric in this world."""
        return f"{name}_w{self.number}"


HOSTS = ("h0", "h1", "h2")
PORTS = ("p0", "p1")
LE = ("0.25", "0.5", "1", "2", "4", "+Inf")

FINITE = ("load", "temp", "sent_total", "drops_total")
"""`load` never has the same value in two series, so that an order by value is well defined;
`temp` has small integers, which often meet; `sent_total` and `drops_total` are counters, the first
exactly on a grid."""
ANY = (*FINITE, "host_info", "lat_bucket", "odd")
"""`odd` has NaN, infinities and -0."""


def make_world(seed: int, number: int) -> World:
    """The data set of this number."""
    rng = random.Random(f"{seed} world {number}")
    world = World(number, [])

    def add(name: str, values: Callable[[int], float], **labels: str) -> None:
        pairs = sorted({"__name__": world.metric(name), **labels}.items())
        times = grid_times(rng) if name in {"sent_total", "host_info"} else odd_times(rng)
        world.series.append(TimeSeries(pairs, make_samples(rng, times, values)))

    for index, (host, port) in enumerate((host, port) for host in HOSTS for port in PORTS):
        labels = {"host": host, "port": port}
        add("load", distinct(rng, index), **labels)
        add("temp", lambda _: float(rng.randrange(-2, 5)), **labels)
        add("sent_total", counter(rng, rng.choice((0.0, 0.02, 0.1))), **labels)
        if rng.random() < 0.8:
            add("odd", lambda _: odd_value(rng), **labels)
        for reason in ("crc", "full")[: rng.randrange(3)]:
            add("drops_total", counter(rng, 0.05), **labels, reason=reason)
    for host in HOSTS:
        rack = rng.choice(("r0", "r1"))
        add("host_info", lambda _: 1.0, host=host, rack=rack, dc="east")
        add("clock", lambda at: (START_MS + at) // 1000 * 1.0 - rng.randrange(10**7), host=host)
        add_histogram(rng, add, host)
    return world


def add_histogram(rng: random.Random, add: Callable[..., None], host: str) -> None:
    """Cumulative buckets; at times without the last one, out of order, or with a bad bound."""
    bounds = LE[: -1 if rng.random() < 0.1 else None]
    for index, bound in enumerate(bounds):
        add("lat_bucket", counter(rng, 0.01, 4 * (index + 1)), host=host, le=bound)
    if rng.random() < 0.2:
        add("lat_bucket", counter(rng, 0.0), host=host, le="many")


def distinct(rng: random.Random, number: int) -> Callable[[int], float]:
    """Values whose fraction keeps them apart from those of every other number."""
    return lambda _: rng.randrange(-40, 200) + (2 * number + 1) / 64


def counter(rng: random.Random, resets: float, pace: int = 16) -> Callable[[int], float]:
    """A function whose results grow by whole numbers, and at times start again."""
    value = float(rng.randrange(200))

    def following(_: int) -> float:
        nonlocal value
        value = float(rng.randrange(5)) if rng.random() < resets else value + rng.randrange(pace)
        return value

    return following


def odd_value(rng: random.Random) -> float:
    """A value that is often not a usual one."""
    special = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0)
    return rng.choice(special) if rng.random() < 0.3 else rng.randrange(-512, 512) / 8


def grid_times(rng: random.Random) -> list[int]:
    """Times on a grid: samples lie on the edges of ranges."""
    interval = rng.choice((15_000, 30_000))
    return list(range(rng.randrange(20) * interval, LENGTH_MS, interval))


def odd_times(rng: random.Random) -> list[int]:
    """Times with jitter, or on the grid of another series."""
    if rng.random() < 0.3:
        return grid_times(rng)
    at, times = rng.randrange(120_000), []
    interval = rng.choice((10_000, 20_000, 60_000))
    while at < LENGTH_MS:
        times.append(at)
        at += interval + rng.randrange(-interval // 3, interval // 3)
    return times


def make_samples(
    rng: random.Random, times: list[int], values: Callable[[int], float]
) -> list[tuple[float, int]]:
    """Samples at most of the times: with gaps, some of which begin with a stale marker."""
    samples = []
    silent_until = 0
    for at in times:
        if at < silent_until:
            continue
        if rng.random() < 0.02:
            silent_until = at + rng.randrange(10, 700) * 1000
            if rng.random() < 0.6:
                samples.append((STALE, START_MS + at))
            continue
        samples.append((values(at), START_MS + at))
    return samples


# --- questions ---------------------------------------------------------------------------------


def make_question(world: World, seed: int, number: int) -> Question:
    """The question of this number about a world."""
    rng = random.Random(f"{seed} question {number}")
    author = Author(world, rng)
    level = rng.choice((Level.DYADIC, Level.EXACT, Level.LOOSE, Level.LOOSE, Level.WILD))
    is_instant = rng.random() < 0.4
    ordered = False
    shape = rng.random()
    if shape < 0.05:
        text = author.scalar(2, Level.EXACT)
    elif is_instant and shape < 0.09:
        text = author.ranged(2, Level.DYADIC)
        if "@" in text and ":" in text:
            # A subquery without a single step, of something that @ has fixed: Prometheus shows one
            # point all the same, after the end of the range. A function does not see it.
            text = f"last_over_time({text})"
    elif is_instant and shape < 0.2:
        text, ordered = author.in_order(), True
    else:
        text = author.vector(rng.randrange(1, DEPTH + 1), level)
    start = START_MS + random_moment(rng)
    if is_instant:
        end, step = start, 0
    else:
        step = rng.choice((15_000, 30_000, 60_000, 47_000, 97_500, 600_000))
        end = start + step * rng.randrange(30) + rng.choice((0, 0, 7_000))
    absolute = LOOSE_ABSOLUTE if level >= Level.LOOSE else 0.0
    return Question(text, start, end, step, absolute, ordered, author.parts)


def random_moment(rng: random.Random) -> int:
    """A time in ms after the world's start: on a grid, off it, or where there is nothing."""
    shape = rng.random()
    if shape < 0.5:
        return rng.randrange(LENGTH_MS // 15_000) * 15_000
    if shape < 0.95:
        return rng.randrange(LENGTH_MS)
    return rng.choice((-3_600_000, -1, 0, LENGTH_MS, LENGTH_MS + 200_000, LENGTH_MS + 900_000))


DYADIC_NUMBERS = ("0", "1", "2", "0.5", "-1", "3", "-0.25", "10", "100")
ODD_NUMBERS = ("NaN", "Inf", "-Inf", "-0")
DURATIONS = ("15s", "30s", "1m", "2m", "5m", "7m30s", "10m")
COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
QUANTILES = ("0.37", "0.9", "0.13", "0", "1", "-0.5", "2", "NaN")
# A quantile of counts that are themselves inexact must not fall exactly between two buckets.
UNEVEN_QUANTILES = ("0.37", "0.61", "0.13", "0.93")
STEEP = (
    *("exp", "ln", "log2", "log10", "sqrt", "asin", "acos", "acosh", "atanh", "asinh", "tan"),
    *("sinh", "cosh"),
)
SMOOTH = ("sin", "cos", "atan", "tanh", "deg", "rad", "abs")
DATES = (
    *("hour", "minute", "month", "year", "day_of_month", "day_of_week", "day_of_year"),
    "days_in_month",
)


class Author:
    """Writes random expressions about a world. Each method gives the text of one."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.parts: list[str] = []
        self._world = world
        self._rng = rng

    def vector(self, depth: int, level: Level) -> str:
        """An instant vector of at most this level."""
        pick = self._rng.choice
        if depth <= 0 or self._rng.random() < 0.08:
            text = self.selector()
        elif level == Level.WILD:
            text = self.wild(depth - 1)
        elif level == Level.LOOSE and self._rng.random() < 0.75:
            text = self.loose(depth - 1)
        elif level == Level.EXACT and self._rng.random() < 0.5:
            text = self.exact(depth - 1)
        else:
            text = pick(
                (
                    self.over_time,
                    self.over_time,
                    self.simple,
                    self.aggregation,
                    self.aggregation,
                    self.sum_or_difference,
                    self.comparison,
                    self.set_operation,
                    self.relabelled,
                    self.rare,
                )
            )(depth - 1)
        self.parts.append(text)
        return text

    # --- leaves ---

    def selector(self, names: Sequence[str] = ANY) -> str:
        """Series by name and labels, perhaps at another time."""
        return self._chosen(names) + self._moved()

    def _chosen(self, names: Sequence[str]) -> str:
        rng = self._rng
        matchers = [
            'host="h0"',
            'host=~"h[01]"',
            'port!="p0"',
            'port!~"p1|p2"',
            'host!=""',
            'port=""',
            'reason=~"crc|"',
            'host="nobody"',
        ]
        chosen = rng.sample(matchers, rng.choice((0, 0, 0, 1, 1, 2)))
        if names == ANY and rng.random() < 0.06:
            both = "|".join(self._world.metric(name) for name in rng.sample(names, 2))
            chosen.append(f'__name__=~"{both}"')
            return f"{{{','.join(chosen)}}}"
        name = self._world.metric(rng.choice(names))
        return f"{name}{{{','.join(chosen)}}}" if chosen else name

    def _moved(self) -> str:
        """Modifiers of time, mostly none."""
        rng = self._rng
        shape = rng.random()
        at = (START_MS + random_moment(rng)) / 1000
        offset = self._offset()
        anchor = rng.choice((" @ start()", " @ end()", f" @ {at:.3f}"))
        if shape < 0.75:
            return ""
        if shape < 0.87:
            return offset
        return anchor if shape < 0.95 else anchor + offset

    def _offset(self) -> str:
        return f" offset {self._rng.choice(('', '-'))}{self._rng.choice(DURATIONS)}"

    def ranged(self, depth: int, level: Level = Level.DYADIC, names: Sequence[str] = ANY) -> str:
        """A range vector: of samples, or of the results of a subquery."""
        rng = self._rng
        duration = rng.choice(DURATIONS)
        if depth <= 0 or rng.random() < 0.7:
            return f"{self._chosen(names)}[{duration}]{self._moved()}"
        step = rng.choice(("", "15s", "1m", "37s"))
        inner = self.vector(min(depth, 2) - 1, level)
        if not inner.endswith(")"):
            inner = f"({inner})"
        moved = self._moved()
        if "@" in inner:
            # Prometheus loads too few samples for what @ has fixed if the subquery looks ahead.
            moved = moved.replace("offset -", "offset ")
        return f"{inner}[{duration}:{step}]{moved}"

    def scalar(self, depth: int, level: Level = Level.DYADIC) -> str:
        """A scalar of at most this level."""
        rng = self._rng
        if depth <= 0 or rng.random() < 0.6:
            return rng.choice(ODD_NUMBERS if rng.random() < 0.08 else DYADIC_NUMBERS)
        if level == Level.EXACT and rng.random() < 0.5:
            left, right = self.scalar(depth - 1, level), self.scalar(depth - 1, level)
            both = f"({left} {rng.choice('/*%+-')} {right})"
            return rng.choice(("time()", "pi()", both, f"(-{left})"))
        if rng.random() < 0.3:
            left, right = self.scalar(depth - 1), self.scalar(depth - 1)
            return f"({left} {rng.choice(('+', '-', '< bool', '== bool'))} {right})"
        return f"scalar({self.vector(depth - 1, level)})"

    # --- dyadic ---

    def over_time(self, depth: int) -> str:
        """An exact function of a range."""
        function = self._rng.choice(
            (
                *("last_over_time", "min_over_time", "max_over_time", "count_over_time"),
                *("present_over_time", "sum_over_time", "changes", "resets", "absent_over_time"),
            )
        )
        return f"{function}({self.ranged(depth)})"

    def simple(self, depth: int) -> str:
        """An exact function of a vector."""
        vector, low = self.vector(depth, Level.DYADIC), self.scalar(depth)
        function = self._rng.choice(
            ("abs", "ceil", "floor", "sgn", "round", "clamp", "clamp_min", "clamp_max", "sort")
        )
        if function == "clamp":
            return f"clamp({vector}, {low}, {self.scalar(depth)})"
        if function in {"clamp_min", "clamp_max"}:
            return f"{function}({vector}, {low})"
        return f"{function}({vector})"

    def aggregation(self, depth: int) -> str:
        """An exact aggregation."""
        rng = self._rng
        if rng.random() < 0.25:
            return self.in_order(plain=False)
        if rng.random() < 0.15:
            counted = self._chosen(("temp", "host_info"))
            # By three labels Prometheus 2 loses one of them after the first step.
            return f'count_values{self._grouping(2)}("{rng.choice(("value", "host"))}", {counted})'
        function = rng.choice(("sum", "min", "max", "count", "group"))
        return self._aggregate(function, self.vector(depth, Level.DYADIC))

    def _aggregate(self, function: str, vector: str) -> str:
        return f"{function}{self._grouping()}({vector})"

    def _grouping(self, labels_max: int = 3) -> str:
        rng = self._rng
        count = rng.randrange(labels_max + 1)
        labels = rng.sample(("host", "port", "rack", "reason", "le", "nothing"), count)
        return rng.choice(("", *(f" {word} ({', '.join(labels)}) " for word in ("by", "without"))))

    def in_order(self, *, plain: bool = True) -> str:
        """The series in order of value, or the first of them. Only of values that never tie.

        Not ``plain``: the groups may be many; then PromQL does not define their order.
        """
        rng = self._rng
        vector = rng.choice(
            (
                self._chosen(("load",)),
                f"{self._chosen(('load',))} * 2",
                f"last_over_time({self._chosen(('load',))}[5m])",
            )
        )
        function = rng.choice(("topk", "bottomk") if not plain else ("topk", "bottomk", "sort"))
        if function == "sort":
            return f"{rng.choice(('sort', 'sort_desc'))}({vector})"
        count = rng.choice(("1", "2", "3", "5", "0", "-1", "2.9", "scalar(count(up))", "100"))
        return f"{function}{'' if plain else self._grouping()}({count}, {vector})"

    def sum_or_difference(self, depth: int) -> str:
        """A sum of vectors, or a multiple of one."""
        rng = self._rng
        if rng.random() < 0.4:
            number = rng.choice(DYADIC_NUMBERS)
            return f"({self.vector(depth, Level.DYADIC)} {rng.choice('+-*')} {number})"
        return self._joined(depth, Level.DYADIC, rng.choice("+-"))

    def comparison(self, depth: int) -> str:
        """A filter, or its truth as a number."""
        rng = self._rng
        operator = rng.choice(COMPARISONS) + rng.choice(("", "", " bool"))
        if rng.random() < 0.5:
            return self._joined(depth, Level.EXACT, operator)
        vector, scalar = self.vector(depth, Level.EXACT), self.scalar(depth)
        left, right = (vector, scalar) if rng.random() < 0.7 else (scalar, vector)
        return f"({left} {operator} {right})"

    def _joined(self, depth: int, level: Level, operator: str) -> str:
        """Two vectors and how they match: mostly so that they do."""
        rng = self._rng
        one, two = self.vector(depth, level), self.vector(depth, level)
        labels = ", ".join(rng.sample(("host", "port", "rack", "reason"), rng.randrange(3)))
        shape = rng.random()
        if shape < 0.35:
            matching = ""
        elif shape < 0.5:
            matching = f" on({labels})"
        elif shape < 0.65:
            matching = f" ignoring({labels})"
        else:
            group = rng.choice(("group_left", "group_right"))
            include = rng.choice(("()", "(rack)", "(dc, port)"))
            keyword = rng.choice(("on(host)", "on(host)", f"on({labels})", f"ignoring({labels})"))
            matching = f" {keyword} {group}{include}"
            few = rng.choice((self._world.metric("host_info"), f"max by (host) ({two})"))
            if rng.random() < 0.7:
                one, two = (one, few) if group == "group_left" else (few, one)
        return f"({one} {operator}{matching} {two})"

    def set_operation(self, depth: int) -> str:
        """and, or, unless."""
        rng = self._rng
        one, two = self.vector(depth, Level.DYADIC), self.vector(depth, Level.DYADIC)
        labels = ", ".join(rng.sample(("host", "port", "reason"), rng.randrange(3)))
        matching = rng.choice(("", "", f"on({labels}) ", f"ignoring({labels}) "))
        return f"({one} {rng.choice(('and', 'or', 'unless'))} {matching}{two})"

    def relabelled(self, depth: int) -> str:
        """Labels made from others; at times two series become the same, which both must refuse."""
        rng = self._rng
        vector = self.vector(depth, Level.DYADIC)
        target = rng.choice(("new", "new", "port", "__name__", "host"))
        source = rng.choice(("host", "port", "le", "nothing", "__name__"))
        if rng.random() < 0.3:
            return f'label_join({vector}, "{target}", "-", "{source}", "port")'
        pattern, replacement = rng.choice(
            (
                ("(.*)", "$1"),
                ("h(.)", "host-$1"),
                ("(?P<kind>[a-z])([0-9])", "${2}_${kind}_$3"),
                ("x", "y"),
                ("", "none"),
                (".*", ""),
                ("[", "bad"),
            )
        )
        return f'label_replace({vector}, "{target}", "{replacement}", "{source}", "{pattern}")'

    def rare(self, depth: int) -> str:
        """What is seldom written."""
        pick = self._rng.choice
        return pick(
            (
                lambda: f"absent({self.vector(depth, Level.DYADIC)})",
                lambda: f"absent({self.selector()})",
                lambda: f"vector({self.scalar(depth)})",
                lambda: f"(-{self.vector(depth, Level.DYADIC)})",
                lambda: f"(+{self.vector(depth, Level.DYADIC)})",
                lambda: f"({self.vector(depth, Level.DYADIC)})",
            )
        )()

    # --- less exact ---

    def exact(self, depth: int) -> str:
        """Single operations on exact values."""
        pick = self._rng.choice
        choices: tuple[Callable[[], str], ...] = (
            lambda: f"{pick(DATES)}({self._chosen(('clock',))})",
            lambda: f"timestamp({self.simple(depth)})",
            # Not with @ and offset at once: Prometheus forgets the offset there.
            lambda: f"timestamp({self._chosen(ANY)}{pick((self._offset(), ' @ end()', ''))})",
            lambda: f"{pick(('idelta', 'irate'))}({self.ranged(depth)})",
            lambda: (
                f"({self.vector(depth, Level.EXACT)} {pick('/*%-+')} {self.scalar(2, Level.EXACT)})"
            ),
            lambda: f"({self.scalar(2, Level.EXACT)} / {self.vector(depth, Level.EXACT)})",
            lambda: self._joined(depth, Level.EXACT, pick("/*%+-")),
        )
        return pick(choices)()

    def loose(self, depth: int) -> str:
        """Sums, means, slopes: right to the last digits."""
        pick = self._rng.choice
        rated = pick(("rate", "increase", "delta", "avg_over_time"))
        averaged = pick(("avg_over_time", "sum_over_time", "max_over_time", "min_over_time"))
        spread = pick(("stddev", "stdvar"))
        choices: tuple[Callable[[], str], ...] = (
            lambda: f"{rated}({self.ranged(depth)})",
            lambda: f"{rated}({self.ranged(0, names=('sent_total', 'drops_total'))})",
            lambda: f"{averaged}({self.ranged(depth, Level.LOOSE)})",
            # Not with @: Prometheus 2 moves the range on with every step, and runs out of samples.
            # No infinities in a regression: Prometheus 2 loses them in its compensated sums.
            lambda: f"predict_linear({self._chosen(FINITE)}[5m]{self._offset()}, {self.scalar(0)})",
            lambda: f"deriv({self.ranged(0, names=FINITE)})",
            lambda: f"holt_winters({self.ranged(0)}, {pick(('0.5', '0.1'))}, {pick(('0.3', '1'))})",
            lambda: f"{spread}_over_time({self.ranged(depth)})",
            # No infinities in a quantile: whether an infinity has the weight 0 or 2e-16 depends on
            # fused operations of the processor, and one is NaN.
            lambda: f"quantile_over_time({pick(QUANTILES)}, {self.ranged(0, names=FINITE)})",
            lambda: self._aggregate(pick(("avg", "sum", "min")), self.vector(depth, Level.LOOSE)),
            lambda: self._aggregate(spread, self.selector(FINITE[:4])),
            lambda: f"quantile{self._grouping()}({pick(QUANTILES)}, {self.selector(FINITE)})",
            self.histogram,
            lambda: self._joined(depth, Level.LOOSE, pick("+-")),
            lambda: f"({self.vector(depth, Level.LOOSE)} * {pick(DYADIC_NUMBERS)})",
            lambda: f"{pick(SMOOTH)}({self.vector(depth, Level.LOOSE)})",
            lambda: f"({self.vector(depth, Level.LOOSE)} or {self.vector(depth, Level.LOOSE)})",
        )
        return pick(choices)()

    def histogram(self) -> str:
        """Quantiles of classic buckets."""
        rng = self._rng
        buckets = self._chosen(("lat_bucket",))
        if rng.random() < 0.4:
            return f"histogram_quantile({rng.choice(QUANTILES)}, {self.selector(('lat_bucket',))})"
        rate = f"rate({buckets}[{rng.choice(('2m', '5m', '10m'))}]{self._moved()})"
        if rng.random() < 0.5:
            rate = f"sum by ({rng.choice(('le', 'le, host', 'host'))}) ({rate})"
        return f"histogram_quantile({rng.choice(UNEVEN_QUANTILES)}, {rate})"

    def wild(self, depth: int) -> str:
        """Steep functions."""
        rng, pick = self._rng, self._rng.choice
        if rng.random() < 0.6:
            return f"{rng.choice(STEEP)}({self.vector(depth, Level.EXACT)})"
        if rng.random() < 0.5:
            # Prometheus 2 forgot that an atan2 is no longer the metric: its operands have no name.
            one, two = (f"abs({self.vector(depth, Level.EXACT)})" for _ in range(2))
            return pick((f"({one} atan2 {two})", self._joined(depth, Level.EXACT, "^")))
        return f"({self.vector(depth, Level.EXACT)} ^ {rng.choice(('2', '0.5', '-1', '3', 'NaN'))})"
