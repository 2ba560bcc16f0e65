"""Which hosts, devices, links and GPUs can be trusted with the next job, and why. Pure.

`model` has the types, `blame` turns incidents and findings into charges against single things,
`judge` computes a state and a risk from charges, holds and silence, `lemon` covers weeks. Nothing
here reads a clock: the time is always an argument (unix nanoseconds).
"""
