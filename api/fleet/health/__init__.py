"""The health of the fleet, kept in memory: for schedulers that ask every second.

`evidence` follows the inventory and the store, `board` judges it every few seconds and keeps the
answers as bytes, `holds` lists what operators and actions have taken out, `series` writes series
for PromQL. `alerts.health` decides what a verdict means for which host.
"""
