"""Random programs of Python with state: objects, containers, closures, errors, texts; eager beside jitted, call by call."""
