"""Actions on hosts: a policy evaluated every few seconds, operators' requests, and their record.

Nothing here calls a scheduler: a host is held in the inventory, and executors near a scheduler
apply that (docs/decisions/0039-actions-are-shadowed.md).
"""
