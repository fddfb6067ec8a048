"""The places machines live: one folder per platform, the same file names in each, found through `registry`."""
