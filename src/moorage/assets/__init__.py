"""The asset graph and the assets: everything computed from an install-config before a machine exists."""
