"""The audit: settings of a host, or of a fleet, that cost bandwidth before anything breaks.

Facts go in (`facts`), findings come out (`finding`). Pure: who reads the machine is
`collector.configuration`, and the service takes the same facts from its store, so that one host and
a fleet are judged by the same checks. One check is one file below `checks`.

A finding is an accusation. So a check is silent wherever a setting may be right, and what could not
be read is said apart from what is wrong.
"""
