"""The evaluator: judges the last minutes every few seconds and keeps findings and verdicts.

One of several service processes does it (`lead`). A round (`rounds`) reads a window, runs the
detectors, judges, and advances the incidents, which live in the inventory. Findings and verdicts go
to the store (`rows`) and become series (`series`). Other parts read them back (`book`) or receive
changes as they come (`changes`).
"""
