"""A training step in stages: schedules as data, the cut of one captured step into them, and what runs it."""
