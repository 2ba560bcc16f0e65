"""Which hosts, devices, links and GPUs can be trusted with the next job, and why. Pure.

`model` has the words, `blame` turns incidents and findings into charges against single things,
`judge` makes a state and a risk of charges, holds and silence, `lemon` looks at weeks. Nothing here
reads a clock: the moment is always an argument (unix nanoseconds).
"""
