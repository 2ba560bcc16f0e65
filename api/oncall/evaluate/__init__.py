"""The evaluator: every few seconds the last minutes are judged anew, and what was said is kept.

One of several service processes does it (`lead`). A round (`rounds`) reads a window, runs the
detectors, judges, and advances the incidents, which live in the inventory. What was said goes to
the store (`said`) and becomes series (`series`). Others read it back (`book`) or are told of
changes as they come (`changes`).
"""
