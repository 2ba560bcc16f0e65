"""Backups: the store's frozen parts and the inventory's rows in one archive, out and in again."""
