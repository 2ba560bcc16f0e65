"""The audit: settings of a host, or of a fleet, that cost bandwidth before anything breaks.

Facts go in (`facts`), findings come out (`finding`). Pure: `collector.reading.configuration` reads
the machine, and the service takes the same facts from its store, so that one host and a fleet are
judged by the same checks. One check is one file below `checks`.

A finding is an accusation. So a check is silent wherever a setting may be right, and settings that
could not be read are reported apart from wrong ones.
"""
