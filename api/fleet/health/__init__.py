"""The health of the fleet, kept at hand: for schedulers that ask every second.

`evidence` follows what the inventory and the store know, `board` judges it every few seconds and
keeps the answers as bytes, `holds` is who has taken what out, `series` is what PromQL sees.
What a verdict means for whom is decided in `alerts.health`, not here.
"""
