"""What a program asks of its machine: files, locks, processes, threads, packages."""
