"""Jobs: which processes are one job, which rank runs where, and which communicators it has.

Sources rank in this order: a registration, NCCL's own lines, the scheduler, the records, and last
the communication between processes (`infer`). `watch` keeps the inventory's jobs in step with the
store.
"""
