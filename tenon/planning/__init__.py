"""A model and a cluster -> what would run where, and what it would cost; nothing is run, nothing of its size made."""
