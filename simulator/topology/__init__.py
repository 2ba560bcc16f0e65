"""Clusters to choose from, and the way of a flow through them."""
