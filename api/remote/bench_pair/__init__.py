"""Measuring between two hosts with the programs that are there, and keeping the result."""
