"""Tests, and the small tools that only developers run."""
