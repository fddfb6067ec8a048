"""A platform of somebody else's, as `MOORAGE_PLATFORMS` plugs it in: instances are files in a folder."""
