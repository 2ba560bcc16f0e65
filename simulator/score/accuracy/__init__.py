"""`fabricscope score --accuracy`: how small, how many at once, how big, and how long in peace.

Trials are drawn by seed and played without a service (`simulator.score.direct`). Each is one line
of JSON, so that a run that is stopped goes on where it was, and several machines can share one.
"""
