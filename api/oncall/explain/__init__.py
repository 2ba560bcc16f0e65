"""The evidence as data: what detectors saw of a stretch of time, so that anybody can check it."""
