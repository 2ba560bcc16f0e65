"""Single files that users copy into their programs: step marks and an HTTP client."""
