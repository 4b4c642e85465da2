"""What compiled programs need while they run: memory, threads, and the program itself."""
