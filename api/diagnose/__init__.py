"""`fabricscope diagnose PATH…`: from a folder of files, as they lie, to what slows a job down.

`find` looks for files and recognises each by its content, `load` puts what they hold into a
throw-away store, `jobs` and `analyse` ask the same questions of it as the service does, `report` is
the answer as data (what `--json` prints). `text`, `page` and `trace` show it.
"""
