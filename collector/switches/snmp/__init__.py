"""SNMP: the door to switches. The `snmp` source interprets the numbers.

`model` defines questions and answers, `client` asks real switches (pysnmp), `replay` answers from
a recording (`.snmprec`) of a captured tree.
"""
