"""Reads what a host is set to, for the audit: sysfs, `/proc`, PCI configuration, a few programs.

Read-only, and without root as far as the kernel allows; what only root may see is named as unread.
Everything goes through `Host`, so that a captured tree is read as the machine is.
"""
