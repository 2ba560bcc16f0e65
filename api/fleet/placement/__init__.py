"""Which hosts the next job should get: sets of hosts, ranked, each with its reasons.

    inventory, topology ─► floor ─► refuse ─► choose ─► score ─► words
                            └─ ways ─┘

All but `floors.py` is pure. Why it is built so: docs/decisions/0037-placement.md.
"""
