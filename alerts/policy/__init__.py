"""When to drain hosts and when to return them, by an operator's policy.

`model` has a policy's types, `file` reads one, `action` is the record of one drain from its wish to
its end, `decide` computes wishes and refusals from the fleet's health and past actions, `record`
turns them into actions. Pure: nothing here reads a clock or a database, or acts on a host.
"""
