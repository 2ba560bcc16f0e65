"""SNMP: the door to switches. What the numbers mean is the `snmp` source's business.

`model` says what is asked and answered, `client` asks real switches (pysnmp), `replay` answers from
a recording (`.snmprec`) of a captured tree.
"""
