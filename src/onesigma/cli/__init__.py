"""The command line. Thin: a command reads its options, calls the library, prints."""
