"""Jobs: which processes are one job, which rank runs where, and which communicators it has.

Whoever says it is believed in this order: a person, NCCL's own lines, the scheduler, the records,
and at last who talks to whom (`infer`). `watch` keeps the inventory's jobs in step with the store.
"""
