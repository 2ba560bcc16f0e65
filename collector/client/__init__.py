"""The one file that schedulers' plug-ins copy: `fabricscope shim client` prints it."""
