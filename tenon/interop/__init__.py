"""Files of other frameworks, read with their own libraries where these are installed."""
