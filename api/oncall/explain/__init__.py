"""The evidence as data: what detectors saw in a stretch of time, so that operators can check it."""
