"""What should be done with hosts, by a policy that somebody wrote: when to drain, when to return.

`model` has a policy's words, `file` reads one, `action` is the record of one drain from its wish to
its end, `decide` makes wishes and refusals of the fleet's health and what was done before. Pure:
nothing here reads a clock, a file of the user or a database, and nothing is done.
"""
