"""Dashboards drawn without a Grafana: for documentation, and to look at a board while writing it.

The same JSON, the same queries and the same colours; a page is one SVG. It is a picture and no
client: nothing can be clicked, and only what our boards use of Grafana is drawn.
"""
