"""From the bytes of a request to rows in the store: decode, recognise the series, commit."""
