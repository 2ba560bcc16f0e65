"""Helpers of formats: bounded readers of lines, JSON and pickles, and PyTorch's words.

Pure and a leaf, as the formats are: nothing of the agent comes in here.
"""
