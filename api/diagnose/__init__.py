"""`fabricscope diagnose PATH…`: from a folder of files, unprepared, to what slows a job down.

`find` looks for files and recognises each by its content, `load` puts what they hold into a
throw-away store, `jobs` and `analyse` run the same queries on it as the service does, `report` is
the answer as data (what `--json` prints). `text`, `page` and `trace` show it.
"""
