"""Bounds of a template, which comes from outside. Prometheus has none; people stay far below."""

from __future__ import annotations

TEXT_MAX = 65_536
"""Characters of a template. The longest annotations in public rule packs have a few thousand."""
NODES_MAX = 5_000
"""Pieces that a template is taken apart into: texts, actions, words."""
NESTING_MAX = 40
"""Blocks and parentheses inside each other, `else if` among them. A level costs five calls of
Python's stack, which has room for a thousand."""
DEPTH_MAX = 60
"""The same while a template is expanded, where templates call each other, or themselves."""
STEPS_MAX = 100_000
"""Pieces that one expansion may go through; a few tenths of a second."""
CHARACTERS_PER_STEP = 8
ROWS_PER_STEP = 16
"""A function's work on so much, and what it makes of it, counts as one step more."""
PATTERN_STEPS = 1_000
"""What a regular expression counts for: classes of Unicode, repeated, cost RE2 many milliseconds
to read. A hundred of them may be used in one expansion."""
OUTPUT_MAX = 65_536
"""Characters of what comes out, and of every text on the way there. Alertmanager's receivers
(Slack, PagerDuty) cut off far earlier."""
SHOWN_MAX = 1_000
"""Characters of the piece of a template that an error shows."""
QUERIES_MAX = 50
"""Queries of one expansion. Each is a question to the store."""
ROWS_MAX = 10_000
"""Rows of one query's answer that a template may look at."""
PRINT_DEPTH_MAX = 16
PATTERN_MAX = 500
"""Characters of a regular expression, and of what it puts in place."""
MATCHED_MAX = 4_096
"""Bytes of a text in which a regular expression looks for something."""
CACHED_TEXT_MAX = 2_000
"""Characters of a template that is kept in its parsed form for the next evaluation."""
CACHED_MAX = 512
"""Templates that are kept so: two or three for each rule of a large pack."""
