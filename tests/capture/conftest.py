"""The programs are loaded by the corpus, once for every run, and not as tests."""

collect_ignore_glob = ["programs/*"]
