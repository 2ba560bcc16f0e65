"""What drivers call things and what we call them: data for the sources, one table per driver.

A table says file name → metric, factor, width. What the metric means stands in the catalog.
"""
