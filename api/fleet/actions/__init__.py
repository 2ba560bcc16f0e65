"""What is done with hosts: a policy asked every few seconds, people's words, and their record.

Nothing here reaches out: a host is held in the inventory, and executors near a scheduler make that
true there (docs/decisions/0039-actions-are-shadowed.md).
"""
